"""One numbering: every parameter has one unit, whoever asks, and what a router opens a shared runtime serves."""

import numpy as np
import pytest
import torch
from small_runtimes import FAMILIES, make_library
from torch.testing import assert_close

from smatter.compose.experts import ExpertMix
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.devices.active import active_fractions
from smatter.library.banks import Bank
from smatter.live.mixture import LiveMixture
from smatter.route.experts import Experts
from smatter.runtime.shared import SharedRuntime
from smatter.settings.training import RouterSettings
from smatter.units.numbering import REST, Numbering


@pytest.fixture(scope="module", params=FAMILIES)
def live(request, tmp_path_factory) -> LiveMixture:
    return LiveMixture(make_library(request.param, tmp_path_factory.mktemp(request.param)))


def test_every_parameter_has_one_unit_and_units_follow_each_other(live: LiveMixture) -> None:
    numbering = live.numbering
    assert numbering.n_parameters == sum(parameter.numel() for parameter in live.parameters.values())
    assert np.array_equal(np.unique(numbering.unit_of), np.arange(numbering.n_units))
    first = 0
    for module, where in numbering.modules.items():
        units = numbering.units[module]
        assert units.first == first and len(units.groups) <= units.n_units <= len(units.groups) + 1
        own = numbering.unit_of[where]
        assert set(own.tolist()) == set(range(first, first + units.n_units))
        for number, group in enumerate(units.groups, first):
            parts = [part for part in group.slices if part.tensor in numbering.tensors]
            for part in parts:
                whole = numbering.unit_of[numbering.tensors[part.tensor]].reshape(numbering.specs[part.tensor].shape)
                assert bool((whole[part.index] == number).all())
            size = sum(np.empty(numbering.specs[part.tensor].shape)[part.index].size for part in parts)
            assert int((own == number).sum()) == size  # nothing else is of this unit
        first += units.n_units


def test_a_vector_becomes_a_residual_and_fractions_that_agree_with_it(live: LiveMixture) -> None:
    numbering, generator = live.numbering, torch.Generator().manual_seed(0)
    is_open = torch.rand(numbering.n_units, generator=generator) < 0.4
    vector = torch.randn(numbering.n_parameters, generator=generator) * is_open[numbering.unit_of]
    residual = numbering.compact(vector)
    assert residual is not None
    back = torch.cat([torch.from_numpy(_whole(residual, name, live)).flatten() for name in numbering.tensors])
    assert torch.equal(back, vector)
    found = numbering.active(residual)
    for module, units in numbering.units.items():
        n_groups = len(units.groups)
        own = is_open[units.first : units.first + units.n_units].tolist()
        n_open = sum(own[:n_groups])
        assert found.get(module, 0.0) == (n_open / n_groups if n_groups else 0.0)
        assert found.get(module + REST, 0.0) == (own[n_groups] if units.n_units > n_groups else 0.0)
    assert active_fractions(live.library, residual) == found and active_fractions(live.library, None) == {}


def _whole(residual: Residual, name: str, live: LiveMixture) -> np.ndarray:
    shape = live.specs[name].shape
    return residual.in_full(name, shape) if name in residual.tensors else np.zeros(shape, np.float32)


def test_experts_of_a_router_are_gates_of_a_shared_runtime(live: LiveMixture) -> None:
    """The same task merged, and as gates on the one delta that all tasks share: the second term of the equation."""
    generator = torch.Generator().manual_seed(0)
    layout = live.layout(RouterSettings())
    experts = Experts(layout, 3, generator)
    base = live.library.manifest.base
    runtime = SharedRuntime(live.library, {"base": Mixture.of({base: 1.0})})
    places = runtime.bases["base"].places
    served = torch.cat([torch.full((live.specs[name].n_elements,), name in places) for name in live.numbering.tensors])
    with torch.no_grad():
        experts.values.normal_(std=0.05, generator=generator)
        experts.values.mul_(served)  # embeddings of tokens are served by no runtime yet
    values, masks = experts.fixed(0.5)
    library, names = live.library, tuple(live.numbering.tensors)
    bank = Bank(
        values,
        masks,
        "groups",
        8,
        base=library.manifest.digests[base],
        partition=library.partition.digest,
        tensors=names,
    )
    library.lend(bank)
    placed = library.bank(bank.digest)
    delta = live.numbering.compact(placed.values)
    inputs = live.network.random_inputs(4, None if live.network.takes_images else 7)
    runtime = SharedRuntime(live.library, {"base": Mixture.of({base: 1.0})}, shared=delta)
    for alpha in ((1.0, 0.0, 0.0), (0.2, 0.5, 0.3), (0.0, 0.0, 0.0)):
        mix = ExpertMix(bank.digest, alpha)
        opened, units = bank.gates(mix).tolist(), live.numbering.units
        gates = {module: opened[own.first : own.first + own.n_units] for module, own in units.items()}
        runtime.open("task", {module: own for module, own in gates.items() if module in runtime.numbering.units})
        live.compose(library.recipe(Mixture.of({base: 1.0}), experts=mix))
        assert_close(runtime.features(inputs, ["task"] * 4), live.features(inputs), rtol=2e-4, atol=2e-5)


def test_modules_that_are_not_used_have_no_units(live: LiveMixture) -> None:
    library, numbering = live.library, live.numbering
    unused = next(module for module in reversed(numbering.modules))
    used = [name for name in numbering.tensors if library.partition.module_of(name) != unused]
    fewer = Numbering.of(live.specs, library.base.config, library.partition, used)
    assert list(fewer.tensors) == used and unused not in fewer.units
    assert fewer.n_units == numbering.n_units - numbering.units[unused].n_units
    assert np.array_equal(
        fewer.unit_of, numbering.unit_of[: fewer.n_parameters]
    )  # the last one's, so others keep theirs
