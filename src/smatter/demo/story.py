"""`smatter demo`: the shipped library meets tasks that nobody trained on."""

import shutil
import time
from pathlib import Path

from smatter.adaptation.adapt import Adapted
from smatter.adaptation.modes import ModeSettings, Routed, route_task
from smatter.adaptation.solver import SolverSettings, solve_live
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.demo.page import Story, make_page
from smatter.files.writing import new_folder
from smatter.library.check import check_library
from smatter.library.export import export
from smatter.library.library import open_library
from smatter.library.manifest import MANIFEST
from smatter.live.episodes import episode_rows
from smatter.live.identity import Task
from smatter.live.mixture import LiveMixture
from smatter.records import Progress
from smatter.route.store import TrainedRouter, read_router
from smatter.tasks.episode import Episode
from smatter.tasks.export import support_of, write_task
from smatter.tasks.lists import TaskList
from smatter.tasks.open import SHIPPED, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.shifts.renderings import Inverted
from smatter.tasks.shifts.wear import Worn
from smatter.tasks.suite import Suite

TASKS: dict[str, tuple[str, ...]] = {
    "handwriting": ("latin-hand",),
    "people": ("emoji-people",),
    "thai": ("thai",),
    "faces": ("emoji-faces",),
    "mixed": ("kana", "icons-line", "emoji-kinds"),
    "negatives": ("thai",),
}
"""Domains of each task; thai, faces and negatives are from domains that no source has seen at all."""

N_SHOTS, N_QUERIES = 5, 15
WORN = Worn("both", 5)
RENDERED: dict[str, tuple[Shift, ...]] = {"negatives": (Inverted("both"),)}
"""What is done to the pictures of a task, beside wear."""

EXPLAINED, REFINEMENT = "mixed", ModeSettings("gradient-free", n_steps=6)
"""The task that the page looks into, and how it is refined there."""


def is_demo(folder: Path) -> bool:
    """Whether a folder holds an earlier demonstration."""
    return (folder / "index.html").exists() and (folder / "library" / MANIFEST).exists()


def run(folder: Path, seed: int, progress: Progress) -> dict[str, Story]:
    """Adapt the library to every task, write the tasks, a model and index.html; the folder appears when all is done.

    Args:
        folder: must not exist, be empty, or hold an earlier demonstration, which is replaced.
        seed: of the tasks.
        progress: told each task, `len(TASKS)` in all.
    """
    suite = open_suite("signs")
    with new_folder(folder, replace=is_demo(folder)) as work:
        shutil.copytree(SHIPPED / "signs-library", work / "library")
        shutil.copytree(SHIPPED / "signs-router", work / "router")
        (work / "tasks").mkdir()
        library, router = open_library(work / "library"), read_router(work / "router")
        live = LiveMixture(library)
        stories, episodes = {}, {}
        for name, domains in TASKS.items():
            episodes[name] = draw_task(suite, name, seed)
            write_task(work / "tasks" / name, episodes[name])
            stories[name], routed = _adapt(live, suite, router, episodes[name], domains)
            if name == "handwriting":
                export(library, library.recipe(routed.mixture, routed.residual), work / "model")
            progress(1)
        report, explained = check_library(library), _explained(live, router, episodes[EXPLAINED])
        text = make_page(folder.name, library, report, stories, episodes, EXPLAINED, explained)
        (work / "index.html").write_text(text, encoding="utf-8")
    return stories


def draw_task(suite: Suite, name: str, seed: int) -> Episode:
    """Five classes of the test split, which no source has seen, in worn pictures."""
    domains = TASKS[name]
    settings = SamplerSettings(
        split="test",
        role=suite.domain(domains[0]).role,
        n_shot=(N_SHOTS, N_SHOTS),
        n_query=N_QUERIES,
        n_domains=(len(domains), len(domains)),
        domains=domains,
    )
    return TaskList("demo", Sampler(suite, settings, seed), 1, (*RENDERED.get(name, ()), WORN)).episode(0)


def _adapt(
    live: LiveMixture, suite: Suite, router: TrainedRouter, episode: Episode, domains: tuple[str, ...]
) -> tuple[Story, Routed]:
    library, support = live.library, Task.of(live, support_of(episode)).support
    solution = solve_live(live, live.rows(support), SolverSettings())
    one_pass = route_task(live, support, router, ModeSettings(evidence=False))
    begin = time.perf_counter()
    routed = route_task(live, support, router, ModeSettings())
    seconds = time.perf_counter() - begin
    rows = episode_rows(live, episode)

    def accuracy(mixture: Mixture, residual: Residual | None = None) -> float:
        live.compose(mixture, residual)
        return rows.accuracy(live.features(rows.inputs))

    average = Mixture.of(dict.fromkeys(library.names, 1 / len(library.names)))
    found = routed.mixture.mean_weights
    story = Story(
        domains=tuple(suite.domain(name).title for name in domains),
        is_held_out=suite.domain(domains[0]).role == "ood",
        weights={name: found.get(name, 0.0) for name in library.names},
        accuracies={
            "router": accuracy(routed.mixture, routed.residual),
            "one pass": accuracy(one_pass.mixture, one_pass.residual),
            "solver": accuracy(solution.mixture),
            "evidence": accuracy(solution.evidence.mixture),
            "average": accuracy(average),
        }
        | {name: accuracy(Mixture.of({name: 1.0})) for name in library.names},
        likeness=routed.likeness,
        experts=routed.experts,
        seconds=seconds,
        solver_seconds=solution.seconds,
    )
    return story, routed


def _explained(live: LiveMixture, router: TrainedRouter, episode: Episode) -> Adapted:
    """A task's model, refined, with all that is known of it."""
    support = Task.of(live, support_of(episode)).support
    routed = route_task(live, support, router, REFINEMENT)
    recipe = live.library.recipe(routed.mixture, routed.residual)
    return Adapted(live, support, recipe, routed.evidence, routed)
