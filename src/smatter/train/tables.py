"""Tables of routings for many tasks: by several processes, each table kept, so that a run that was stopped goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from smatter.errors import InvalidSettings
from smatter.library.library import Library, open_library
from smatter.live.mixture import LiveMixture
from smatter.posterior.catalogue import Catalogue
from smatter.posterior.task_table import TaskTable
from smatter.records import Progress, silent
from smatter.route.store import TrainedRouter
from smatter.route.table import Tables
from smatter.tasks.lists import TaskList
from smatter.train.curriculum import Curriculum
from smatter.train.lessons import begin_worker, signals_wait

TABLES_SEED = 2_000_003
"""Of a curriculum for tables: its tasks are not those that the router learnt from or was judged by."""

Job = tuple[TaskList, int]
"""A list, and the number of one of its tasks."""


def training_jobs(curriculum: Curriculum, n_tasks: int, seed: int = 0) -> list[Job]:
    """Tasks to learn from, each kind as often as a router meets it; more tasks begin with the same ones."""
    shares = np.array([each.share for each in curriculum.training])
    kinds = np.random.default_rng([seed, TABLES_SEED]).choice(len(shares), n_tasks, p=shares / shares.sum())
    return [(curriculum.training[kind].tasks, number) for number, kind in enumerate(kinds.tolist())]


def held_out_jobs(curriculum: Curriculum) -> list[Job]:
    """Tasks of classes that are not learnt from."""
    return [(tasks, number) for tasks in curriculum.validation for number in range(len(tasks))]


@dataclass(frozen=True)
class TableMaker:
    """What makes tables, in this process or in another.

    Args:
        library: whose sources are mixed.
        trained: the router.
        catalogue: the routings.
        folder: where tables are kept.
        jobs: the tasks.
    """

    library: Library
    trained: TrainedRouter
    catalogue: Catalogue
    folder: Path
    jobs: Sequence[Job]

    def open(self) -> Tables:
        """The tables, with a network in memory to make those that are missing."""
        live = LiveMixture(self.library)
        self.trained.check_fits(live)
        return Tables(self.folder, live, self.trained, self.catalogue)


def make_tables(maker: TableMaker, n_workers: int = 1, progress: Progress = silent) -> list[TaskTable]:
    """The table of each task, found or made.

    Args:
        maker: of which tasks, by what.
        n_workers: processes.
        progress: told 1 for each table.
    """
    tables, jobs = maker.open(), maker.jobs
    missing = [number for number, job in enumerate(jobs) if not tables.path(*job).exists()]
    progress(len(jobs) - len(missing))
    if n_workers > 1 and len(missing) > 1:
        for _ in _made_elsewhere(maker, missing, min(n_workers, len(missing))):
            progress(1)
        return [tables(*job) for job in jobs]
    found = []
    for number, job in enumerate(jobs):
        found.append(tables(*job))
        progress(number in missing)
    return found


def _made_elsewhere(maker: TableMaker, numbers: Sequence[int], n_workers: int) -> Iterator[int]:
    """Make tables by other processes; the number of each that is there."""
    library = maker.library
    settings = (library.folder, library.names, maker.trained, maker.catalogue, maker.folder, maker.jobs)
    with ProcessPoolExecutor(n_workers, get_context("spawn"), _begin, settings) as pool:
        try:
            with signals_wait():  # as in `train.lessons`
                waiting = [pool.submit(_work, number) for number in numbers]
            for done in as_completed(waiting):
                yield done.result()
        except BrokenProcessPool:
            raise InvalidSettings(
                "a worker process ended by itself, perhaps for lack of memory: run again with fewer --workers; tables "
                "that were made are kept"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


_maker: TableMaker | None = None
_tables: Tables | None = None
"""What a worker process keeps."""


def _begin(
    folder: Path, names: Sequence[str], trained: TrainedRouter, catalogue: Catalogue, kept: Path, jobs: Sequence[Job]
) -> None:
    global _maker
    begin_worker()
    _maker = TableMaker(open_library(folder).only(names), trained, catalogue, folder=kept, jobs=jobs)


def _work(number: int) -> int:
    global _tables
    assert _maker is not None
    _tables = _tables or _maker.open()
    _tables(*_maker.jobs[number])
    return number
