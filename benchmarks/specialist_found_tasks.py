"""Tasks for `specialist_found.py`: pictures and texts, with libraries that hold the right specialist and others."""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from common import ROOT
from remembering import Remembering
from signs_tasks import LIBRARY as SIGNS_LIBRARY

sys.path.insert(0, str(ROOT / "tests"))

import torch
from toy_suite import add_noise_sources

from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.library.library import Library, open_library
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Objective
from smatter.tasks.episode import Episode
from smatter.tasks.lists import TaskList
from smatter.tasks.open import open_list, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings, materialise
from smatter.tasks.shifts.catalogue import apply
from smatter.tasks.shifts.wear import Worn
from smatter.tasks.suite import Suite

N_IRRELEVANT = 4
NOISE = tuple(f"noise-{number}" for number in range(N_IRRELEVANT))
"""Random perturbations of the base."""

VARIANTS = ("far", "irrelevant")
"""Of a task's library; see `libraries`."""

N_QUERY = 15
N_TASKS = 1000
SEEDS = {"validation": 41, "test": 42}
LISTED = (5, 10)
"""Ways of the frozen lists of Signs."""


@dataclass(frozen=True)
class Form:
    """What tasks look like.

    Args:
        n_way: the fewest and the most classes.
        n_shot: examples of each.
    """

    n_way: tuple[int, int]
    n_shot: int

    def __str__(self) -> str:
        low, high = self.n_way
        ways = f"{low}" if low == high else f"{low} to {high}"
        return f"{ways} ways, {self.n_shot} shot{'s' * (self.n_shot > 1)}"


@dataclass(frozen=True)
class Ground:
    """A suite, and a library with a specialist for each of some domains.

    Args:
        suite: its name or folder.
        library: of the specialists; the base is one of its sources.
        specialists: domains of each.
        far: sources that are far from each of them.
        forms: of the tasks.
    """

    suite: str | Path
    library: Path
    specialists: dict[str, tuple[str, ...]]
    far: dict[str, tuple[str, ...]]
    forms: tuple[Form, ...]

    def specialist_of(self, domain: str) -> str:
        """Who learnt from a domain."""
        return next(name for name, own in self.specialists.items() if domain in own)


SCRIPTS, PICTURES = ("alphabets", "latin", "syllables"), ("emoji", "symbols")
SIGNS = Ground(
    "signs",
    SIGNS_LIBRARY,
    {
        "latin": ("latin-print", "latin-hand", "latin-display"),
        "alphabets": ("cyrillic", "greek", "hebrew"),
        "syllables": ("devanagari", "kana"),
        "emoji": ("emoji-kinds", "emoji-people"),
        "symbols": ("icons-line", "flags"),
    },
    {
        "latin": ("syllables", *PICTURES),
        "alphabets": ("syllables", *PICTURES),
        "syllables": ("alphabets", *PICTURES),
        "emoji": SCRIPTS,
        "symbols": SCRIPTS,
    },
    tuple(Form(*each) for each in ((LISTED, 1), (LISTED, 2), (LISTED, 5)))
    + tuple(Form((2, 2), n_shot) for n_shot in (1, 5, 10))
    + tuple(Form((10, 20), n_shot) for n_shot in (1, 5)),
)
WORDS = Ground(
    ROOT / ".build" / "words",
    ROOT / ".build" / "words-library",
    {
        "things": ("people", "life", "artifacts"),
        "notions": ("ideas", "actions"),
        "trades": ("fields", "packages", "quotations"),
    },
    {"things": ("notions", "trades"), "notions": ("things", "trades"), "trades": ("things", "notions")},
    tuple(Form((2, 2), n_shot) for n_shot in (1, 5, 10)) + tuple(Form((5, 10), n_shot) for n_shot in (1, 5)),
)
GROUNDS = {"signs": SIGNS, "words": WORDS}


@cache
def suite_of(ground: str) -> Suite:
    """The examples, read once in each process."""
    return open_suite(GROUNDS[ground].suite)


@cache
def task_list(ground: str, stage: str, form: Form) -> TaskList:
    """Tasks of one domain each; those of Signs with five to ten ways are the frozen list's."""
    if ground == "signs" and form.n_way == LISTED:
        return open_list("signs", f"{stage}-id-{form.n_shot}")
    settings = SamplerSettings(split=stage, n_way=form.n_way, n_shot=(form.n_shot,) * 2, n_query=N_QUERY)
    shifts = (Worn(target="both", severity=5),) if ground == "signs" else ()
    return TaskList(f"{stage}-specialists", Sampler(suite_of(ground), settings, SEEDS[stage]), N_TASKS, shifts)


def episode_of(ground: str, stage: str, form: Form, index: int) -> Episode:
    """A task; every example that is left is a query, but of texts in many classes `N_QUERY` of each."""
    tasks = task_list(ground, stage, form)
    if ground == "words" and form.n_way[1] > 2:
        return tasks.episode(index)
    draw, suite = tasks.sampler.draw(index), tasks.sampler.suite
    left = []
    for (domain, number), own in zip(draw.classes, draw.support, strict=True):
        each = suite.domains[domain].classes[number]
        left.append(tuple(example for example in range(each.start, each.stop) if example not in own))
    episode = materialise(suite, replace(draw, query=tuple(left)))
    return apply(tasks.shifts, episode, tasks.sampler.generator(index, "shifts"))


def irrelevant_library(ground: str) -> Path:
    """The library with random perturbations of its base, each tensor by half its own spread; made where it is not."""
    folder = ROOT / ".build" / "specialists" / ground
    if not folder.exists():
        work = folder.with_name(f"{ground}.partial")
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(GROUNDS[ground].library, work)
        add_noise_sources(open_library(work), work, N_IRRELEVANT)
        work.rename(folder)
    return folder


class _Features:
    """Reads features, as tasks of classes do."""

    def read(self, network: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return network.features(inputs)


_FEATURES = _Features()


class Pictures(LiveMixture):
    """A network that passes no pictures of a task twice at the same weights, and composes none that it does not need.

    Args:
        library: of pictures.
    """

    def __init__(self, library: Library) -> None:
        self.known: dict[tuple[object, ...], tuple[torch.Tensor, torch.Tensor]] = {}
        super().__init__(library)

    def compose(self, what: Mixture | Recipe, residual: Residual | None = None) -> None:
        """The weights that the next pictures are to be passed with."""
        assert residual is None
        self.wanted = what
        if not hasattr(self, "parameters"):  # the first weights of a network
            super().compose(what)

    def features(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Features of all rows, (n, d)."""
        return self.read(_FEATURES, inputs)

    def read(self, objective: Objective, inputs: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
        """Features, remembered or passed; pictures are the same where they lie in the same place."""
        given = objective.inputs if inputs is None else inputs
        pixels, what = given["pixel_values"], self.wanted
        weights = (what.mixture, what.experts and what.experts.alpha) if isinstance(what, Recipe) else (what, None)
        if (*weights, id(pixels)) not in self.known:
            super().compose(what)
            # The pictures are kept too, so that no others take their place while these are remembered.
            self.known[*weights, id(pixels)] = pixels, super().read(objective, given)
        return self.known[*weights, id(pixels)][1]


@cache
def whole(ground: str) -> LiveMixture:
    """One network for each process, of everything."""
    torch.set_num_threads(1)
    library = open_library(irrelevant_library(ground))
    return Remembering(library) if ground == "words" else Pictures(library)


@cache
def within(ground: str, names: Sequence[str]) -> LiveMixture:
    """The same network as if the library had some sources alone, and its base."""
    network = copy.copy(whole(ground))
    network.library = network.library.only(names)
    return network


def libraries(ground: str, domain: str) -> dict[str, tuple[str, ...]]:
    """Sources that a task is given: its specialist and those that are far, without and with irrelevant ones."""
    told = GROUNDS[ground]
    specialist = told.specialist_of(domain)
    far = (specialist, *told.far[specialist])
    return dict(zip(VARIANTS, (far, (*far, *NOISE)), strict=True))
