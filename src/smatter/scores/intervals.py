"""Means over tasks with their intervals; differences task by task."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from smatter.errors import InvalidScores
from smatter.scores.arrays import Groups, Rows, rows_of_groups

Z = 1.959963984540054
"""Of a two-sided interval that covers 95 %."""


@dataclass(frozen=True)
class Interval:
    """A mean, or another statistic, and its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half its width."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.half:.1f}"


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of independent values, by the normal approximation; for thirty or more.

    >>> str(mean_interval([1.0, 2.0, 3.0, 4.0]))
    '2.5 ± 1.3'
    """
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    half = Z * float(sample.std(ddof=1)) / math.sqrt(len(sample)) if len(sample) > 1 else math.inf
    return Interval(mean, mean - half, mean + half)


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Interval:
    """First minus second, task by task: what they have in common does not widen the interval."""
    if len(first) != len(second):
        raise InvalidScores(f"{len(first)} and {len(second)} values are not pairs: score both on the same tasks")
    return mean_interval([a - b for a, b in zip(first, second, strict=True)])


def clustered_interval(values: Sequence[float], clusters: Sequence[Hashable]) -> Interval:
    """The mean of values that are alike within clusters, such as tasks of one domain.

    The error is that of the clusters' sums around the mean (Liang and Zeger, 1986), with Student's t for as many
    clusters: other domains could have been there, and a few say little about them.

    Args:
        values: one for each task.
        clusters: the cluster of each.

    >>> str(clustered_interval([1.0, 1.0, 3.0, 3.0], ["a", "a", "b", "b"]))
    '2.0 ± 12.7'
    """
    from scipy.stats import t

    if len(values) != len(clusters):
        raise InvalidScores(f"{len(values)} values in {len(clusters)} clusters: give the cluster of each value")
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(sample.tolist(), clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    n_clusters = len(sums)
    if n_clusters < 2:
        return Interval(mean, -math.inf, math.inf)
    variance = n_clusters / (n_clusters - 1) * sum(each * each for each in sums.values()) / len(sample) ** 2
    half = float(t.ppf(0.975, n_clusters - 1)) * math.sqrt(variance)
    return Interval(mean, mean - half, mean + half)


def bootstrap_interval(
    statistic: Callable[[Rows], float], clusters: Groups, *, generator: np.random.Generator, n_resamples: int = 2000
) -> Interval:
    """Any statistic of tasks, and percentiles of it over resamples of whole clusters (Efron and Tibshirani, 1993).

    A comparison is paired if the statistic reads the same rows of both methods. A resample in which the statistic is
    undefined (NaN) counts as outside on both sides: an interval with many of them has no end.

    Args:
        statistic: from numbers of rows, in which a row may stand several times, to a number.
        clusters: of each row; what is drawn, such as the draw of a task whose variants are all among the rows.
        generator: draws the clusters.
        n_resamples: how many times.

    Returns:
        The statistic of all rows as `mean`, with 2.5 % of the resamples below and 2.5 % above the interval.

    >>> values = np.arange(100.0)
    >>> str(bootstrap_interval(lambda rows: values[rows].mean(), range(100), generator=np.random.default_rng(0)))
    '49.5 ± 5.6'
    """
    members = list(rows_of_groups(clusters).values())
    whole = float(statistic(np.arange(len(clusters))))
    if len(members) < 2:
        return Interval(whole, -math.inf, math.inf)
    drawn = generator.integers(len(members), size=(n_resamples, len(members))).tolist()
    found = np.array([statistic(np.concatenate([members[each] for each in resample])) for resample in drawn])
    # An order statistic on the outer side: one between two of them would mix a number with infinity.
    low = np.quantile(np.where(np.isnan(found), -np.inf, found), 0.025, method="lower")
    high = np.quantile(np.where(np.isnan(found), np.inf, found), 0.975, method="higher")
    return Interval(whole, float(low), float(high))
