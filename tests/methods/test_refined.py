"""A router, as it is and refined: what that costs, what it keeps, and what does not matter to it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import smatter
from smatter.adapted import Adapted
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.errors import InvalidRouter, InvalidSettings
from smatter.library.library import Library
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import LeaveOneOut
from smatter.live.task import Task
from smatter.methods import Fit, Passes
from smatter.methods.private import PrivateSettings, private
from smatter.methods.refined import RefinedSettings, Tuned, refined
from smatter.methods.router import RoutedSettings, router
from smatter.route.probe import draw_probe
from smatter.route.store import TABLE, TrainedRouter, read_router, write_router
from smatter.settings.training import MetaSettings, RouterSettings, Tying
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support
from smatter.train.trainee import Trainee

TUNED: tuple[Tuned, ...] = ("weights", "experts", "mask", "modules")


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


def support_of(live: LiveMixture, suite: Suite, shots: int = 3, ways: int = 3) -> Support:
    settings = SamplerSettings("validation", n_way=(ways, ways), n_shot=(shots, shots), n_query=4)
    return prepared_support(live, Sampler(suite, settings).episode(1))


def task_of(live: LiveMixture, suite: Suite, shots: int = 3, ways: int = 3) -> Task:
    return Task.of(live, support_of(live, suite, shots, ways))


def loss_of(live: LiveMixture, task: Task, fit: Fit) -> float:
    live.compose(fit.recipe(live.library))
    return live.loss(task.objective)


def test_a_router_takes_no_more_passes_than_it_needs(live, tiny_suite: Suite, trained: TrainedRouter) -> None:
    alone = router(live, task_of(live, tiny_suite), RoutedSettings(trained, evidence=False))
    assert alone.passes == Passes(forwards=1)
    assert alone.evidence is None and sum(alone.likeness.values()) == pytest.approx(1)
    told = router(live, task_of(live, tiny_suite), RoutedSettings(trained))
    n_opened = trained.router.settings.n_experts + 1  # the mixture with each expert, and with none
    assert told.evidence and told.passes == Passes(forwards=len(live.library.names) + n_opened)
    with_views = router(live, task_of(live, tiny_suite, shots=1), RoutedSettings(trained))
    assert with_views.passes == Passes(forwards=len(live.library.names) + 1 + n_opened)


@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_refinement_takes_a_gradient_for_each_step(
    live: LiveMixture, tiny_suite: Suite, trained: TrainedRouter, n_steps: int
) -> None:
    task = task_of(live, tiny_suite)
    fit = refined(live, task, RefinedSettings(trained, n_steps=n_steps, pull=0.0))
    assert fit.passes.backwards <= n_steps and len(fit.trace.losses) <= n_steps + 1
    assert fit.trace.losses[-1] == pytest.approx(loss_of(live, task, fit), abs=1e-5)


@pytest.mark.parametrize("tune", ["experts", "mask", "modules"])
def test_gradient_steps_lower_the_loss(live, tiny_suite: Suite, trained: TrainedRouter, tune: Tuned) -> None:
    task = task_of(live, tiny_suite)
    fit = refined(live, task, RefinedSettings(trained, tune=tune, n_steps=4))
    losses = fit.trace.losses
    assert losses[-1] < losses[0] and (fit.residual is not None) == (tune == "modules")
    assert loss_of(live, task, fit) == pytest.approx(losses[-1], rel=1e-4)
    plain = router(live, task, RoutedSettings(trained))
    assert loss_of(live, task, plain) == pytest.approx(losses[0], rel=1e-4)
    assert plain.mixture == fit.mixture and plain.experts and fit.experts
    assert (fit.experts.opened is not None) == (tune == "mask")
    if tune == "modules":
        assert fit.experts == plain.experts
    elif tune == "experts":
        assert fit.experts.alpha != plain.experts.alpha


@pytest.mark.parametrize("tying", ["global", "tied", "per-module"])
def test_frank_wolfe_steps_lower_the_loss_within_the_limit(
    tiny_library: Library, tiny_suite: Suite, live, tying: Tying
) -> None:
    settings = RefinedSettings(make(tiny_library, tiny_suite, tying), evidence=False, n_steps=3, max_sources=2)
    told: list[float] = []
    task = task_of(live, tiny_suite)
    fit = refined(live, task, settings, lambda share, _="": told.append(share))
    losses, path = fit.trace.losses, fit.trace.path
    assert losses[-1] <= losses[0] and len(path) == len(losses)
    assert loss_of(live, task, fit) == pytest.approx(losses[-1], rel=1e-4)
    assert len(fit.mixture.active_sources) <= 2 and sum(told) <= 1 + 1e-9
    assert len(fit.mixture.rows) == (1 if tying == "global" else len(live.library.partition.modules))
    assert path[0] != path[-1]


@pytest.mark.parametrize("tune", [None, *TUNED])
def test_order_of_examples_and_classes_changes_nothing(
    tiny_library: Library, tiny_suite: Suite, trained: TrainedRouter, tune: Tuned | None
) -> None:
    support = support_of(LiveMixture(tiny_library), tiny_suite, shots=2)
    assert isinstance(support.inputs, torch.Tensor)
    order = torch.randperm(len(support), generator=torch.Generator().manual_seed(0))
    labels = [("z", "x", "y")[support.labels[index]] for index in order.tolist()]
    moved = Support.of(support.inputs[order], labels)
    method, settings = ("router", RoutedSettings()) if tune is None else ("refined", RefinedSettings(tune=tune))
    one, other = (smatter.adapt(tiny_library, each, method, settings, router=trained) for each in (support, moved))
    assert one.mixture == other.mixture and one.loss == other.loss
    assert one.held_out_accuracy == other.held_out_accuracy
    columns = [other.class_names.index({"0": "z", "1": "x", "2": "y"}[name]) for name in one.class_names]
    assert torch.equal(
        one.predict(support.inputs).probabilities, other.predict(support.inputs).probabilities[:, columns]
    )


@pytest.mark.parametrize("tying", ["global", "per-module"])
def test_diagnostics_are_those_of_the_model(tiny_library: Library, tiny_suite: Suite, tying: Tying) -> None:
    support, trained = support_of(LiveMixture(tiny_library), tiny_suite), make(tiny_library, tiny_suite, tying)
    adapted = smatter.adapt(tiny_library, support, "router", RoutedSettings(evidence=False), router=trained)
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
    trained = Trainee(LiveMixture(tiny_library), draw_probe(tiny_suite), settings).finish({})
    fit = router(live, task_of(live, tiny_suite), RoutedSettings(trained, evidence=False, max_sources=1))
    assert len(fit.mixture.active_sources) == 1


def test_tensors_of_other_kinds_are_the_same_task(tiny_library: Library, tiny_suite: Suite) -> None:
    support = support_of(LiveMixture(tiny_library), tiny_suite)
    assert isinstance(support.inputs, torch.Tensor)
    half = replace(support, inputs=support.inputs.bfloat16())
    again = replace(support, inputs=half.inputs.float().requires_grad_())  # type: ignore[union-attr]
    assert smatter.adapt(tiny_library, half).mixture == smatter.adapt(tiny_library, again).mixture


def test_one_shot_goes_by_the_router_alone_and_says_so(live, tiny_suite: Suite, trained: TrainedRouter) -> None:
    task = task_of(live, tiny_suite, shots=1, ways=4)
    fit = refined(live, task, RefinedSettings(trained))
    assert fit.trace.losses == () and "one example per class" in fit.notes[0] and fit.spread() == ()
    plain = router(live, task, RoutedSettings(trained))
    assert fit.mixture == plain.mixture and "altered views" in plain.notes[0]


def test_results_are_found_again_by_contents(
    tiny_library: Library, tiny_suite: Suite, trained: TrainedRouter, tmp_path: Path, monkeypatch
) -> None:
    write_router(tmp_path / "router", trained)
    kept = read_router(tmp_path / "router")
    support = support_of(LiveMixture(tiny_library), tiny_suite)
    settings = RefinedSettings()
    cache, told = tmp_path / "cache", list[float]()

    def adapted(support: Support, settings: RefinedSettings) -> Adapted:
        told.clear()
        return smatter.adapt(
            tiny_library, support, "refined", settings, router=kept, cache=cache,
            progress=lambda share, _="": told.append(share),
        )  # fmt: skip

    first = adapted(support, settings)
    assert told
    renamed = replace(support, class_names=tuple(f"my {name}" for name in support.class_names))
    again = adapted(renamed, settings)
    assert told == [] and again.mixture == first.mixture and again.loss == first.loss
    assert replace(first.fit, residual=None) == replace(again.fit, residual=None)
    assert again.class_names[0].startswith("my ")
    adapted(support, replace(settings, n_steps=1))
    assert told
    for file in cache.glob("*.json"):  # a number that was changed is as bad as a file cut short
        file.write_text(re.sub(r'"seconds":[^,]+', '"seconds":1.0', file.read_text()))
    changed = adapted(support, settings)
    assert changed.mixture == first.mixture and told
    for file in cache.iterdir():
        file.write_bytes(file.read_bytes()[:20])
    damaged = adapted(support, settings)
    assert damaged.mixture == first.mixture and told
    (cache / "mine.safetensors").touch()
    monkeypatch.setattr("smatter.cache.MAX_BYTES", 1)
    smatter.adapt(tiny_library, support, router=kept, cache=cache)
    assert [path.name for path in cache.iterdir()] == ["mine.safetensors"]


def test_methods_and_settings_tell_results_apart(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    support = support_of(LiveMixture(tiny_library), tiny_suite)
    for name in ("average", "best_source", "evidence", "solver", "greedy_soup", "task_arithmetic"):
        first, again = (smatter.adapt(tiny_library, support, name, cache=tmp_path / "cache") for _ in range(2))
        assert replace(first.fit, residual=None) == replace(again.fit, residual=None)
    assert len(list((tmp_path / "cache").iterdir())) == 12


def test_what_must_not_be_found_again_is_not_kept(
    tiny_library: Library, tiny_suite: Suite, trained: TrainedRouter, tmp_path: Path
) -> None:
    support, cache = support_of(LiveMixture(tiny_library), tiny_suite), tmp_path / "cache"
    smatter.adapt(tiny_library, support, router=trained, cache=cache)  # not on disk, so nothing tells it from others
    write_router(tmp_path / "router", trained)
    router = read_router(tmp_path / "router")
    smatter.adapt(tiny_library, support, "private", router=router, cache=cache)
    assert not cache.exists()
    table = (tmp_path / "router" / TABLE).read_text()
    (tmp_path / "router" / TABLE).write_text(table.replace('"max_sources": null', '"max_sources": 1'))
    assert read_router(tmp_path / "router").digest != router.digest


def test_what_cannot_be_is_refused(tiny_library: Library, tiny_suite: Suite, trained: TrainedRouter) -> None:
    support = support_of(LiveMixture(tiny_library), tiny_suite)
    with pytest.raises(InvalidSettings, match="nothing but evidence"):
        smatter.adapt(tiny_library, support, "refined", RefinedSettings(evidence=False))
    with pytest.raises(InvalidSettings, match="no experts"):
        smatter.adapt(tiny_library, support, "refined", RefinedSettings(tune="experts"))
    for method in ("router", "private"):
        with pytest.raises(InvalidSettings, match="no router to ask"):
            smatter.adapt(tiny_library, support, method)
    with pytest.raises(InvalidSettings, match="does not ask a router"):
        smatter.adapt(tiny_library, support, "solver", router=trained)
    with pytest.raises(InvalidSettings, match="takes SolverSettings, not RefinedSettings"):
        smatter.adapt(tiny_library, support, "solver", RefinedSettings())
    with pytest.raises(InvalidSettings, match="unknown method 'fast': use one of average"):
        smatter.adapt(tiny_library, support, "fast")
    with pytest.raises(InvalidSettings, match="unknown tune"):
        RefinedSettings(tune="everything")  # type: ignore[arg-type]
    with pytest.raises(InvalidRouter, match="another base"):
        smatter.adapt(tiny_library, support, router=replace(trained, base="0" * 64))
    with pytest.raises(InvalidRouter, match="another base"):
        smatter.adapt(tiny_library, support, "router", RoutedSettings(replace(trained, base="0" * 64)))
    with pytest.raises(InvalidSettings, match="takes RoutedSettings, not SolverSettings"):
        smatter.adapt(tiny_library, support, "router", smatter.SolverSettings(), router=trained)
    with pytest.raises(InvalidSettings, match="takes EvidenceSettings, not dict"):
        smatter.adapt(tiny_library, support, "evidence", {"max_sources": 2}, cache="nowhere")


def test_private_weights_vary_and_need_a_router(live, tiny_suite: Suite, trained: TrainedRouter) -> None:
    task = task_of(live, tiny_suite)
    one, other = (private(live, task, PrivateSettings(trained)).trace.path for _ in range(2))
    assert one != other and sum(one[0]) == pytest.approx(1)
    fit = private(live, task, PrivateSettings(trained))
    assert fit.is_private and fit.residual is None and fit.evidence is None and "private" in fit.notes[0]
    calm, again = (private(live, task, PrivateSettings(trained, 1e6)).trace.path for _ in range(2))
    assert calm[0] == pytest.approx(again[0], abs=0.02)
    for wrong in ({"epsilon": 0.0}, {"delta": 2.0}, {"max_sources": 0}):
        with pytest.raises(InvalidSettings):
            PrivateSettings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="no router to ask"):
        private(live, task)


def test_a_source_that_gives_no_number_gets_no_weight(
    live, tiny_suite: Suite, trained: TrainedRouter, monkeypatch
) -> None:
    task, names = task_of(live, tiny_suite), live.library.names
    compose, losses, present = live.compose, LeaveOneOut.losses, list[str]()

    def composed(mixture: Mixture, residual: Residual | None = None) -> None:
        present.append((mixture.mixture if isinstance(mixture, Recipe) else mixture).sources[0])
        compose(mixture, residual)

    def spoilt(self: LeaveOneOut, read: torch.Tensor) -> torch.Tensor:
        return losses(self, read) * (torch.nan if present[-1] == names[1] else 1)

    monkeypatch.setattr(live, "compose", composed)
    monkeypatch.setattr(LeaveOneOut, "losses", spoilt)
    fit = router(live, task, RoutedSettings(trained))
    assert names[1] not in fit.mixture.sources and len(fit.mixture.sources) == 2
    monkeypatch.undo()
    told = Adapted(live, task, fit).to_dict()
    assert told["losses"][names[1]] is None and "NaN" not in json.dumps(told)
