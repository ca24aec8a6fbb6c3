"""Members with one trunk give what whole networks give, to the bit, in every family; and the trunk is computed once."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from small_runtimes import FAMILIES, PECULIAR, inputs_of, make_library
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.convnext.modeling_convnext import ConvNextLayer

from smatter.backbones.arithmetic import multiply_accumulates
from smatter.backbones.branch import passes_of, tail_modules
from smatter.backbones.network import Inputs, Network, chunks, load_tensors
from smatter.backbones.trunk import Members, tail_tensors
from smatter.compose.mixture import Mixture
from smatter.errors import IncompatibleSource, InvalidSettings, UnknownModule
from smatter.library.library import Library

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`")  # said by transformers' DeBERTa

N_MEMBERS = 4


@dataclass(frozen=True)
class Case:
    """A network, the tensors of whole networks by name on disk, and what to pass."""

    library: Library
    network: Network
    wholes: list[dict[str, Tensor]]
    inputs: Inputs

    def whole(self, tensors: Mapping[str, Tensor], inputs: Inputs | None = None) -> Tensor:
        """Features of a network made of these tensors alone."""
        network = Network(self.library.base.config, self.library.specs)
        load_tensors(network.model, tensors)
        with torch.inference_mode():
            return torch.cat([network.features(part) for part in chunks(inputs or self.inputs)])

    def members(self, branch: str) -> tuple[Members, list[dict[str, Tensor]]]:
        """Members from a branch on, and the tensors of each."""
        modules = self.library.partition.modules
        tail = tail_modules(multiply_accumulates(self.network, self.library.partition), branch)
        tails = [tail_tensors(self.network, each, self.library.partition, tail) for each in self.wholes[1:]]
        names = {name for module in tail for name in modules[module]}
        merged = [self.wholes[0] | {name: each[name] for name in names} for each in self.wholes]
        return Members(self.network, [{}, *tails]), merged


@cache
def case(family: str) -> Case:
    with TemporaryDirectory() as folder:
        library = make_library(family, Path(folder))
        shares = torch.linspace(0, 1, N_MEMBERS).tolist()
        mixtures = [Mixture.of({"s0": 1 - share, "s1": share}) for share in shares]
        wholes = [library.compose(mixture).tensors() for mixture in mixtures]
        network = Network(library.base.config, library.specs)
    load_tensors(network.model, wholes[0])
    return Case(library, network, wholes, inputs_of(library, 5))


def n_products(members: Members, inputs: Inputs) -> int:
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        members.features(inputs)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("family", [*FAMILIES, *PECULIAR])
def test_members_are_whole_networks_wherever_they_part(family: str) -> None:
    here = case(family)
    counts = multiply_accumulates(here.network, here.library.partition, here.inputs)
    total = sum(counts.values())
    shares = {module: count / total for module, count in counts.items()}
    for branch in counts:
        members, wholes = here.members(branch)
        features = members.features(here.inputs)
        for found, whole in zip(features, wholes, strict=True):
            assert torch.equal(found, here.whole(whole)), branch
        # What is computed is what is counted: the trunk once, and each tail.
        expected = passes_of(shares, [tail_modules(counts, branch)] * N_MEMBERS)
        assert n_products(members, here.inputs) == pytest.approx(expected * total), branch


@pytest.mark.parametrize("family", [*FAMILIES, *PECULIAR])
def test_members_may_differ_in_any_tensor(family: str) -> None:
    """Some tensors are read without calling what owns them: DeBERTa's relative embeddings."""
    here = case(family)
    copied = copy.deepcopy(here.network)
    for name, own in dict(here.network.model.named_parameters()).items():
        other = own.detach() + 0.1
        found = Members(here.network, [{name: other}, {}, {name: other}]).features(here.inputs)
        parameter = copied.model.get_parameter(name)
        with torch.no_grad():
            whole = copied.features(here.inputs)
            parameter.data = other
            changed = copied.features(here.inputs)
            parameter.data = own.data.clone()
        assert [torch.equal(row, changed) for row in found] == [True, torch.equal(whole, changed), True], name
        assert torch.equal(found[1], whole), name


def test_parts_of_the_trunk_run_once_and_those_of_tails_for_each_member(monkeypatch: pytest.MonkeyPatch) -> None:
    here, calls, forward = case("convnext"), [], ConvNextLayer.forward

    def counted(self: ConvNextLayer, features: Tensor) -> Tensor:
        calls.append(self)
        return forward(self, features)

    monkeypatch.setattr(ConvNextLayer, "forward", counted)
    first, second, third = (part for part in here.network.model.modules() if isinstance(part, ConvNextLayer))
    for branch, expected in (("encoder.stages.1", [1, 4, 4]), ("encoder.stages.1.layers.1", [1, 1, 4])):
        members, _ = here.members(branch)
        calls.clear()
        members.features(here.inputs)
        assert [calls.count(part) for part in (first, second, third)] == expected


@pytest.mark.parametrize(("family", "branch"), [("convnext", "encoder.stages.1"), ("bert", "encoder.layer.1")])
def test_rows_beyond_a_chunk_pass_in_turn(family: str, branch: str) -> None:
    here = case(family)
    inputs = inputs_of(here.library, 150)
    members, wholes = here.members(branch)
    features = members.features(inputs)
    assert features.shape[:2] == (N_MEMBERS, 150)
    assert all(torch.equal(found, here.whole(whole, inputs)) for found, whole in zip(features, wholes, strict=True))


def test_callers_may_be_in_inference_mode() -> None:
    here = case("llama")
    members, wholes = here.members("layers.1")
    n_outside = n_products(members, here.inputs)
    with torch.inference_mode():
        inputs = {name: tensor.clone() for name, tensor in here.inputs.items()}
        inside = Members(here.network, [{name: each.clone() for name, each in tail.items()} for tail in members.tails])
        features = inside.features(inputs)
        assert n_products(inside, inputs) == n_outside
    assert torch.equal(features[-1], here.whole(wholes[-1]))
    assert not any(parameter.is_inference() for parameter in here.network.model.parameters())


def test_half_precision_and_weights_composed_anew(tmp_path: Path) -> None:
    from smatter.live.mixture import Resident

    library = make_library("vit", tmp_path)
    resident, other = Resident(library, "BF16"), Resident(library, "BF16", Mixture.of({"s1": 1.0}))
    tail = ("encoder.layer.1.mlp", "final_norm", "pooler")
    tensors = library.compose(Mixture.of({"s1": 1.0})).tensors()
    members = Members(resident.network, [{}, tail_tensors(resident.network, tensors, library.partition, tail)])
    inputs = {name: tensor.bfloat16() for name, tensor in inputs_of(library, 3).items()}
    found = members.features(inputs)
    assert found.dtype == torch.bfloat16 and torch.equal(found[0], resident.features(inputs))
    resident.compose(Mixture.of({"s1": 1.0}))
    assert all(torch.equal(row, other.features(inputs)) for row in members.features(inputs))


class Interruption(BaseException):
    pass


@pytest.mark.parametrize("error", [RuntimeError, Interruption])
def test_whatever_is_raised_the_network_is_as_before(error: type[BaseException]) -> None:
    here = case("llama")
    network = copy.deepcopy(here.network)
    members = Members(network, here.members("layers.1")[0].tails)
    last, calls = network.model.norm, []

    def failing(hidden: Tensor) -> Tensor:
        calls.append(hidden)
        if len(calls) == 3:
            raise error
        return type(last).forward(last, hidden)

    last.forward = failing
    before = {name: (each, each.data_ptr()) for name, each in network.model.named_parameters()}
    with pytest.raises(IncompatibleSource if error is RuntimeError else error):
        members.features(here.inputs)
    assert {name: (each, each.data_ptr()) for name, each in network.model.named_parameters()} == before
    assert [part for part in network.model.modules() if "forward" in vars(part)] == [last]
    assert last.forward is failing and network.model.config.use_cache
    assert torch.equal(members.features(here.inputs)[0], here.whole(here.wholes[0]))


def test_tails_that_do_not_fit_are_refused_in_one_line() -> None:
    here = case("vit")
    name, own = next(iter(here.network.model.named_parameters()))
    for tails, error, message in (
        ([], InvalidSettings, "at least one member"),
        ([{"no.such": own}], UnknownModule, r"no tensor 'no\.such'"),
        ([{}, {name: own[:0]}], IncompatibleSource, "architecture"),
        ([{name: own.half()}], IncompatibleSource, "float16"),
    ):
        with pytest.raises(error, match=message) as refusal:
            Members(here.network, tails)
        assert "\n" not in str(refusal.value)
