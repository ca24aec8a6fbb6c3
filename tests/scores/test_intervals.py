"""Intervals: agreement with scipy and with the closed forms that a bootstrap approaches."""

import math

import numpy as np
import pytest
from scipy import stats

from smatter.errors import InvalidScores
from smatter.scores.intervals import bootstrap_interval, clustered_interval, mean_interval, paired_difference


def clusters_of(n_clusters: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Values that are alike within clusters of one to five, and the cluster of each."""
    generator = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(n_clusters), generator.integers(1, 6, n_clusters))
    return generator.normal(size=n_clusters)[clusters] + 0.3 * generator.normal(size=len(clusters)), clusters


def test_the_mean_of_many_has_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(2, 3, 200)
    low, high = stats.norm.interval(0.95, values.mean(), stats.sem(values))
    found = mean_interval(values.tolist())
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high))


def test_what_both_have_in_common_does_not_widen_a_difference() -> None:
    generator = np.random.default_rng(1)
    common, own = generator.normal(0, 10, 100), generator.normal(0, 1, 100)
    found = paired_difference((common + own).tolist(), common.tolist())
    assert found.half == pytest.approx(mean_interval(own.tolist()).half)


def test_clusters_of_one_have_students_interval() -> None:
    values = np.random.default_rng(2).normal(size=12)
    found = clustered_interval(values.tolist(), range(12))
    low, high = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_bootstrap_of_clusters_approaches_the_clustered_interval() -> None:
    values, clusters = clusters_of(400, 3)
    expected = clustered_interval(values.tolist(), clusters.tolist())
    generator = np.random.default_rng(4)
    found = bootstrap_interval(lambda rows: values[rows].mean(), clusters, generator=generator, n_resamples=4000)
    assert found.mean == pytest.approx(expected.mean)
    assert found.half == pytest.approx(expected.half, rel=0.06)
    independent = mean_interval(values.tolist())
    assert found.half > 1.4 * independent.half  # rows drawn one by one would miss that clusters are alike


def test_clusters_come_whole() -> None:
    clusters = ["a", "b", "a", "b", "c"]
    seen = set()

    def statistic(rows: np.ndarray) -> float:
        counts = np.bincount(rows, minlength=5)
        assert counts[0] == counts[2] and counts[1] == counts[3]
        seen.add(tuple(counts.tolist()))
        return 0.0

    bootstrap_interval(statistic, clusters, generator=np.random.default_rng(0), n_resamples=300)
    assert len(seen) == 10  # multisets of three clusters out of three; all rows once is one of them


def test_the_order_of_rows_does_not_matter_within_clusters() -> None:
    values, clusters = clusters_of(30, 5)
    order = np.lexsort((-values, clusters))

    def interval(column: np.ndarray) -> tuple[float, float]:
        found = bootstrap_interval(
            lambda rows: float(np.median(column[rows])), clusters, generator=np.random.default_rng(1)
        )
        return found.low, found.high

    assert interval(values[order]) == interval(values)


def test_the_interval_covers_as_often_as_it_says() -> None:
    generator = np.random.default_rng(7)
    hits = 0
    for sample in generator.exponential(size=(200, 80)):
        found = bootstrap_interval(
            lambda rows, sample=sample: sample[rows].mean(), range(80), generator=generator, n_resamples=300
        )
        hits += found.low <= 1 <= found.high
    assert stats.binomtest(hits, 200, 0.93).pvalue > 1e-3


def test_undefined_resamples_take_the_ends_away() -> None:
    def half_the_time(rows: np.ndarray) -> float:
        return 1.0 if np.bincount(rows, minlength=2)[0] != 1 else math.nan

    found = bootstrap_interval(half_the_time, range(2), generator=np.random.default_rng(0))
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_one_cluster_says_nothing() -> None:
    found = bootstrap_interval(lambda rows: float(len(rows)), ["a", "a"], generator=np.random.default_rng(0))
    assert (found.mean, found.low, found.high) == (2, -math.inf, math.inf)
    assert clustered_interval([1.0, 2.0], ["a", "a"]).high == math.inf


def test_what_is_not_paired_is_refused() -> None:
    with pytest.raises(InvalidScores, match="same tasks"):
        paired_difference([1.0], [1.0, 2.0])
    with pytest.raises(InvalidScores, match="cluster of each"):
        clustered_interval([1.0], ["a", "b"])
