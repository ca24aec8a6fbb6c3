"""`smatter demo`: the shipped library meets tasks that nobody trained on."""

import shutil
from pathlib import Path

from smatter import methods
from smatter.adapted import Adapted
from smatter.backbones.heads import pool
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.demo.page import Story, make_page
from smatter.demo.place import is_demo, keep_record
from smatter.files.writing import new_folder
from smatter.library.check import check_library
from smatter.library.export import export
from smatter.library.library import open_library
from smatter.live.episodes import episode_queries
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit
from smatter.methods.bayes import BayesSettings
from smatter.methods.refined import RefinedSettings
from smatter.methods.router import RoutedSettings
from smatter.records import Progress, silent
from smatter.route.store import TrainedRouter, read_router
from smatter.settings import MixSettings
from smatter.tasks.episode import Episode
from smatter.tasks.export import support_of, write_task
from smatter.tasks.lists import TaskList
from smatter.tasks.open import SHIPPED, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.shifts.renderings import GrayOnColour, Inverted, TexturedBackground
from smatter.tasks.shifts.wear import Worn
from smatter.tasks.suite import Suite

TASKS: dict[str, tuple[str, ...]] = {
    "handwriting": ("latin-hand",),
    "people": ("emoji-people",),
    "thai": ("thai",),
    "faces": ("emoji-faces",),
    "mixed": ("kana", "icons-line", "emoji-kinds"),
    "negatives": ("thai",),
    "wallpaper": ("hangul",),
    "posters": ("khmer",),
}
"""Domains of each task; all but handwriting, people and mixed are from domains that no source has seen at all."""

N_SHOTS, N_QUERIES = 5, 15
WORN = Worn("both", 5)
RENDERED: dict[str, tuple[Shift, ...]] = {
    "negatives": (Inverted("both"),), "wallpaper": (TexturedBackground("both"),), "posters": (GrayOnColour("both"),)
}  # fmt: skip
"""What is done to the pictures of a task, beside wear."""

EXPLAINED, N_REFINEMENTS = "mixed", 6
"""The task that the page looks into, and how many steps its weights are refined by."""


def run_demo(folder: Path, seed: int, progress: Progress = silent) -> dict[str, Story]:
    """Adapt the library to every task, write the tasks, a model and index.html; the folder appears when all is done.

    Args:
        folder: must not exist, be empty, or hold an earlier demonstration as it was written, which is replaced.
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
            stories[name], fit = _adapt(live, suite, router, episodes[name], domains)
            if name == "handwriting":
                adapted = Adapted(live, Task.of(live, support_of(episodes[name])), fit)
                export(library, adapted.recipe, work / "model")
            progress(1)
        report, explained = check_library(library), _explained(live, router, episodes[EXPLAINED])
        text = make_page(
            folder.name,
            library,
            report,
            stories=stories,
            episodes=episodes,
            name_explained=EXPLAINED,
            explained=explained,
            certificates=router.certificates,
        )
        (work / "index.html").write_text(text, encoding="utf-8")
        keep_record(work)
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
) -> tuple[Story, Fit]:
    library, task = live.library, Task.of(live, support_of(episode))
    fits = {
        "router": methods.find("router")(live, task, RoutedSettings(router)),
        "predictions": methods.find("router")(live, task, RoutedSettings(router, mix="predictions")),
        "one pass": methods.find("router")(live, task, RoutedSettings(router, evidence=False)),
    }
    if router.posterior:
        fits["decision"] = methods.find("bayes")(live, task, BayesSettings(router))
    fits |= {name: methods.find(name)(live, task) for name in ("solver", "evidence", "average")}
    fits["average of predictions"] = methods.find("average")(live, task, MixSettings(mix="predictions"))
    queries = episode_queries(live, episode)

    def accuracy(recipe: Recipe) -> float:
        scores = []
        for one in library.networks(recipe):
            live.compose(one)
            scores.append(queries.logits(live.read(queries)))
        pooled = pool(scores, recipe.network_weights)
        return float((pooled.argmax(dim=1) == queries.classes).double().mean())

    routed, alone = fits["router"], fits["evidence"].evidence
    assert alone is not None
    found = routed.mixture.mean_weights
    singles = {name: accuracy(library.recipe(Mixture.of({name: 1.0}))) for name in library.names}
    story = Story(
        domains=tuple(suite.domain(name).title for name in domains),
        is_held_out=suite.domain(domains[0]).role == "ood",
        weights={name: found.get(name, 0.0) for name in library.names},
        accuracies={name: accuracy(fit.recipe(library)) for name, fit in fits.items()} | singles,
        best_source=alone.best,
        likeness=dict(routed.likeness),
        experts=routed.expert_weights,
        seconds=routed.seconds,
        solver_seconds=fits["solver"].seconds,
        decision=decided.told if "decision" in fits and (decided := fits["decision"].decision) else "",
    )
    return story, routed


def _explained(live: LiveMixture, router: TrainedRouter, episode: Episode) -> Adapted:
    """A task's model, refined, with all that is known of it."""
    task = Task.of(live, support_of(episode))
    fit = methods.find("refined")(live, task, RefinedSettings(router, n_steps=N_REFINEMENTS))
    return Adapted(live, task, fit)
