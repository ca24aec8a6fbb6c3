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
from torch import Tensor

from smatter.adaptation.live import LiveMixture
from smatter.adaptation.modes import ask
from smatter.adaptation.routers import TrainedRouter, read_router, write_router
from smatter.adaptation.routing import Encoded, as_mixture
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
def live(folder: Path = LIBRARY, without: str = "") -> LiveMixture:
    """One network of a library for each process.

    Args:
        folder: the library's.
        without: a source that is to be left out.
    """
    torch.set_num_threads(1)
    library = open_library(folder)
    return LiveMixture(library.only(name for name in library.names if name != without))


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


def weighed(network: LiveMixture, router: TrainedRouter, told: Encoded, with_evidence: bool) -> Tensor:
    """A router's weights of a network's sources; the network has them afterwards.

    Args:
        network: it may have fewer sources than the task was passed through.
        router: without experts.
        told: the task, with evidence.
        with_evidence: whether the router sees it.
    """
    everyone, names = live().library.names, network.library.names
    losses = None
    if with_evidence and told.losses is not None:
        losses = told.losses[[everyone.index(name) for name in names]]
    encoded = Encoded(told.features, told.labels, losses)
    weights = ask(router, router.describe(network, names), encoded).weights
    network.compose(as_mixture(network, weights, names))
    return weights


def train_on_signs(settings: MetaSettings, output: Path, without: str = "") -> None:
    """A router for tasks of Signs as the frozen lists have them; goes on where it was stopped, and keeps what is done.

    Args:
        settings: how; there are no variants, so experts would have little to learn.
        output: the router's folder.
        without: a source that it must not know.
    """
    record = {"suite": "signs", "settings": settings.to_dict()}
    if output.exists():
        if read_router(output).record.get("settings") != record["settings"]:
            raise SystemExit(f"{output} was trained otherwise: delete it")
        return
    suite, shifts = open_suite("signs"), (Worn(target="both", severity=5),)
    trainee = Trainee(live(without=without), draw_probe(suite, shifts), settings)
    work = output.with_name(f"{output.name}.work")
    train_router(trainee, make_curriculum(suite, shifts, seed=settings.seed), work)
    write_router(output, trainee.finish(record))
