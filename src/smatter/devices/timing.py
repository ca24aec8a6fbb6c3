"""Times of many cases as multiples of one base that is timed among them, and whether the machine was quiet meanwhile.

Absolute times drift with the clock of the processor and with neighbours; the ratio of two runs that follow each other
hardly does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smatter.budget.latency import Floats
from smatter.records import Progress, silent

Case = Callable[[], Callable[[], object]]
"""Prepares itself, which is not timed, and gives what is."""

CASES_PER_BASE = 2
"""Runs of cases between two runs of the base."""

BUSY = 0.25
"""Share of the processors that are left for others that these may use before a machine is not quiet."""

BUSY_ROUNDS = 0.1
"""Share of the rounds that may be busier than is said of the whole."""

LEAST_WIDER = 1.1
"""By what factor a bound is wider at least where others used the machine: one who always does shows in no spread."""


@dataclass(frozen=True)
class Timed:
    """What was timed.

    Args:
        ratios: each run of each case over the runs of the base around it, (n_cases, n_rounds).
        base_seconds: of every run of the base.
        others: processors that other processes used in all but a tenth of the rounds; none where the system does not
            say.
    """

    ratios: Floats
    base_seconds: Floats
    others: float | None

    @property
    def base_tail(self) -> float:
        """The base's p95 over its p50."""
        return float(np.quantile(self.base_seconds, 0.95) / np.median(self.base_seconds))

    def wider_by(self, others: float | None) -> float:
        """The factor by which a bound is wider where others used this much of the machine, else 1."""
        return 1.0 if is_quiet(others) else max(self.base_tail, LEAST_WIDER)

    def quantile(self, q: float) -> Floats:
        """That quantile of each case, in multiples of the base, (n_cases,)."""
        return np.asarray(np.quantile(self.ratios, q, axis=1))

    @property
    def noise(self) -> float:
        """Standard error of a case's median, mean over the cases, from the spread of its runs."""
        spread = np.subtract(*np.quantile(self.ratios, [0.75, 0.25], axis=1)) / 1.349
        return float((1.2533 * spread / np.sqrt(self.ratios.shape[1])).mean())

    @property
    def signal_to_noise(self) -> float:
        """How much cases differ, for how well each is known."""
        return float(self.quantile(0.5).std() / max(self.noise, 1e-12))


def is_quiet(others: float | None) -> bool:
    """Whether others use so little of the processors that torch leaves them, if the system says how much."""
    import torch

    left = max(1, (os.cpu_count() or 1) - torch.get_num_threads())
    return others is None or others <= BUSY * left


def time_cases(
    base: Callable[[], object],
    cases: Sequence[Case],
    n_rounds: int,
    generator: np.random.Generator,
    progress: Progress = silent,
) -> Timed:
    """Time every case once a round, in a new order each round, with the base in between.

    Args:
        base: what all are compared with.
        cases: what to time.
        n_rounds: runs of each.
        generator: of the orders.
        progress: told each run of a case.
    """
    for case in cases[:3]:
        base()
        case()()
    ratios = np.zeros((len(cases), n_rounds))
    bases: list[float] = []
    others: list[float | None] = []
    for number in range(n_rounds):
        watch = Neighbours()
        order = generator.permutation(len(cases))
        chunks = [order[start : start + CASES_PER_BASE].tolist() for start in range(0, len(order), CASES_PER_BASE)]
        ready = [cases[case]() for case in chunks[0]]
        bases.append(seconds(base))
        for some, after in zip(chunks, [*chunks[1:], []], strict=True):
            taken = [seconds(work) for work in ready]
            ready = [cases[case]() for case in after]  # before the base, so that it disturbs no case more than the base
            bases.append(seconds(base))
            ratios[some, number] = np.array(taken) / ((bases[-2] + bases[-1]) / 2)
            progress(len(some))
        others.append(watch.cores())
    known = [each for each in others if each is not None]
    return Timed(ratios, np.array(bases), float(np.quantile(known, 1 - BUSY_ROUNDS)) if known else None)


def seconds(work: Callable[[], object]) -> float:
    """What one run takes. On CUDA, what was queued is waited for before and after."""
    wait_for_device()
    begin = time.perf_counter()
    work()
    wait_for_device()
    return time.perf_counter() - begin


@contextmanager
def using_threads(n: int) -> Iterator[None]:
    """Torch computes with this many threads meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wait_for_device() -> None:
    """Until an accelerator has done what it was told; nothing on a machine without."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Neighbours:
    """What other processes do from now on."""

    def __init__(self) -> None:
        self._before, self._begin = _processor_times(), time.perf_counter()

    def cores(self) -> float | None:
        """Processors that others used since, on average; none where the system does not say."""
        now, wall = _processor_times(), time.perf_counter() - self._begin
        if self._before is None or now is None or not wall:
            return None
        busy, own = (end - start for start, end in zip(self._before, now, strict=True))
        return max(0.0, (busy - own) / wall)


def _processor_times() -> tuple[float, float] | None:
    """Seconds that all processors were busy, and those of this process alone; none where the system does not say."""
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _, _, irq, soft, stolen = (int(word) for word in words[1:9])
    busy = (user + nice + system + irq + soft + stolen) / os.sysconf("SC_CLK_TCK")
    return busy, time.process_time()
