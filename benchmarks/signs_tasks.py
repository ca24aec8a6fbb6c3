"""What the benchmarks on Signs share: a network and lists for each process, and tasks shared out over two processes."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import PLAIN_PROCESS, stage

os.environ |= PLAIN_PROCESS

import torch

from smatter.adaptation.live import LiveMixture
from smatter.adaptation.routers import TrainedRouter, read_router, write_router
from smatter.library.library import open_library
from smatter.tasks.lists import TaskList
from smatter.tasks.open import SHIPPED, open_list, open_suite
from smatter.tasks.probe import draw_probe
from smatter.tasks.shifts.wear import Worn
from smatter.train.curriculum import make_curriculum
from smatter.train.meta import train_router
from smatter.train.trainee import MetaSettings, Trainee

LIBRARY = SHIPPED / "signs-library"
KINDS = ("id", "ood", "mixed")
PACKAGES = ("torch", "transformers", "numpy")
N_PROCESSES = 2

Scores = dict[str, float]


@cache
def live(folder: Path = LIBRARY) -> LiveMixture:
    """One network of a library for each process."""
    torch.set_num_threads(1)
    return LiveMixture(open_library(folder))


@cache
def trained(folder: Path) -> TrainedRouter:
    """A router, read once in each process."""
    return read_router(folder)


@cache
def tasks(name: str) -> TaskList:
    """A frozen list, read once in each process."""
    return open_list("signs", name)


def shared_out(
    label: str, work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], chunk: int = 4
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each job with what came of it, in order; who does what does not matter."""
    with stage(label, len(jobs)) as tick, ProcessPoolExecutor(N_PROCESSES, get_context("spawn")) as pool:
        for job, result in zip(jobs, pool.map(work, *zip(*jobs, strict=True), chunksize=chunk), strict=True):
            yield job, result
            tick()


def train_on_signs(library: Path, settings: MetaSettings, output: Path) -> None:
    """A router for tasks of Signs as the frozen lists have them; goes on where it was stopped, and keeps what is done.

    Args:
        library: folder of the sources.
        settings: how; without variants, so experts would have little to learn.
        output: the router's folder.
    """
    record = {"suite": "signs", "settings": settings.to_dict()}
    if output.exists():
        if read_router(output).record.get("settings") != record["settings"]:
            raise SystemExit(f"{output} was trained otherwise: delete it")
        return
    suite, shifts = open_suite("signs"), (Worn(target="both", severity=5),)
    trainee = Trainee(live(library), draw_probe(suite, shifts), settings)
    work = output.with_name(f"{output.name}.work")
    train_router(trainee, make_curriculum(suite, shifts, seed=settings.seed), work)
    write_router(output, trainee.finish(record))
