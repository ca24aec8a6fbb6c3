"""Has a stream of values changed since calibration? CUSUM and PSI on ranks, with a stated rate of false alarms.

A value is replaced by its rank among the calibration values. While nothing has changed, ranks have a distribution that
depends on nothing but the number of calibration values, so thresholds can be simulated once, the error of a finite
calibration set included: within a period of `horizon` values a false alarm has a probability of at most `rate`. After
each period the statistics start again.

Two statistics share the rate. CUSUM adds up how far ranks are above or below the middle, less a slack: it finds shifts,
in both directions. PSI compares the shares of ten bins in windows with those of calibration: it also finds values that
spread or gather around the same middle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smatter.certify.bound import Floats, check_delta
from smatter.certify.conformal import conformal_limit
from smatter.errors import InvalidCertificate

N_BINS = 10
SLACK = 0.2
"""Shifts of the mean rank, on a scale from -1 to 1, below half of which CUSUM forgets."""

FEWEST = 50
"""Calibration values; with fewer, thresholds are too high to find anything."""


@dataclass(frozen=True)
class DriftMonitor:
    """What a stream is watched with.

    Args:
        calibration: values from tasks as they should be, ascending.
        cusum_limit, psi_limit: statistics above them are an alarm.
        rate: probability of a false alarm within a period.
        horizon: values of a period.
        window: values that PSI compares at a time.
    """

    calibration: tuple[float, ...]
    cusum_limit: float
    psi_limit: float
    rate: float
    horizon: int
    window: int

    def __post_init__(self) -> None:
        check_delta(self.rate)
        if len(self.calibration) < FEWEST:
            raise InvalidCertificate(f"{len(self.calibration)} values cannot tell drift: calibrate on {FEWEST} or more")
        if not 1 <= self.window <= self.horizon:
            raise InvalidCertificate(f"a window of {self.window} in a period of {self.horizon}: make it shorter")


@dataclass(frozen=True)
class DriftState:
    """What must be kept between two values.

    Args:
        seen: values in this period.
        high, low: CUSUM of ranks above and below the middle.
        counts: values of this window in each bin.
        alarms: of the last value: "rise", "fall", "spread", or none.
    """

    seen: int = 0
    high: float = 0.0
    low: float = 0.0
    counts: tuple[int, ...] = field(default=(0,) * N_BINS)
    alarms: tuple[str, ...] = ()


def make_drift_monitor(
    calibration: ArrayLike,
    rate: float,
    generator: np.random.Generator,
    *,
    horizon: int = 1000,
    window: int = 100,
    n_simulations: int = 2000,
) -> DriftMonitor:
    """Calibrate: simulate unchanged streams, and put the limits where a share `rate` of them would be an alarm.

    The limits are conformal quantiles of the simulated maxima, so that the rate is exact and not just nearly so, for
    values without ties; with ties it was lower in all that was tried.

    Args:
        calibration: values from tasks as they should be, (n,).
        rate: probability of any false alarm within a period.
        generator: draws the simulations.
        horizon: values of a period.
        window: values that PSI compares at a time.
        n_simulations: streams to simulate.
    """
    check_delta(rate)
    values = np.sort(np.asarray(calibration, np.float64))
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InvalidCertificate("calibration values must be one row of finite numbers: leave out tasks without one")
    cusums, indices = np.empty(n_simulations), np.empty(n_simulations)
    for index in range(n_simulations):
        reference = np.sort(generator.random(len(values)))
        ranks = ranks_among(reference, generator.random(horizon))
        cusums[index] = max(path.max() for path in cusum_paths(ranks))
        indices[index] = max(stability_indices(ranks, ranks_among(reference, reference), window), default=0.0)
    return DriftMonitor(
        calibration=tuple(values.tolist()),
        cusum_limit=conformal_limit(cusums, rate / 2).value,
        psi_limit=conformal_limit(indices, rate / 2).value,
        rate=rate,
        horizon=horizon,
        window=window,
    )


def watch_drift(monitor: DriftMonitor, state: DriftState, value: float) -> DriftState:
    """The state after one more value, with its alarms; a state without any begins a stream."""
    if not np.isfinite(value):
        raise InvalidCertificate(f"a value of {value} has no rank: leave that task out")
    if state.seen >= monitor.horizon:
        state = DriftState()
    reference = np.asarray(monitor.calibration)
    rank = float(ranks_among(reference, [value])[0])
    high = max(0.0, state.high + rank - SLACK)
    low = max(0.0, state.low - rank - SLACK)
    counts = list(state.counts)
    counts[int(_bins_of(np.array([rank]))[0])] += 1
    alarms = [name for name, sum_ in (("rise", high), ("fall", low)) if sum_ > monitor.cusum_limit]
    if sum(counts) == monitor.window:
        expected = np.bincount(_bins_of(ranks_among(reference, reference)), minlength=N_BINS)
        if stability_index(counts, expected) > monitor.psi_limit:
            alarms.append("spread")
        counts = [0] * N_BINS
    return replace(state, seen=state.seen + 1, high=high, low=low, counts=tuple(counts), alarms=tuple(alarms))


def ranks_among(reference: Floats, values: ArrayLike) -> Floats:
    """Ranks among ascending reference values, from -1 (below all) to 1; equal values share theirs."""
    found = np.asarray(values, np.float64)
    below, up_to = np.searchsorted(reference, found, "left"), np.searchsorted(reference, found, "right")
    return (below + up_to + 1) / (len(reference) + 1) - 1


def cusum_paths(ranks: Floats) -> tuple[Floats, Floats]:
    """Two-sided CUSUM (Page, 1954) after each rank: S = max(0, S + rank - slack), and the same for -rank; (n,) each."""
    sums = [np.cumsum(sign * ranks - SLACK) for sign in (1, -1)]
    high, low = (each - np.minimum(np.minimum.accumulate(each), 0) for each in sums)
    return high, low


def stability_index(counts: ArrayLike, expected: ArrayLike) -> float:
    """PSI of two histograms, sum (a - e) log(a / e) over shares, with half a value added to every bin."""
    actual, wanted = ((np.asarray(each, np.float64) + 0.5) for each in (counts, expected))
    actual, wanted = actual / actual.sum(), wanted / wanted.sum()
    return float(((actual - wanted) * np.log(actual / wanted)).sum())


def stability_indices(ranks: Floats, calibration_ranks: Floats, window: int) -> list[float]:
    """PSI of each whole window of ranks against those of calibration."""
    expected = np.bincount(_bins_of(calibration_ranks), minlength=N_BINS)
    windows = (ranks[start : start + window] for start in range(0, len(ranks) - window + 1, window))
    return [stability_index(np.bincount(_bins_of(each), minlength=N_BINS), expected) for each in windows]


def _bins_of(ranks: Floats) -> NDArray[np.intp]:
    return np.minimum(((ranks + 1) / 2 * N_BINS).astype(np.intp), N_BINS - 1)
