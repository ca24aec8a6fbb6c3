"""The query loss of a routed network: its gradient against finite differences, and what it leaves alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from smatter.library.library import Library
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import leave_one_out
from smatter.route.descriptor import describe_sources, probe_statistics
from smatter.route.encode import encode
from smatter.route.experts import Experts
from smatter.route.probe import Probe, draw_probe
from smatter.route.router import Router
from smatter.settings.training import Imitation, RouterSettings, Tying
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.train.lessons import make_lesson
from smatter.train.objective import task_loss


class Lab:
    """A live library, a router with experts, a task."""

    def __init__(self, library: Library, suite: Suite, tying: Tying = "global") -> None:
        self.live = LiveMixture(library)
        probe: Probe = draw_probe(suite, split="router")
        raw = describe_sources(self.live, probe, library.names)
        self.descriptors = (raw - raw[0]).float()
        moments = torch.stack([torch.zeros(3), self.descriptors.flatten(0, 1).std(dim=0)])
        generator = torch.Generator().manual_seed(0)
        settings = RouterSettings(tying=tying, width=8, n_experts=2)
        statistics = probe_statistics(self.live, probe)
        self.router = Router(settings, statistics, len(library.partition.modules), moments, generator)
        self.experts = Experts(self.live.layout(RouterSettings()), 2, generator)
        with torch.no_grad():
            self.experts.values.normal_(std=0.02, generator=generator)
        self.gates = torch.rand(2, self.experts.sizes.numel(), generator=generator)
        self.episode = Sampler(suite, SamplerSettings(split="router", n_way=(3, 3), n_shot=(3, 3), n_query=4)).episode(
            0
        )

    def loss(self, with_evidence: bool = True) -> tuple[float, Tensor]:
        names = self.live.library.names
        lesson = make_lesson(self.live, self.episode, tuple(range(len(names))), with_evidence)
        found = task_loss(
            self.live,
            self.router,
            experts=self.experts,
            gates=self.gates,
            lesson=lesson,
            descriptors=self.descriptors,
            imitation=Imitation(),
        )
        return found.value, found.slope


@pytest.mark.parametrize("tying", ["global", "tied", "per-module"])
def test_the_gradient_is_that_of_finite_differences(tiny_library: Library, tiny_suite: Suite, tying: Tying) -> None:
    lab = Lab(tiny_library, tiny_suite, tying)
    parameters = [*lab.router.parameters(), lab.experts.values]
    _, slope = lab.loss()
    gradients = torch.autograd.grad(slope, parameters, allow_unused=True)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        directions = [
            torch.randn(p.shape, generator=generator) * (0.02 + p.detach().std(correction=0)) for p in parameters
        ]
        expected = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True) if g is not None)
        values = []
        for step in (0.02, -0.02):
            with torch.no_grad():
                for parameter, direction in zip(parameters, directions, strict=True):
                    parameter.add_(step * direction)
                values.append(lab.loss()[0])
                for parameter, direction in zip(parameters, directions, strict=True):
                    parameter.sub_(step * direction)
        assert (values[0] - values[1]) / 0.04 == pytest.approx(expected, rel=0.1, abs=2e-3)


def test_sources_stay_as_they_are_and_no_gradient_is_kept(tiny_library: Library, tiny_suite: Suite) -> None:
    before = {path: path.read_bytes() for path in sorted(Path(tiny_library.folder).rglob("*.safetensors"))}
    lab = Lab(tiny_library, tiny_suite)
    lab.loss()[1].backward()
    assert {path: path.read_bytes() for path in sorted(Path(tiny_library.folder).rglob("*.safetensors"))} == before
    assert all(parameter.grad is None for parameter in lab.live.parameters.values())
    assert all(p.grad is not None and bool(p.grad.any()) for p in lab.router.choose.parameters())


def test_the_support_set_passes_the_base_once(tiny_library: Library, tiny_suite: Suite) -> None:
    lab = Lab(tiny_library, tiny_suite)
    objective, before = leave_one_out(lab.live, prepared_support(lab.live, lab.episode)), lab.live.n_forwards
    alone = encode(lab.live, objective)
    assert alone.losses is None and lab.live.n_forwards == before + 1
    told = encode(lab.live, objective, tiny_library.names)  # the base's evidence gives its features
    assert told.losses is not None and told.losses.shape == (3, 9) and lab.live.n_forwards == before + 1 + 3
    assert alone.features is not None and told.features is not None and torch.equal(alone.features, told.features)


def test_units_cover_every_parameter_once(tiny_library: Library, tiny_suite: Suite) -> None:
    lab = Lab(tiny_library, tiny_suite)
    unit_of = lab.live.layout(RouterSettings()).unit_of
    assert len(unit_of) == sum(parameter.numel() for parameter in lab.live.parameters.values())
    assert int(unit_of.min()) == 0 and np.array_equal(np.unique(unit_of.numpy()), np.arange(int(unit_of.max()) + 1))
    for where in lab.live.numbering.modules.values():  # no unit belongs to two modules
        own = set(unit_of[where].tolist())
        rest = torch.cat([unit_of[: where.start], unit_of[where.stop :]])
        assert not own & set(rest.tolist())
