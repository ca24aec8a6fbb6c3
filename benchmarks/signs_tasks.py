"""What the benchmarks on Signs share: a network and lists for each process, and tasks shared out over two processes."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from common import COMMIT, PLAIN_PROCESS, ROOT, stage

os.environ |= PLAIN_PROCESS

import torch
from torch import Tensor

from smatter.library.library import open_library
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries
from smatter.live.task import Task
from smatter.methods import Fit, Method
from smatter.route.encode import Encoded, as_mixture
from smatter.route.probe import draw_probe
from smatter.route.store import Ask, TrainedRouter, read_router, write_router
from smatter.settings.training import MetaSettings
from smatter.tasks.lists import TaskList
from smatter.tasks.open import SHIPPED, open_list, open_suite
from smatter.tasks.shifts.wear import Worn
from smatter.train.curriculum import make_curriculum
from smatter.train.meta import meta_train
from smatter.train.trainee import Trainee

LIBRARY = SHIPPED / "signs-library"
KINDS = ("id", "ood", "mixed")
PACKAGES = ("torch", "transformers", "numpy")
N_PROCESSES = int(os.environ.get("SMATTER_PROCESSES", "2"))
"""Tasks that are scored at a time; fewer leave cores to others."""

Scores = dict[str, float]


def live(folder: Path = LIBRARY, without: str = "") -> LiveMixture:
    """One network of a library for each process.

    Args:
        folder: the library's.
        without: a source that is to be left out.
    """
    return _live(folder, without)


@cache
def _live(folder: Path, without: str) -> LiveMixture:
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
    label: str, work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], chunk: int = 4, keep: bool = False
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each job with what came of it, in order; who does what does not matter.

    Args:
        label: of the progress bar.
        work: called with each job, in another process.
        jobs: what is to be done.
        chunk: jobs that a process takes at a time.
        keep: whether results are kept, so that a run of the same commit that was stopped goes on.
    """
    path = ROOT / ".build" / "kept" / f"{Path(sys.argv[0]).stem}-{label}-{COMMIT.replace(' ', '-')}.jsonl"
    known = {}
    if keep and path.exists():
        known = dict(json.loads(line) for line in path.read_text().splitlines() if line.endswith("]"))
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = {job: str((*getattr(work, "args", ()), *job)) for job in jobs}
    left = [job for job in jobs if keys[job] not in known]
    with stage(label, len(left)) as tick, ProcessPoolExecutor(N_PROCESSES, get_context("spawn")) as pool:
        results = pool.map(work, *zip(*left, strict=True), chunksize=chunk) if left else iter(())
        for job in jobs:
            if keys[job] in known:
                yield job, known[keys[job]]
                continue
            result = next(results)
            if keep:
                with path.open("a") as file:
                    file.write(json.dumps([keys[job], result]) + "\n")
            yield job, result
            tick()


def by_draw(found: Mapping[str, Sequence[Scores]], lists: Sequence[str], key: str) -> list[float]:
    """Values of some lists, averaged over tasks of the same kind and number: these may be the same draw, changed.

    Args:
        found: scores of each list's tasks.
        lists: names such as "ood-5"; those of a kind must be of the same length.
        key: which score.
    """
    kinds: dict[str, list[Sequence[Scores]]] = {}
    for name in lists:
        kinds.setdefault(name.split("-")[0], []).append(found[name])
    draws = [draw for columns in kinds.values() for draw in zip(*columns, strict=True)]
    return [sum(each[key] for each in draw) / len(draw) for draw in draws]


def right(queries: Queries, logits: Tensor) -> float:
    """Accuracy of some scores of the classes, (n_queries, n_classes), in percent."""
    return 100 * float((logits.argmax(dim=1) == queries.classes).double().mean())


def fitted(network: LiveMixture, task: Task, method: Method[Any], settings: Any) -> Fit:
    """What a method finds; the network has it afterwards."""
    fit = method(network, task, settings)
    network.compose(fit.recipe(network.library))
    return fit


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
    encoded = Encoded(told.classes, told.features, losses)
    router.check_fits(network)
    weights = Ask(router, router.describe(network, names))(encoded).weights
    network.compose(as_mixture(network, weights, names))
    return weights


def train_on_signs(settings: MetaSettings, output: Path, without: str = "") -> None:
    """A router for tasks of Signs as the frozen lists have them; goes on where it was stopped, and keeps what is done.

    Args:
        settings: how; there are no variants, so experts would have little to learn.
        output: the router's folder.
        without: a source that it must not know.
    """
    network, told = live(without=without), settings.to_dict()
    if output.exists():
        kept = read_router(output)
        if told | kept.record["settings"] != told or kept.sources != network.library.manifest.digests:
            raise SystemExit(f"{output} was trained otherwise: delete it")
        return
    begin = time.perf_counter()
    suite, shifts = open_suite("signs"), (Worn(target="both", severity=5),)
    trainee = Trainee(network, draw_probe(suite, shifts), settings)
    work = output.with_name(f"{output.name}.work")
    meta_train(trainee, make_curriculum(suite, shifts, seed=settings.seed), work)
    seconds = time.perf_counter() - begin
    write_router(output, trainee.finish({"suite": "signs", "settings": told, "seconds": seconds}))
