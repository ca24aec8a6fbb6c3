"""Conformal quantiles: the least rank that promises, coverage as promised, too few values."""

import numpy as np

from smatter.algebra.conformal import conformal_quantile, conformal_rank


def test_the_rank_is_the_least_that_promises() -> None:
    """A new score is below the r-th of n with probability r / (n + 1), exactly."""
    for n in (1, 9, 19, 20, 99):
        for delta in (0.05, 0.1, 0.3):
            rank = conformal_rank(n, delta)
            assert rank / (n + 1) >= 1 - delta - 1e-12 > (rank - 1) / (n + 1) - 1e-9


def test_quantiles_cover_as_often_as_they_promise() -> None:
    generator = np.random.default_rng(0)
    covered = []
    for _ in range(2000):
        values = generator.lognormal(size=31)
        covered.append(values[-1] <= conformal_quantile(values[:-1], 0.1))
    assert 0.88 < float(np.mean(covered)) < 0.94  # at least 0.9, at most 0.9 + 1 / 31, and chance


def test_too_few_values_have_no_quantile() -> None:
    assert conformal_quantile([1.0] * 5, 0.1) == conformal_quantile([], 0.1) == float("inf")
    assert conformal_quantile(np.arange(18), 0.05) == float("inf") > conformal_quantile(np.arange(19), 0.05)
