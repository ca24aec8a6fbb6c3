"""From somebody's own data to trials: tasks with labelled queries to score methods by. Nothing here needs torch."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from smatter.errors import InvalidSuite, InvalidSupport, NotFound, SmatterWarning
from smatter.tasks.assemble import Omissions
from smatter.tasks.export import support_of
from smatter.tasks.folders import find_files
from smatter.tasks.lists import TaskList, read_list
from smatter.tasks.open import open_list, open_suite, shipped_suites
from smatter.tasks.packed import is_packed
from smatter.tasks.rows import raw_rows
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.splits import Split
from smatter.tasks.suite import Role
from smatter.tasks.support import Support, read_support


@dataclass(frozen=True)
class Trial:
    """A task and queries that say how well it was learnt.

    Args:
        name: what people call it.
        domain: tasks of one domain are alike; empty where none is known.
        support: what a method may see.
        queries: what it must name: pictures, paths of pictures, texts or prepared tensors.
        truth: class of each query, as an index into the class names of the support set.
        places: number of each query among the examples that all trials share; empty where they share none.
    """

    name: str
    domain: str
    support: Support
    queries: Sequence[Any]
    truth: tuple[int, ...]
    places: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.queries) or len(self.queries) != len(self.truth):
            raise InvalidSupport(
                f"task {self.name!r} has {len(self.queries)} queries and {len(self.truth)} labels for them: give at "
                "least one query of a class that has examples, and a label for each"
            )
        if not set(self.truth) <= set(range(len(self.support.class_names))):
            raise InvalidSupport(f"queries of task {self.name!r} are of classes without examples: leave them out")

    @cached_property
    def digest(self) -> str:
        """Of all contents; the order of the examples does not matter, that of classes and queries does."""
        support = self.support
        examples = sorted(zip(map(input_digest, support.inputs), support.labels, strict=True))
        queries = list(map(input_digest, self.queries))
        parts = [support.kind, support.class_names, examples, queries, self.truth]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Trials:
    """A series of trials, made when they are asked for.

    Args:
        told: what they are, in one line.
        n_tasks: how many there are.
        make: the trial of a number, the same every time.
    """

    told: str
    n_tasks: int
    make: Callable[[int], Trial]

    def __len__(self) -> int:
        return self.n_tasks

    def __iter__(self) -> Iterator[Trial]:
        return map(self.make, range(self.n_tasks))

    def __getitem__(self, index: int) -> Trial:
        return self.make(index)


@dataclass(frozen=True)
class DrawSettings:
    """Which tasks are drawn from data that is not divided into support and queries.

    Args:
        n_tasks: how many.
        n_shot: examples of each class.
        n_query: queries of each class; by default 10 of a suite, and all that are left of one labelled set.
        n_way: classes of a task, for a suite; a labelled set is one task of all its classes.
        split: classes to draw from, for a suite.
        role: domains to draw from, for a suite.
        seed: of the draws.
    """

    n_tasks: int = 10
    n_shot: int = 5
    n_query: int | None = None
    n_way: int = 5
    split: Split | Literal["all"] = "validation"
    role: Role = "id"
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.n_tasks, self.n_shot, 1 if self.n_query is None else self.n_query) < 1:
            raise InvalidSupport("fewer than one task, shot or query: give 1 or more")


def open_trials(
    data: str | Path,
    queries: str | Path | None = None,
    *,
    frozen: str | Path | None = None,
    draw: DrawSettings | None = None,
) -> Trials:
    """Tasks with queries from wherever labelled examples are.

    Args:
        data: a suite (a shipped one's name, a built one, a tree `domain/class/*.png`, or a table with a column
            `domain`); a folder with `support` and `query`, or a folder of such folders; support examples, with
            `queries` apart; or one labelled folder or table, which is split by itself.
        queries: labelled queries, for support examples.
        frozen: a list of tasks of the suite.
        draw: which tasks are drawn where the data does not say it.
    """
    draw, path = draw or DrawSettings(), Path(data)
    if queries is not None:
        if frozen is not None:
            raise InvalidSuite("a frozen list has its own queries: leave out the queries or --list")
        return _told_pairs(((path.name, path, Path(queries)),))
    is_shipped = isinstance(data, str) and data in shipped_suites()
    if not is_shipped and not path.exists():
        known = ", ".join(shipped_suites()) or "none"
        raise NotFound(f"{path} does not exist; give a folder, a .csv or .jsonl file, or a shipped suite ({known})")
    if frozen is None and not is_shipped and (found := _task_folders(path)):
        return _told_pairs(found)
    if frozen is not None or is_shipped or _is_suite(path):
        return _suite_trials(str(data) if is_shipped else path, frozen, draw)
    return _split_trials(path, draw)


def input_digest(value: Any) -> str:
    """Tells inputs apart: a picture, the path of one, a text, or a row of a prepared tensor."""
    if isinstance(value, Path):
        stat = value.stat()
        return _file_digest(value, stat.st_size, stat.st_mtime_ns)
    if isinstance(value, str):
        content = value.encode()
    elif hasattr(value, "tobytes"):  # a picture
        content = f"{value.mode} {value.size} ".encode() + value.tobytes()
    else:
        content = f"{value.dtype} {tuple(value.shape)} ".encode() + value.numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


@cache
def _file_digest(path: Path, _size: int, _time: int) -> str:
    """Of a file that is as large and as old as it was when it was last read: splits share their files."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_suite(path: Path) -> bool:
    """Whether there are, or may be, several domains."""
    if path.is_dir():
        return is_packed(path) or len(find_files(path, Omissions())) > 1
    first = next(iter(raw_rows(path)), None)
    return first is not None and "domain" in first.cells


def _task_folders(path: Path) -> tuple[tuple[str, Path, Path], ...]:
    """Name, support set and queries of a folder that is a task, or of each such folder in it."""
    folders = [path, *sorted(path.iterdir())] if path.is_dir() else []
    found = [
        (folder.name, folder / f"support{suffix}", folder / f"query{suffix}")
        for folder in folders
        for suffix in ("", ".csv", ".jsonl")
    ]
    return tuple(each for each in found if each[1].exists() and each[2].exists())


def _suite_trials(where: str | Path, frozen: str | Path | None, draw: DrawSettings) -> Trials:
    suite = open_suite(where)
    if frozen is not None:
        is_file = not isinstance(where, str) or Path(frozen).exists()
        tasks = read_list(frozen, suite) if is_file else open_list(suite.name, str(frozen))
    else:
        way, shot = (draw.n_way, draw.n_way), (draw.n_shot, draw.n_shot)
        settings = SamplerSettings(draw.split, draw.role, way, n_shot=shot, n_query=draw.n_query or 10)
        tasks = TaskList("drawn", Sampler(suite, settings, draw.seed), draw.n_tasks)
    what = f"the list {tasks.name}" if frozen is not None else f"drawn from split {draw.split}, seed {draw.seed}"
    return trials_of(tasks, what)


def trials_of(tasks: TaskList, what: str, n_tasks: int | None = None) -> Trials:
    """The tasks of a list as trials.

    Args:
        tasks: the list.
        what: it is, for people.
        n_tasks: the first ones; all by default.
    """
    count = len(tasks) if n_tasks is None else n_tasks
    return Trials(
        f"{count} {'task' if count == 1 else 'tasks'} of {tasks.sampler.suite.name}, {what}",
        count,
        partial(_of_list, tasks),
    )


def _of_list(tasks: TaskList, index: int) -> Trial:
    """Queries of classes without examples are left out: nobody could name them."""
    from PIL import Image

    episode, suite = tasks.episode(index), tasks.sampler.suite
    domains = {suite.domains[number].name for number, _ in tasks.sampler.draw(index).classes}
    support = support_of(episode)
    number = {name: place for place, name in enumerate(support.class_names)}
    names = [episode.class_names[label] if label >= 0 else "" for label in episode.query.truth.tolist()]
    kept = [place for place, name in enumerate(names) if name in number]
    inputs = episode.query.select(np.array(kept, np.int64)).inputs
    queries = inputs if isinstance(inputs, tuple) else tuple(map(Image.fromarray, inputs))
    truth = tuple(number[names[place]] for place in kept)
    return Trial(f"{tasks.name} {index}", "+".join(sorted(domains)), support, queries, truth)


def _told_pairs(places: Sequence[tuple[str, Path, Path]]) -> Trials:
    trials = [_of_pair(*each) for each in places]
    n_queries = sum(len(trial.queries) for trial in trials)
    what = f"the task {trials[0].name}" if len(trials) == 1 else f"{len(trials)} tasks"
    return Trials(f"{what}, {n_queries} queries", len(trials), trials.__getitem__)


def _of_pair(name: str, examples: Path, queries: Path) -> Trial:
    support, asked = read_support(examples), read_support(queries)
    if support.kind != asked.kind:
        raise InvalidSupport(f"{examples} holds {support.kind} and {queries} {asked.kind}: give two of a kind")
    number = {label: place for place, label in enumerate(support.class_names)}
    seen = set(map(input_digest, support.inputs))
    told = [(value, asked.class_names[label]) for value, label in zip(asked.inputs, asked.labels, strict=True)]
    known = [(value, number[label]) for value, label in told if label in number]
    kept = [(value, label) for value, label in known if input_digest(value) not in seen]
    _tell_left_out(len(told) - len(known), f"queries in {queries} are of classes without examples in {examples}")
    _tell_left_out(len(known) - len(kept), f"queries in {queries} are among the examples in {examples}")
    return Trial(name, "", support, tuple(value for value, _ in kept), tuple(label for _, label in kept))


def _split_trials(path: Path, draw: DrawSettings) -> Trials:
    """Repeated random splits of one labelled set; of equal examples one is kept, or it could be on both sides."""
    whole = read_support(path)
    first: dict[str, int] = {}
    for place, value in enumerate(whole.inputs):
        first.setdefault(input_digest(value), place)
    kept = sorted(first.values())
    _tell_left_out(len(whole) - len(kept), f"examples in {path} repeat others")
    by_class = [[place for place in kept if whole.labels[place] == label] for label in range(len(whole.class_names))]
    for name, places in zip(whole.class_names, by_class, strict=True):
        if len(places) <= draw.n_shot:
            fewer = f"give --shot {len(places) - 1}, add examples" if len(places) > 1 else "add examples"
            raise InvalidSupport(
                f"class {name!r} of {path} has {len(places)} examples, too few for {draw.n_shot} shots and a query: "
                f"{fewer}, or take the class out"
            )
    told = f"{draw.n_tasks} random splits of {path.name}, {draw.n_shot} shots, seed {draw.seed}"
    return Trials(told, draw.n_tasks, partial(_of_split, whole, by_class, draw))


def _of_split(whole: Support, by_class: Sequence[Sequence[int]], draw: DrawSettings, index: int) -> Trial:
    generator = np.random.default_rng([draw.seed, index])
    support, queries = [], []
    for places in by_class:
        order = [places[number] for number in generator.random(len(places)).argsort(kind="stable").tolist()]
        support += order[: draw.n_shot]
        queries += order[draw.n_shot :][: draw.n_query]
    examples = Support(
        tuple(whole.inputs[place] for place in support),
        tuple(whole.labels[place] for place in support),
        whole.class_names,
        whole.kind,
    )
    inputs, truth = (tuple(whole.inputs[place] for place in queries), tuple(whole.labels[place] for place in queries))
    return Trial(f"split {index}", "", examples, inputs, truth, places=tuple(queries))


def _tell_left_out(count: int, what: str) -> None:
    if count:
        warnings.warn(f"left out: {count} {what}", SmatterWarning, stacklevel=4)
