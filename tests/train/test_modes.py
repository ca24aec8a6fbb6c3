"""The three modes of a router: what they cost, what they keep, and what does not matter to them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import smatter
from smatter.adaptation.modes import Mode, ModeSettings, Tuned, route_task
from smatter.errors import InvalidRouter, InvalidSettings
from smatter.library.library import Library
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.route.probe import draw_probe
from smatter.settings import RouterSettings, Tying
from smatter.route.store import TABLE, TrainedRouter, read_router, write_router
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support
from smatter.settings import MetaSettings
from smatter.train.trainee import Trainee

MODES: tuple[Mode, ...] = ("no-adapt", "gradient-free", "gradient-based")


def make(library: Library, suite: Suite, tying: Tying = "global", n_experts: int = 2) -> TrainedRouter:
    settings = MetaSettings(RouterSettings(width=8, n_experts=n_experts, tying=tying), expert_share=0.3)
    trainee = Trainee(LiveMixture(library), draw_probe(suite), settings)
    if trainee.experts:
        with torch.no_grad():
            trainee.experts.values.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
    return trainee.finish({})


@pytest.fixture(scope="module")
def trained(tiny_library: Library, tiny_suite: Suite) -> TrainedRouter:
    return make(tiny_library, tiny_suite)


@pytest.fixture
def live(tiny_library: Library) -> LiveMixture:
    return LiveMixture(tiny_library)


def task(live: LiveMixture, suite: Suite, shots: int = 3, ways: int = 3) -> Support:
    settings = SamplerSettings("validation", n_way=(ways, ways), n_shot=(shots, shots), n_query=4)
    return prepared_support(live, Sampler(suite, settings).episode(1))


def test_without_evidence_one_pass_of_the_base_is_enough(live, tiny_suite: Suite, trained: TrainedRouter) -> None:
    before = live.n_forwards
    routed = route_task(live, task(live, tiny_suite), trained, ModeSettings(evidence=False))
    assert live.n_forwards == before + 1 and live.n_backwards == 0
    assert routed.evidence is None and sum(routed.likeness.values()) == pytest.approx(1)
    before = live.n_forwards
    assert route_task(live, task(live, tiny_suite), trained, ModeSettings()).evidence
    assert live.n_forwards <= before + len(live.library.names) + 2


@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_refinement_takes_a_gradient_for_each_step(
    live: LiveMixture, tiny_suite: Suite, trained: TrainedRouter, n_steps: int
) -> None:
    support = task(live, tiny_suite)
    settings = ModeSettings("gradient-free", n_steps=n_steps, pull=0.0)
    routed = route_task(live, support, trained, settings)
    assert live.n_backwards <= n_steps and len(routed.losses) <= n_steps + 1
    assert routed.losses[-1] == pytest.approx(live.loss(live.rows(support)), abs=1e-5)


@pytest.mark.parametrize("tune", ["experts", "mask", "modules"])
def test_gradient_steps_lower_the_loss(live, tiny_suite: Suite, trained: TrainedRouter, tune: Tuned) -> None:
    settings = ModeSettings("gradient-based", tune=tune, n_steps=4)
    support = task(live, tiny_suite)
    routed = route_task(live, support, trained, settings)
    assert routed.losses[-1] < routed.losses[0] and routed.residual
    assert live.loss(live.rows(support)) == pytest.approx(routed.losses[-1], rel=1e-4)
    plain = route_task(live, support, trained, ModeSettings())
    assert live.loss(live.rows(support)) == pytest.approx(routed.losses[0], rel=1e-4)
    assert plain.mixture == routed.mixture and plain.residual
    if tune != "modules":
        assert set(routed.residual.tensors) <= set(trained_tensors(live, trained))


def trained_tensors(live: LiveMixture, trained: TrainedRouter) -> set[str]:
    from smatter.live.flat import FlatView

    flat = FlatView(live)
    assert trained.experts
    return set(flat.residual(trained.experts.all_values(trained.layout(flat))).tensors)


@pytest.mark.parametrize("tying", ["global", "tied", "per-module"])
def test_frank_wolfe_steps_lower_the_loss_within_the_limit(
    tiny_library: Library, tiny_suite: Suite, live, tying: Tying
) -> None:
    router = make(tiny_library, tiny_suite, tying)
    settings = ModeSettings("gradient-free", evidence=False, n_steps=3, max_sources=2)
    told: list[int] = []
    routed = route_task(live, task(live, tiny_suite), router, settings, told.append)
    assert routed.losses[-1] <= routed.losses[0] and len(routed.path) == len(routed.losses)
    assert live.loss(live.rows(task(live, tiny_suite))) == pytest.approx(routed.losses[-1], rel=1e-4)
    assert len(routed.mixture.active_sources) <= 2 and sum(told) <= settings.n_units(3)
    assert len(routed.mixture.rows) == (1 if tying == "global" else len(live.library.partition.modules))
    assert routed.path[0] != routed.path[-1]


@pytest.mark.parametrize("mode", MODES)
def test_order_of_examples_and_classes_changes_nothing(
    tiny_library: Library, tiny_suite: Suite, trained: TrainedRouter, mode: Mode
) -> None:
    support = task(LiveMixture(tiny_library), tiny_suite, shots=2)
    assert isinstance(support.inputs, torch.Tensor)
    order = torch.randperm(len(support), generator=torch.Generator().manual_seed(0))
    labels = [("z", "x", "y")[support.labels[index]] for index in order.tolist()]
    moved = Support.of(support.inputs[order], labels)
    one, other = (smatter.adapt(tiny_library, each, trained, ModeSettings(mode)) for each in (support, moved))
    assert one.mixture == other.mixture and one.loss == other.loss


@pytest.mark.parametrize("tying", ["global", "per-module"])
def test_diagnostics_are_those_of_the_model(tiny_library: Library, tiny_suite: Suite, tying: Tying) -> None:
    support = task(LiveMixture(tiny_library), tiny_suite)
    adapted = smatter.adapt(tiny_library, support, make(tiny_library, tiny_suite, tying), ModeSettings(evidence=False))
    found = adapted.diagnostics
    rows = torch.tensor(adapted.mixture.rows)
    assert found.entropy == pytest.approx(float(torch.special.entr(rows).sum(dim=1).mean()))
    tensors = tiny_library.compose(adapted.mixture).tensors()
    matrices = [name for name, tensor in tensors.items() if tensor.ndim > 1]
    away = {
        source: sum(float((tensors[name] - tiny_library.tensor(source, name)).square().sum()) for name in matrices)
        for source in tiny_library.names
    }
    assert found.nearest == min(away, key=away.__getitem__)
    ratio = [found.distances[name] / away[name] ** 0.5 for name in tiny_library.names]
    assert ratio == pytest.approx([ratio[0]] * 3, rel=1e-3)
    assert found.unsteadiness is not None and 0 < found.unsteadiness < 1
    assert found.corrected and all(0 < share <= 1 for share in found.corrected.values())


def test_a_limit_holds_where_modules_disagree(tiny_library: Library, tiny_suite: Suite, live) -> None:
    settings = MetaSettings(RouterSettings(width=8, tying="per-module", weight_map="sparsemax"))
    router = Trainee(LiveMixture(tiny_library), draw_probe(tiny_suite), settings).finish({})
    routed = route_task(live, task(live, tiny_suite), router, ModeSettings(evidence=False, max_sources=1))
    assert len(routed.mixture.active_sources) == 1


def test_tensors_of_other_kinds_are_the_same_task(tiny_library: Library, tiny_suite: Suite) -> None:
    support = task(LiveMixture(tiny_library), tiny_suite)
    assert isinstance(support.inputs, torch.Tensor)
    half = replace(support, inputs=support.inputs.bfloat16())
    again = replace(support, inputs=half.inputs.float().requires_grad_())  # type: ignore[union-attr]
    assert smatter.adapt(tiny_library, half).mixture == smatter.adapt(tiny_library, again).mixture


def test_one_shot_goes_by_the_router_alone_and_says_so(live, tiny_suite: Suite, trained: TrainedRouter) -> None:
    support = task(live, tiny_suite, shots=1, ways=4)
    routed = route_task(live, support, trained, ModeSettings("gradient-free"))
    assert routed.losses == () and "one example per class" in routed.notes[0] and routed.spread == ()
    assert routed.mixture == route_task(live, support, trained, ModeSettings()).mixture


def test_results_are_found_again_by_contents(
    tiny_library: Library, tiny_suite: Suite, trained: TrainedRouter, tmp_path: Path, monkeypatch
) -> None:
    write_router(tmp_path / "router", trained)
    router = read_router(tmp_path / "router")
    support = task(LiveMixture(tiny_library), tiny_suite)
    settings = ModeSettings("gradient-free")
    first = smatter.adapt(tiny_library, support, router, settings, cache=tmp_path / "cache")
    passes: list[int] = []
    renamed = replace(support, class_names=tuple(f"my {name}" for name in support.class_names))
    again = smatter.adapt(tiny_library, renamed, router, settings, passes.append, cache=tmp_path / "cache")
    assert passes == [] and again.mixture == first.mixture and again.loss == first.loss
    assert first.routed and again.routed
    assert replace(first.routed, residual=None) == replace(again.routed, residual=None)
    assert again.class_names[0].startswith("my ")
    other = replace(settings, n_steps=1)
    smatter.adapt(tiny_library, support, router, other, passes.append, cache=tmp_path / "cache")
    assert passes
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(file.read_bytes()[:20])
    damaged = smatter.adapt(tiny_library, support, router, settings, cache=tmp_path / "cache")
    assert damaged.mixture == first.mixture
    (tmp_path / "cache" / "mine.safetensors").touch()
    monkeypatch.setattr("smatter.adaptation.cache.MAX_BYTES", 1)
    smatter.adapt(tiny_library, support, router, ModeSettings(), cache=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mine.safetensors"]


def test_what_must_not_be_found_again_is_not_kept(
    tiny_library: Library, tiny_suite: Suite, trained: TrainedRouter, tmp_path: Path
) -> None:
    support, cache = task(LiveMixture(tiny_library), tiny_suite), tmp_path / "cache"
    smatter.adapt(tiny_library, support, trained, cache=cache)  # not on disk, so nothing tells it from others
    write_router(tmp_path / "router", trained)
    router = read_router(tmp_path / "router")
    smatter.adapt(tiny_library, support, router, ModeSettings(epsilon=1.0), cache=cache)
    assert not cache.exists()
    table = (tmp_path / "router" / TABLE).read_text()
    (tmp_path / "router" / TABLE).write_text(table.replace('"max_sources": null', '"max_sources": 1'))
    assert read_router(tmp_path / "router").digest != router.digest


def test_what_cannot_be_is_refused(tiny_library: Library, tiny_suite: Suite, trained: TrainedRouter) -> None:
    support = task(LiveMixture(tiny_library), tiny_suite)
    with pytest.raises(InvalidSettings, match="nothing but evidence"):
        smatter.adapt(tiny_library, support, None, ModeSettings(evidence=False))
    with pytest.raises(InvalidSettings, match="no experts"):
        smatter.adapt(tiny_library, support, None, ModeSettings("gradient-based"))
    with pytest.raises(InvalidSettings, match="does not ask a router"):
        smatter.adapt(tiny_library, support, trained, smatter.SolverSettings())
    with pytest.raises(InvalidSettings, match="unknown mode"):
        ModeSettings("fast")  # type: ignore[arg-type]
    with pytest.raises(InvalidRouter, match="another base"):
        smatter.adapt(tiny_library, support, replace(trained, base="0" * 64))


def test_private_weights_vary_and_need_a_router(live, tiny_suite: Suite, trained: TrainedRouter) -> None:
    support = task(live, tiny_suite)
    settings = ModeSettings(epsilon=1.0)
    one, other = (route_task(live, support, trained, settings) for _ in range(2))
    assert one.path != other.path and sum(one.path[0]) == pytest.approx(1)
    assert one.residual is None and one.evidence is None and "private" in one.notes[0]
    calm = route_task(live, support, trained, replace(settings, epsilon=1e6))
    again = route_task(live, support, trained, replace(settings, epsilon=1e6))
    assert calm.path[0] == pytest.approx(again.path[0], abs=0.02)
    for wrong in ({"epsilon": 0.0}, {"epsilon": 1.0, "delta": 2.0}, {"epsilon": 1.0, "mode": "gradient-free"}):
        with pytest.raises(InvalidSettings):
            ModeSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="need a router"):
        route_task(live, support, None, settings)


def test_a_source_that_gives_no_number_gets_no_weight(
    live, tiny_suite: Suite, trained: TrainedRouter, monkeypatch
) -> None:
    import smatter.route.encode as routing

    original = routing.source_losses

    def broken(*arguments, **more) -> torch.Tensor:
        losses = original(*arguments, **more)
        losses[1] = torch.nan
        return losses

    monkeypatch.setattr(routing, "source_losses", broken)
    routed = route_task(live, task(live, tiny_suite), trained, ModeSettings())
    assert live.library.names[1] not in routed.mixture.sources and len(routed.mixture.sources) == 2
