"""The solver on networks: what it never does, what it finds, and what its recipe rebuilds."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_libraries import pixels_support, random_library, texts_support, tiny_bert
from toy_suite import DOMAINS, add_noise_sources, draw_episode
from toy_suite import make_library as make_toy_library

from smatter.adapted import Adapted
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.library.edit import add_source, init_library
from smatter.library.export import export
from smatter.library.library import Library
from smatter.live.descent import keep_elements, keep_modules
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task, leave_one_out
from smatter.methods import Fit
from smatter.methods.solver import SolverSettings, solver
from smatter.pipeline import adapt
from smatter.records import Progress, silent
from smatter.tasks.support import Support

SETTINGS = {
    "weights": SolverSettings(),
    "per module": SolverSettings(per_module=True),
    "uniform": SolverSettings(start="uniform"),
    "two sources": SolverSettings(max_sources=2, start="uniform"),
    "elements": SolverSettings(n_steps=3, n_elements=30, n_residual_steps=4),
    "modules": SolverSettings(n_steps=3, n_modules=1, n_residual_steps=4),
    "per module, elements": SolverSettings(n_steps=3, per_module=True, n_elements=30, n_residual_steps=4),
}


def solve_network(
    library: Library, support: Support, settings: SolverSettings | None = None, progress: Progress = silent
) -> Fit:
    live = LiveMixture(library)
    return solver(live, Task.of(live, support), settings, progress)


def weights_of(solution: Fit) -> dict[str, float]:
    rows = solution.mixture.rows
    return {name: sum(row[k] for row in rows) / len(rows) for k, name in enumerate(solution.mixture.sources)}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_loss_never_rises_and_is_that_of_the_recipe(task, name: str) -> None:
    library, support = task
    solution = solve_network(library, support, replace(SETTINGS[name], tolerance=0.0, pull=0.0))
    assert all(later <= sooner for sooner, later in pairwise(solution.trace.losses))
    live = LiveMixture(library)
    live.compose(solution.mixture, solution.residual)
    assert live.loss(leave_one_out(live, support)) == pytest.approx(solution.trace.losses[-1], rel=1e-5)
    if name not in ("weights", "uniform", "two sources"):  # those of a good start may be the best already
        assert solution.trace.losses[-1] < solution.trace.losses[0]
    if name == "two sources":
        assert len(solution.mixture.sources) <= 2
    if "elements" in name:
        assert solution.residual is not None and 0 < solution.residual.n_nonzero <= 30
    if name == "modules":
        assert solution.residual is not None and len(solution.residual.active_modules(library.partition)) == 1


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_task_of_a_sources_domain_goes_to_that_source(toy, domain: str) -> None:
    solution = solve_network(toy.library, draw_episode(toy.domains, domain, 5).support)
    assert weights_of(solution)[domain] > 0.5


@pytest.mark.parametrize("topic", ["law", "food"])
def test_texts_of_a_topic_go_to_the_network_that_knows_it(topics: Library, topic: str) -> None:
    solution = solve_network(topics, texts_support(topic), SolverSettings(start="uniform"))
    assert weights_of(solution)[topic] > 0.5


def test_the_stronger_the_pull_the_nearer_the_evidence(task) -> None:
    library, support = task
    strict = SolverSettings(tolerance=0.0)
    pulled = [solve_network(library, support, replace(strict, pull=pull)) for pull in (1e6, 10.0, 0.0)]
    assert pulled[0].evidence
    rows = torch.tensor([[weights_of(each).get(name, 0.0) for name in library.names] for each in pulled])
    away = (rows - torch.tensor(pulled[0].evidence.weights)).norm(dim=1).tolist()
    assert away[0] == pytest.approx(0, abs=1e-4) and away == sorted(away) and away[1] < away[2]


def test_the_start_is_the_best_of_evidence_equal_weights_and_one_source(task) -> None:
    library, support = task
    live = LiveMixture(library)
    begun = solver(live, Task.of(live, support), SolverSettings(n_steps=0, pull=0.0))
    assert begun.evidence
    losses = list(begun.evidence.losses)
    for mixture in (begun.evidence.mixture, Mixture.of(dict.fromkeys(library.names, 1 / len(library.names)))):
        live.compose(mixture)
        losses.append(live.loss(Task.of(live, support).objective))
    assert begun.trace.losses[0] == pytest.approx(min(losses), rel=1e-5)


def test_order_of_examples_classes_and_sources_does_not_matter(vit_library: Library) -> None:
    support = pixels_support()
    settings = SolverSettings(n_steps=4, tolerance=0.0)
    expected = solve_network(vit_library, support, settings)
    order = torch.randperm(len(support), generator=torch.Generator().manual_seed(0))
    shuffled = Support.of(support.inputs[order], [("c", "a", "b")[support.labels[index]] for index in order])
    manifest = vit_library.manifest.model_copy(update={"sources": vit_library.manifest.sources[::-1]})
    for other in (
        solve_network(vit_library, shuffled, settings),
        solve_network(Library(vit_library.folder, manifest), support, settings),
    ):
        assert other.trace.losses == pytest.approx(expected.trace.losses, rel=1e-4)
        assert weights_of(other) == pytest.approx(weights_of(expected), abs=1e-3)


@pytest.mark.parametrize("name", ["weights", "per module", "elements", "modules"])
def test_a_recipe_rebuilds_the_network_bit_for_bit(task, name: str, tmp_path: Path) -> None:
    library, support = task
    adapted = adapt(library, support, "solver", SETTINGS[name])
    export(library, adapted.recipe, tmp_path / "out")
    out = load_file(tmp_path / "out" / "model.safetensors")
    live: LiveMixture = adapted._live
    for tensor, parameter in live.parameters.items():
        assert torch.equal(out[tensor], parameter.detach()), tensor


def test_unused_modules_follow_the_mean(vit_library: Library) -> None:
    solution = solve_network(vit_library, pixels_support(), SolverSettings(per_module=True))
    rows = dict(zip(solution.mixture.modules, torch.tensor(solution.mixture.rows).double(), strict=True))
    head = rows.pop("head")
    rows.pop("pooler", None)
    torch.testing.assert_close(head, torch.stack(list(rows.values())).mean(dim=0), atol=1e-6, rtol=0)


def test_of_twins_a_limit_keeps_one(vit_library: Library, tmp_path: Path) -> None:
    folder = vit_library.folder.parent
    library = init_library(tmp_path / "library", folder / "source-1", "z")
    for name in ("y", "x"):
        library, _ = add_source(library.folder, folder / "source-1", name)
    solution = solve_network(library, pixels_support(), SolverSettings(max_sources=1, n_steps=2))
    assert solution.mixture == Mixture.of({"x": 1.0})


def test_no_steps_give_the_start(vit_library: Library) -> None:
    solution = solve_network(vit_library, pixels_support(), SolverSettings(start="uniform", n_steps=0))
    assert len(solution.trace.losses) == 1 and solution.trace.endings[0].startswith("weights: out of steps")


def test_progress_is_told_shares_of_the_whole(vit_library: Library) -> None:
    told: list[float] = []
    solve_network(vit_library, pixels_support(), SETTINGS["elements"], lambda share, _="": told.append(share))
    assert len(told) > 3 and 0.3 < sum(told) <= 1 + 1e-9


def test_half_precision_sources_are_solved_too(tmp_path: Path) -> None:
    library = random_library(tmp_path, tiny_bert(), dtype=torch.bfloat16)
    solution = solve_network(library, texts_support("law"), SETTINGS["elements"])
    assert solution.trace.losses[-1] < solution.trace.losses[0]
    export(library, library.recipe(solution.mixture, solution.residual), tmp_path / "out")
    assert {t.dtype for t in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}


@pytest.mark.parametrize("kind", ["elements", "modules"])
def test_projections_are_the_nearest_sparse_points(kind: str) -> None:
    point = torch.tensor([[3.0, -1.0, 0.5, 2.0, -4.0, 0.0]])
    where = {"a": slice(0, 2), "b": slice(2, 4), "c": slice(4, 6)}
    live: Any = SimpleNamespace(numbering=SimpleNamespace(modules=where))

    def project(n_kept: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return keep_elements(n_kept) if kind == "elements" else keep_modules(live, n_kept)

    expected = [3.0, 0, 0, 0, -4.0, 0] if kind == "elements" else [3.0, -1.0, 0, 0, -4.0, 0]
    assert project(2)(point).tolist() == [expected] and torch.equal(project(99)(point), point)
    if kind == "elements":  # squares of the smallest are zero in float32
        assert torch.equal(project(2)(1e-25 * point) != 0, project(2)(point) != 0)


def test_a_large_module_is_not_taken_for_a_small_one() -> None:
    """Summed one by one in float32, the first module's 24 million squares of one would stop at 2^24."""
    ones, others = 24_000_000, 18_000_000
    live: Any = SimpleNamespace(
        numbering=SimpleNamespace(modules={"large": slice(0, ones), "small": slice(ones, ones + others)})
    )
    kept = keep_modules(live, 1)(torch.cat([torch.ones(ones), torch.full((others,), 1.005)])[None])
    assert bool(kept[0, 0] == 1) and not bool(kept[0, -1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_elements": 3, "n_modules": 1},
        {"n_elements": 0},
        {"max_sources": 0},
        {"n_modules": -1},
        {"n_steps": -1},
        {"temperature": 0.0},
        {"tolerance": float("nan")},
        {"start": "luck"},
        {"pull": None},
        {"n_steps": None},
    ],
)
def test_impossible_settings_are_refused_in_one_line(wrong: dict) -> None:
    with pytest.raises(InvalidSettings) as caught:
        SolverSettings(**wrong)
    assert "\n" not in str(caught.value)


def accuracy(live: LiveMixture, episode, mixture: Mixture) -> float:
    head = Adapted(live, Task.of(live, episode.support), Fit(mixture), class_names=episode.support.class_names)
    return float((head.predict(episode.queries).probabilities.argmax(dim=1) == episode.labels).double().mean())


@pytest.mark.slow
def test_sixteen_irrelevant_sources_cost_at_most_half_a_point(toy, tmp_path: Path) -> None:
    """Over 60 tasks of one and of two domains, by evidence routing and by the solver.

    The standard error over 60 tasks is about 0.3 points and the loss measured over 120 other tasks (two sets of
    networks) is 0.3 and 0.5 points: this guards against a relapse, it does not show that half a point is kept.
    """
    for name in ("base", *DOMAINS):
        (tmp_path / name).symlink_to(toy.folder / name)
    crowded = add_noise_sources(make_toy_library(tmp_path), tmp_path, 16)
    means = {}
    for size, library in (("small", toy.library), ("crowded", crowded)):
        live = LiveMixture(library)
        scores = []
        for names in (*DOMAINS, "red+green", "green+blue", "blue+red"):
            for seed in range(10):
                episode = draw_episode(toy.domains, names, 100 + seed)
                solution = solver(live, Task.of(live, episode.support))
                assert solution.evidence
                scores.append(
                    [
                        accuracy(live, episode, solution.evidence.mixture),
                        accuracy(live, episode, solution.mixture),
                    ]
                )
        means[size] = torch.tensor(scores).mean(dim=0)
    lost = means["small"] - means["crowded"]
    assert float(lost.max()) <= 0.005, means
