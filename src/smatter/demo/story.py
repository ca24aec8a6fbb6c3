"""`smatter demo`: the shipped library meets tasks that nobody trained on."""

import shutil
from collections.abc import Callable
from pathlib import Path

from smatter.adaptation.episodes import episode_rows
from smatter.adaptation.live import LiveMixture
from smatter.adaptation.solver import NetworkSolution, SolverSettings, solve_live
from smatter.compose.mixture import Mixture
from smatter.demo.page import Story, make_page
from smatter.library.check import check_library
from smatter.library.export import export
from smatter.library.library import open_library
from smatter.library.manifest import MANIFEST
from smatter.library.writing import new_folder
from smatter.tasks.episode import Episode
from smatter.tasks.export import support_of, write_task
from smatter.tasks.lists import TaskList
from smatter.tasks.open import SHIPPED, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.wear import Worn
from smatter.tasks.suite import Suite

TASKS: dict[str, tuple[str, ...]] = {
    "handwriting": ("latin-hand",),
    "people": ("emoji-people",),
    "thai": ("thai",),
    "faces": ("emoji-faces",),
    "mixed": ("kana", "icons-line", "emoji-kinds"),
}
"""Domains of each task; the third and fourth are from domains that no source has seen at all."""

N_SHOTS, N_QUERIES, WEAR = 5, 15, 5


def is_demo(folder: Path) -> bool:
    """Whether a folder holds an earlier demonstration."""
    return (folder / "index.html").exists() and (folder / "library" / MANIFEST).exists()


def run(folder: Path, seed: int, progress: Callable[[int], None]) -> dict[str, Story]:
    """Adapt the library to every task, write the tasks, one model and index.html; the folder appears when all is done.

    Args:
        folder: must not exist, be empty, or hold an earlier demonstration, which is replaced.
        seed: of the tasks.
        progress: told each task, `len(TASKS)` in all.
    """
    suite = open_suite("signs")
    with new_folder(folder, replace=is_demo(folder)) as work:
        shutil.copytree(SHIPPED / "signs-library", work / "library")
        (work / "tasks").mkdir()
        library = open_library(work / "library")
        live = LiveMixture(library)
        stories, episodes = {}, {}
        for name, domains in TASKS.items():
            episodes[name] = draw_task(suite, domains, seed)
            write_task(work / "tasks" / name, episodes[name])
            stories[name], solution = _adapt(live, suite, episodes[name], domains)
            if name == "handwriting":
                export(library, solution.recipe, work / "model")
            progress(1)
        report = check_library(library)
        (work / "index.html").write_text(make_page(folder.name, library, report, stories, episodes), encoding="utf-8")
    return stories


def draw_task(suite: Suite, domains: tuple[str, ...], seed: int) -> Episode:
    """Five classes of the test split, which no source has seen, in worn pictures."""
    settings = SamplerSettings(
        split="test",
        role=suite.domain(domains[0]).role,
        n_shot=(N_SHOTS, N_SHOTS),
        n_query=N_QUERIES,
        n_domains=(len(domains), len(domains)),
        domains=domains,
    )
    return TaskList("demo", Sampler(suite, settings, seed), 1, (Worn("both", WEAR),)).episode(0)


def _adapt(
    live: LiveMixture, suite: Suite, episode: Episode, domains: tuple[str, ...]
) -> tuple[Story, NetworkSolution]:
    library, support = live.library, support_of(episode)
    solution = solve_live(live, live.rows(support), SolverSettings())
    rows = episode_rows(live, episode)

    def accuracy(mixture: Mixture) -> float:
        live.compose(mixture)
        return rows.accuracy(live.features(rows.inputs))

    average = Mixture.of(dict.fromkeys(library.names, 1 / len(library.names)))
    found = solution.mixture.mean_weights
    story = Story(
        domains=tuple(suite.domain(name).title for name in domains),
        is_held_out=suite.domain(domains[0]).role == "ood",
        weights={name: found.get(name, 0.0) for name in library.names},
        accuracies={name: accuracy(Mixture.of({name: 1.0})) for name in library.names}
        | {
            "average": accuracy(average),
            "evidence": accuracy(solution.evidence.mixture),
            "solver": accuracy(solution.mixture),
        },
        seconds=solution.seconds,
    )
    return story, solution
