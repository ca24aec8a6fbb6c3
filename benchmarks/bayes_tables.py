"""Tables of routings for `bayes.py`: which tasks, which routings, and what was there before on the same tasks.

Every example that is left is a query, since the regret of a routing is small beside the luck of a few queries.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import before
from beyond_scores import Look
from common import ROOT
from signs_tasks import KINDS, LIBRARY, Scores, live, tasks, trained
from sources_experts_scores import router_folder

sys.path.insert(0, str(ROOT / "tools" / "common"))

import torch
from corruptions import CORRUPTIONS, corrupted
from renderings import RENDERINGS, WEAR

from smatter.library.library import Library
from smatter.methods.average import average
from smatter.methods.evidence import EvidenceSettings, evidence
from smatter.methods.router import RoutedSettings, router
from smatter.posterior.catalogue import Catalogue, usual_catalogue
from smatter.posterior.task_table import TaskTable
from smatter.route.store import TrainedRouter
from smatter.route.table import Tables
from smatter.tasks.episode import Episode
from smatter.tasks.lists import TaskList
from smatter.tasks.open import open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings, materialise
from smatter.tasks.shifts.catalogue import apply
from smatter.tasks.shifts.labels import LabelNoise

FOLDER = ROOT / ".build" / "routings"
MOST_QUERIES = 24
"""Of a class."""

CLEAN = tuple(f"{kind}-{form}" for kind in KINDS for form in (1, 2, 5, "noise"))
OUTSIDE = tuple(f"outside-{name}" for name in RENDERINGS)
CORRUPT = tuple(f"corrupt-{name}-{role}" for name in CORRUPTIONS for role in ("id", "ood"))
MANY = tuple(f"{kind}-10" for kind in KINDS)
"""Ten shots: tasks of the classes of the frozen lists, drawn as those are."""

TRAINING_SEED = 101


@dataclass(frozen=True)
class WholeList(TaskList):
    """A list whose queries are all examples of its tasks' classes that are left, up to `MOST_QUERIES` of each."""

    @classmethod
    def of(cls, tasks: TaskList) -> WholeList:
        """The same tasks with more queries."""
        return cls(tasks.name, tasks.sampler, n_tasks=tasks.n_tasks, shifts=tasks.shifts)

    def episode(self, index: int) -> Episode:
        """One task."""
        draw, suite = self.sampler.draw(index), self.sampler.suite
        queries = []
        for (domain, number), own, asked in zip(draw.classes, draw.support, draw.query, strict=True):
            each = suite.domains[domain].classes[number]
            more = (row for row in range(each.start, each.stop) if row not in own and row not in asked)
            queries.append((*asked, *more)[:MOST_QUERIES])
        episode = materialise(suite, replace(draw, query=tuple(queries)))
        return apply(self.shifts, episode, self.sampler.generator(index, "shifts"))


@cache
def training_list(form: str) -> TaskList:
    """Tasks of the router's classes: clean with few or many shots, with wrong labels, rendered anew, or corrupted."""
    kind, _, what = form.partition("-")
    settings = SamplerSettings(
        split="router",
        n_way=(5, 10),
        n_shot=(int(what),) * 2 if what.isdigit() else (5, 5),
        n_domains=(2, 3) if kind == "mixed" else (1, 1),
    )
    shifts = (WEAR,)
    if what == "noise":
        shifts = (LabelNoise(0.2), WEAR)
    elif kind == "outside":
        shifts = (RENDERINGS[what], WEAR)
    elif kind == "corrupt":
        shifts = corrupted(what)
    sampler = Sampler(open_suite("signs"), settings, TRAINING_SEED)
    return TaskList(f"router-{form}", sampler, n_tasks=200, shifts=shifts)


TRAINING = (
    *(f"{kind}-{form}" for kind in ("id", "mixed") for form in (1, 2, 5, "noise")),
    *OUTSIDE,
    *(f"corrupt-{name}" for name in CORRUPTIONS),
)


@cache
def task_list(name: str) -> WholeList:
    """A frozen list by its name, the same with ten shots, or one of the router's classes."""
    stage, _, form = name.partition("-")
    if stage == "router":
        return WholeList.of(training_list(form))
    if form not in MANY:
        return WholeList.of(tasks(name))
    five = tasks(f"{stage}-{form.removesuffix('10')}5")
    settings = replace(five.sampler.settings, n_shot=(10, 10))
    sampler = Sampler(five.sampler.suite, settings, five.sampler.seed)
    return WholeList(name, sampler, n_tasks=five.n_tasks, shifts=five.shifts)


def judged_catalogue(library: Library, router: TrainedRouter) -> Catalogue:
    """The usual routings and, after them, all sources alike with every expert open: a delta that is not routed."""
    usual, n_experts = usual_catalogue(library.names, router.expert_names), len(router.expert_names)
    everything = torch.full((1, n_experts + 1), 1 / n_experts)
    everything[0, -1] = 0
    return Catalogue(
        (*usual.names, "all alike, every expert"),
        torch.cat([usual.weights, usual.weights[-1:]]),
        experts=torch.cat([usual.experts, everything]),
        costs=torch.ones(len(usual) + 1),
    )


@cache
def tables(routers: Path, seed: int) -> Tables:
    """Tables of one router."""
    network, router = live(LIBRARY), trained(router_folder(routers, seed))
    router.check_fits(network)
    return Tables(FOLDER, network, router, judged_catalogue(network.library, router))


def make(routers: Path, seed: int, name: str, index: int) -> str:
    """Make a table where it is not there; its file's name."""
    made = tables(routers, seed)
    made(task_list(name), index)
    return made.path(task_list(name), index).name


def read(routers: Path, seed: int, name: str, index: int) -> TaskTable:
    """A table."""
    return tables(routers, seed)(task_list(name), index)


def references(name: str, index: int) -> Scores:
    """What needs no table, on the same queries: the first library and router, and what one would do without a router.

    Routings of a table have the common part of the shared change open; these have not.
    """
    episode = task_list(name).episode(index)
    look, asked = Look(live(before.LIBRARY), episode), trained(before.ROUTER)
    asked.check_fits(look.network)
    found = look.figures_of("today", look.voices(router(look.network, look.task, RoutedSettings(router=asked))))
    plain = Look(live(LIBRARY), episode)
    names = plain.network.library.names
    voices = {
        "plain base": plain.plain({plain.network.library.manifest.base: 1.0}),
        "plain average of predictions": plain.plain(dict.fromkeys(names, 1 / len(names))),
        "plain average of weights": plain.voices(average(plain.network, plain.task)),
        "evidence": plain.voices(evidence(plain.network, plain.task)),
        "evidence predictions": plain.voices(evidence(plain.network, plain.task, EvidenceSettings(mix="predictions"))),
    }
    for label, each in voices.items():
        found |= plain.figures_of(label, each)
    labels = ("today", *voices)
    return {f"{label} error": 100 - found[label] for label in labels} | {
        f"{label} loss": found[f"nll {label}"] for label in labels
    }


REFERENCES = (
    "today", "plain base", "plain average of predictions", "plain average of weights", "evidence",
    "evidence predictions",
)  # fmt: skip


def jobs_of(stage: str, counts: Sequence[tuple[Sequence[str], int]], start: int = 0) -> list[tuple[str, int]]:
    """Names and numbers of tasks: so many of each list of each group, after the first `start`."""
    return [(f"{stage}-{name}", start + index) for lists, count in counts for name in lists for index in range(count)]
