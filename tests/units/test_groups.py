"""Groups, on the names that save_pretrained writes, and held against what the network computes."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import IMAGE, STAGES, TEXT, build, make
from transformers import PreTrainedModel

from smatter.backbones.modules import partition
from smatter.backbones.network import Network, load_tensors
from smatter.errors import IncompatibleSource
from smatter.records import Partition, TensorSpec
from smatter.units.groups import Group, Slice, find_groups

Tensors = dict[str, torch.Tensor]

LAYERS = {"num_attention_heads": 4, "intermediate_size": 40}
ENCODER = {**TEXT, **LAYERS}
PICTURE = {**IMAGE, **LAYERS}
SHARED_KEYS = {**ENCODER, "num_key_value_heads": 2}
HEAD_DIM = {**SHARED_KEYS, "head_dim": 6}

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": make("BertModel", "BertConfig", **ENCODER),
    "bert with head": make("BertForSequenceClassification", "BertConfig", **ENCODER),
    "roberta": make("RobertaModel", "RobertaConfig", **ENCODER),
    "electra": make("ElectraModel", "ElectraConfig", embedding_size=8, **ENCODER),
    "distilbert": make(
        "DistilBertModel", "DistilBertConfig", vocab_size=30, dim=16, n_layers=2, n_heads=4, hidden_dim=40
    ),
    "mpnet": make("MPNetModel", "MPNetConfig", **ENCODER),
    "deberta": make(
        "DebertaModel", "DebertaConfig", relative_attention=True, pos_att_type=["c2p", "p2c"],
        max_relative_positions=8, **ENCODER,
    ),
    "deberta-v2": make(
        "DebertaV2Model", "DebertaV2Config", relative_attention=True, pos_att_type=["c2p", "p2c"], **ENCODER
    ),
    "vit": make("ViTForImageClassification", "ViTConfig", **PICTURE),
    "dinov2": make("Dinov2Model", "Dinov2Config", **PICTURE),
    "beit": make("BeitModel", "BeitConfig", use_relative_position_bias=True, **PICTURE),
    "convnext": make("ConvNextForImageClassification", "ConvNextConfig", **STAGES),
    "convnextv2": make("ConvNextV2Model", "ConvNextV2Config", **STAGES),
    "llama": make("LlamaForCausalLM", "LlamaConfig", attention_bias=True, mlp_bias=True, **SHARED_KEYS),
    "llama, one head of keys": make("LlamaModel", "LlamaConfig", **{**ENCODER, "num_key_value_heads": 1}),
    "mistral": make("MistralModel", "MistralConfig", **HEAD_DIM),
    "qwen2": make("Qwen2Model", "Qwen2Config", **SHARED_KEYS),
    "qwen3": make("Qwen3Model", "Qwen3Config", **HEAD_DIM),
    "gemma2": make("Gemma2Model", "Gemma2Config", **HEAD_DIM),
    "phi3": make("Phi3Model", "Phi3Config", **SHARED_KEYS),
    "olmo2": make("Olmo2Model", "Olmo2Config", **SHARED_KEYS),
    "gpt2": make(
        "GPT2LMHeadModel", "GPT2Config", vocab_size=30, n_embd=16, n_layer=2, n_head=4, n_inner=40, pad_token_id=0
    ),
    "gpt_neo": make(
        "GPTNeoModel", "GPTNeoConfig", vocab_size=30, hidden_size=16, num_layers=2, num_heads=4, intermediate_size=40,
        attention_types=[[["global", "local"], 1]],
    ),
    "gpt_neox": make("GPTNeoXModel", "GPTNeoXConfig", **ENCODER),
}  # fmt: skip

MIX_ACROSS_GROUPS = ("convnextv2", "olmo2")
"""A norm over all channels or heads: what one is, is felt by the others."""

READING = (
    "output.dense.weight", "out_lin.weight", "lin2.weight", "attn.o.weight", "o_proj.weight", "fc2.weight",
    "down_proj.weight", "out_proj.weight", "c_proj.weight", "attention.dense.weight", "4h_to_h.weight",
    "pwconv2.weight",
)  # fmt: skip
"""How the projections out of groups are called."""


@dataclass(frozen=True)
class Case:
    tensors: Tensors
    config: dict
    modules: Partition
    groups: dict[str, tuple[Group, ...]]

    @property
    def specs(self) -> dict[str, TensorSpec]:
        return {name: TensorSpec("F32", tuple(tensor.shape)) for name, tensor in self.tensors.items()}

    @cached_property
    def network(self) -> Network:
        return Network(self.config)

    def output(self, tensors: Tensors) -> torch.Tensor:
        load_tensors(self.network.model, tensors)
        with torch.no_grad():
            if self.network.takes_images:
                pixels = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
                return self.network.features({"pixel_values": pixels})
            return self.network.features({"input_ids": torch.tensor([[1, 5, 9, 2], [3, 3, 8, 29]])})


def make_case(architecture: str, folder: Path, in_memory: bool = False) -> Case:
    model = build(MODELS[architecture])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator).mul_(0.5)
    model.save_pretrained(folder, save_original_format=not in_memory)
    tensors = load_file(folder / "model.safetensors")
    if architecture == "mpnet":  # its positions, shared by the layers, know heads by number
        tensors["encoder.relative_attention_bias.weight"].zero_()
    config = json.loads((folder / "config.json").read_text())
    modules = partition(tensors, config["model_type"])
    specs = {name: TensorSpec("F32", tuple(tensor.shape)) for name, tensor in tensors.items()}
    return Case(tensors, config, modules, find_groups(specs, config, modules))


@pytest.fixture(scope="module", params=MODELS)
def named(request, tmp_path_factory) -> tuple[str, Case]:
    return request.param, make_case(request.param, tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def case(named) -> Case:
    return named[1]


def swapped(tensors: Tensors, one: Group, other: Group) -> Tensors:
    result = {name: tensor.clone() for name, tensor in tensors.items()}
    for left, right in zip(one.slices, other.slices, strict=True):
        assert (left.tensor, left.axis) == (right.tensor, right.axis)
        result[left.tensor][left.index] = tensors[right.tensor][right.index]
        result[right.tensor][right.index] = tensors[left.tensor][left.index]
    return result


def without(tensors: Tensors, slices: tuple[Slice, ...]) -> Tensors:
    result = {name: tensor.clone() for name, tensor in tensors.items()}
    for part in slices:
        result[part.tensor][part.index] = 0
    return result


def is_close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def sizes(group: Group) -> list[int]:
    return [part.stop - part.start for part in group.slices]


def test_groups_are_disjoint_and_cover_the_tensors_they_touch(case: Case) -> None:
    for module, groups in case.groups.items():
        counts: dict[str, torch.Tensor] = {}
        for part in (part for group in groups for part in group.slices):
            assert case.modules.module_of(part.tensor) == module
            assert 0 <= part.start < part.stop <= case.tensors[part.tensor].shape[part.axis]
            count = counts.setdefault(part.tensor, torch.zeros_like(case.tensors[part.tensor]))
            count[part.index] += 1
        assert all(bool((count == 1).all()) for count in counts.values())


def test_every_layer_has_its_heads_and_neurons_and_nothing_else_has_groups(named) -> None:
    architecture, case = named
    counts = {module: Counter(group.kind for group in groups) for module, groups in case.groups.items()}
    layers = [module for module in case.modules.modules if "layer" in module or "h." in module]
    assert list(counts) == [module for module in layers if "downsampling" not in module]
    if architecture.startswith("convnext"):
        assert [dict(count) for count in counts.values()] == [{"channels": 2}, {"channels": 3}, {"channels": 3}]
        return
    heads = case.config.get("num_key_value_heads") or 4
    neurons = 4 if architecture == "dinov2" else 3
    assert sorted(counts.values(), key=list) == [Counter(head=heads)] * 2 + [Counter(neurons=neurons)] * 2


def test_what_no_group_has_is_norms_scales_and_output_biases(case: Case) -> None:
    touched = {part.tensor for groups in case.groups.values() for group in groups for part in group.slices}
    left = {name for module in case.groups for name in case.modules.modules[module]} - touched
    for name in left:
        is_small = case.tensors[name].ndim == 1 or "dwconv" in name
        assert is_small and any(word in name for word in ("norm", "Norm", "ln_", "bias", "scale", "lambda", "dwconv"))


def test_two_groups_that_change_places_leave_the_function_as_it_was(case: Case) -> None:
    expected = case.output(case.tensors)
    n_pairs = 0
    for groups in case.groups.values():
        for one, other in pairwise(groups):
            if sizes(one) == sizes(other):
                n_pairs += 1
                changed = swapped(case.tensors, one, other)
                assert is_close(case.output(changed), expected)
    assert n_pairs or case.config.get("num_key_value_heads") == 1


def test_groups_that_change_places_in_all_tensors_but_one_change_the_function(case: Case) -> None:
    """Else the test above would prove nothing."""
    expected = case.output(case.tensors)
    for groups in case.groups.values():
        pairs = [pair for pair in pairwise(groups) if sizes(pair[0]) == sizes(pair[1])]
        for one, other in pairs[:1]:
            for tensor in {part.tensor for part in one.slices if part.tensor.endswith("weight")}:
                changed = {**swapped(case.tensors, one, other), tensor: case.tensors[tensor]}
                assert not torch.allclose(case.output(changed), expected, rtol=1e-5, atol=1e-6), tensor


def test_a_group_that_computes_zero_is_a_group_that_is_not_read(named) -> None:
    architecture, case = named
    if architecture in MIX_ACROSS_GROUPS:
        pytest.skip("a norm ties the groups together")
    expected = case.output(case.tensors)
    for groups in case.groups.values():
        for group in (groups[0], groups[-1]):
            reading = tuple(part for part in group.slices if part.tensor.endswith(READING))
            writing = tuple(part for part in group.slices if not part.tensor.endswith(READING))
            assert len(reading) == 1 and writing
            unread = case.output(without(case.tensors, reading))
            assert is_close(case.output(without(case.tensors, writing)), unread)
            assert not is_close(unread, expected)


@pytest.mark.parametrize("architecture", ["vit", "dinov2", "beit", "gpt_neox"])
def test_names_in_memory_give_the_same_groups(architecture: str, tmp_path: Path) -> None:
    disk = make_case(architecture, tmp_path / "disk")
    memory = make_case(architecture, tmp_path / "memory", in_memory=True)

    def slices(case: Case) -> Counter:
        every = [group for groups in case.groups.values() for group in groups]
        return Counter((group.kind, part.axis, part.start, part.stop) for group in every for part in group.slices)

    assert slices(disk) == slices(memory)


def test_fused_gates_are_cut_twice() -> None:
    specs = {
        "encoder.layer.0.mlp.weights_in.weight": TensorSpec("F32", (40, 8)),
        "encoder.layer.0.mlp.weights_in.bias": TensorSpec("F32", (40,)),
        "encoder.layer.0.mlp.weights_out.weight": TensorSpec("F32", (8, 20)),
    }
    (groups,) = find_groups(specs, {"model_type": "dinov2"}, partition(specs, "dinov2")).values()
    ranges = [[(part.start, part.stop) for part in group.slices] for group in groups]
    assert ranges == [
        [(0, 16), (20, 36), (0, 16), (20, 36), (0, 16)],
        [(16, 20), (36, 40), (16, 20), (36, 40), (16, 20)],
    ]


def test_the_size_of_a_group_is_a_choice(tmp_path: Path) -> None:
    case = make_case("bert", tmp_path)
    groups = find_groups(case.specs, case.config, case.modules, size=30)
    assert [len(group) for group in groups.values()] == [4, 2] * 2
    with pytest.raises(ValueError, match="at least 1"):
        find_groups(case.specs, case.config, case.modules, size=0)


def test_modules_by_pattern_keep_their_own_slices(tmp_path: Path) -> None:
    case = make_case("bert", tmp_path)
    whole = find_groups(case.specs, case.config, partition(case.tensors, None, r"(layer\.\d+)"))
    assert {module: Counter(group.kind for group in groups) for module, groups in whole.items()} == {
        f"layer.{layer}": Counter(head=4, neurons=3) for layer in range(2)
    }
    single = find_groups(case.specs, case.config, partition(case.tensors, None, r"(layer\.0\.attention\.self\.query)"))
    assert {part.tensor for group in single["layer.0.attention.self.query"] for part in group.slices} == {
        "encoder.layer.0.attention.self.query.weight",
        "encoder.layer.0.attention.self.query.bias",
    }


def test_an_unknown_network_has_no_groups(tmp_path: Path) -> None:
    case = make_case("llama", tmp_path)
    for model_type in ("convmixer", None, ["llama"]):
        assert find_groups(case.specs, {"model_type": model_type}, case.modules) == {}


@pytest.mark.parametrize(
    "mistake",
    [
        {"num_attention_heads": None},
        {"num_attention_heads": 0},
        {"num_attention_heads": "four"},
        {"num_attention_heads": 3},
        {"num_attention_heads": 5, "num_key_value_heads": 5},
        {"num_attention_heads": 4, "num_key_value_heads": 3},
        {"num_attention_heads": 4, "num_key_value_heads": -4},
    ],
)
def test_impossible_heads_are_refused_in_one_line(mistake: dict, tmp_path: Path) -> None:
    case = make_case("llama", tmp_path)
    with pytest.raises(IncompatibleSource, match=r"config\.json") as refusal:
        find_groups(case.specs, case.config | mistake, case.modules)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("shape", [(), (47, 16), (0, 16)])
def test_impossible_shapes_are_refused_in_one_line(shape: tuple[int, ...], tmp_path: Path) -> None:
    case = make_case("phi3", tmp_path)
    name = "layers.0.self_attn.qkv_proj.weight"
    with pytest.raises(IncompatibleSource, match="qkv_proj") as refusal:
        find_groups(case.specs | {name: TensorSpec("F32", shape)}, case.config, case.modules)
    assert "\n" not in str(refusal.value)
