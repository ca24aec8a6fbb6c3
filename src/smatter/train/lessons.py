"""Lessons: tasks with all that does not depend on what is being learnt, made ahead by other processes if wanted.

A step's tasks, the sources that take part and whether there is evidence follow from the seed and the step's number, so
who makes a lesson, and when, does not matter.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np
import torch

from smatter.library.library import open_library
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import leave_one_out
from smatter.route.encode import Encoded, encode
from smatter.tasks.episode import Episode
from smatter.train.curriculum import Series
from smatter.train.ensemble import EnsembleTeacher
from smatter.train.teacher import Teacher, Teaching

SOURCE_SHARE = 0.8
"""How likely each source but the base takes part in a task: a router must not count on any."""

AHEAD = 6
"""Steps that are made ahead."""


@dataclass(frozen=True)
class Lesson:
    """A task to learn from.

    Args:
        episode: support and queries.
        sources: numbers of the sources that take part.
        encoded: the support set as a router sees it; losses are those of these sources.
        is_taught: whether a teacher has its say; then all sources take part, unless these are the teacher.
        teaching: what the teacher says of it, if it was asked.
        variant: number of the variant that it is; none of a clean task.
    """

    episode: Episode
    sources: tuple[int, ...]
    encoded: Encoded
    is_taught: bool = False
    teaching: Teaching | None = None
    variant: int | None = None


@dataclass(frozen=True)
class Timetable:
    """Which lessons a step has.

    Args:
        series: kinds of tasks.
        n_tasks: tasks of a step.
        evidence_share: share of the tasks on which a router is told how each source does.
        seed: of the choice.
        teacher: the solver or the ensemble of sources, if one of them is asked.
        taught_share: share of the tasks on which a teacher has its say.
    """

    series: Sequence[Series]
    n_tasks: int
    evidence_share: float
    seed: int
    teacher: Teacher | EnsembleTeacher | None = None
    taught_share: float = 0.0

    def lessons(self, live: LiveMixture, step: int) -> list[Lesson]:
        """The lessons of a step."""
        generator = np.random.default_rng([self.seed, step])
        shares = np.array([each.share for each in self.series])
        kinds = generator.choice(len(shares), self.n_tasks, p=shares / shares.sum()).tolist()
        names, base = live.library.names, live.library.manifest.base
        found = []
        for place, kind in enumerate(kinds):
            tasks, variant = self.series[kind].tasks, self.series[kind].variant
            episode = tasks.episode((step * self.n_tasks + place) % len(tasks))
            drawn = generator.random(len(names)) < SOURCE_SHARE
            sources = tuple(number for number, name in enumerate(names) if name == base or drawn[number])
            told, taught = generator.random(2) < (self.evidence_share, self.taught_share)
            if taught and not isinstance(self.teacher, EnsembleTeacher):
                sources = tuple(range(len(names)))
            lesson = replace(make_lesson(live, episode, sources, bool(told)), is_taught=bool(taught), variant=variant)
            found.append(replace(lesson, teaching=self._teaching(live, lesson)))
        return found

    def _teaching(self, live: LiveMixture, lesson: Lesson) -> Teaching | None:
        """What the teacher says; in renderings that no source has seen an ensemble has nothing to say."""
        if not lesson.is_taught or self.teacher is None:
            return None
        episode = lesson.episode
        support, queries = prepared_support(live, episode), episode_queries(live, episode)
        if not isinstance(self.teacher, EnsembleTeacher):
            return self.teacher.teach(live, support, queries)
        if lesson.variant is not None:
            return None
        sources = [live.library.names[number] for number in lesson.sources]
        return self.teacher.teach(live, sources, leave_one_out(live, support), queries, lesson.encoded.losses)


def make_lesson(live: LiveMixture, episode: Episode, sources: tuple[int, ...], with_evidence: bool) -> Lesson:
    """Pass the support set of a task through the base, and through each of the sources for evidence."""
    names = [live.library.names[number] for number in sources] if with_evidence else []
    objective = leave_one_out(live, prepared_support(live, episode))
    return Lesson(episode, sources, encode(live, objective, names))


@contextmanager
def made_ahead(
    live: LiveMixture, timetable: Timetable, steps: range, n_workers: int
) -> Iterator[Iterator[list[Lesson]]]:
    """The lessons of some steps in turn.

    Args:
        live: the network, used when there are no workers.
        timetable: which lessons.
        steps: their numbers.
        n_workers: processes that make them ahead.
    """
    if not n_workers:
        yield (timetable.lessons(live, step) for step in steps)
        return
    library = live.library
    settings = (library.folder, library.names, timetable)
    with ProcessPoolExecutor(n_workers, get_context("spawn"), _begin, settings) as pool:
        try:
            yield _in_turn(pool, steps)
        finally:
            pool.shutdown(cancel_futures=True)


def _in_turn(pool: ProcessPoolExecutor, steps: range) -> Iterator[list[Lesson]]:
    waiting: deque[Future[list[Lesson]]] = deque()
    for step in steps:
        with signals_wait():  # the first call starts the processes, which complain if they lose their parent meanwhile
            waiting.append(pool.submit(_work, step))
        if len(waiting) > AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def signals_wait() -> Iterator[None]:
    """Put off signals that ask the program to end until a block is through."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _frame: came.append(number)) for number in asked}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for late in came:
        signal.raise_signal(late)


_worker: tuple[LiveMixture, Timetable] | None = None
"""What a worker process keeps."""


def _begin(folder: Path, sources: Sequence[str], timetable: Timetable) -> None:
    global _worker
    begin_worker()
    _worker = LiveMixture(open_library(folder).only(sources)), timetable


def begin_worker() -> None:
    """What a worker process does first: it uses one thread, leaves signals to its parent, and ends when that does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(step: int) -> list[Lesson]:
    assert _worker is not None
    live, timetable = _worker
    return timetable.lessons(live, step)
