"""Selective risk: exact binomial tails, conditional validity, and thresholds chosen on the same tasks."""

import numpy as np
import pytest
from known_losses import most_failures
from scipy.stats import binom, binomtest

from smatter.certify.mean import mean_bound_kl
from smatter.certify.selective import (
    binomial_lower,
    binomial_upper,
    learn_then_test,
    mean_bound_binomial,
    selective_bound,
)
from smatter.errors import InvalidCertificate


@pytest.mark.parametrize(("n_errors", "n"), [(0, 30), (3, 40), (39, 40), (40, 40)])
def test_binomial_limits_are_clopper_pearsons(n_errors: int, n: int) -> None:
    interval = binomtest(n_errors, n).proportion_ci(confidence_level=0.9)
    assert binomial_upper(n_errors, n, 0.05) == pytest.approx(interval.high)
    assert binomial_lower(n_errors, n, 0.05) == pytest.approx(interval.low)


def test_the_binomial_tail_fails_exactly_as_often_as_it_says() -> None:
    """Summed over all outcomes, not simulated."""
    for rate in (0.02, 0.1, 0.37):
        bounds = np.array([binomial_upper(k, 80, 0.1) for k in range(81)])
        assert float(binom.pmf(np.arange(81), 80, rate) @ (bounds < rate)) <= 0.1
    with pytest.raises(InvalidCertificate, match="0 or 1"):
        mean_bound_binomial([0.5, 1.0], 0.1)
    assert mean_bound_binomial([0.0] * 99 + [1.0], 0.1).value < mean_bound_kl([0.0] * 99 + [1.0], 0.1).value


def draw(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores in [0, 1]; a task errs with half its score as probability, so that risk up to t is t / 4."""
    scores = generator.random(n)
    return (generator.random(n) < scores / 2).astype(float), scores


def test_risk_and_coverage_at_a_fixed_threshold_hold() -> None:
    generator, draws, risk_misses, coverage_misses = np.random.default_rng(0), 400, 0, 0
    for _ in range(draws):
        losses, scores = draw(generator, 150)
        found = selective_bound(losses, scores, 0.4, 0.1, mean_bound_binomial)
        risk_misses += found.risk.value < 0.1
        coverage_misses += found.coverage_low > 0.4
        assert found.coverage == pytest.approx((scores <= 0.4).mean()) and found.risk.n == (scores <= 0.4).sum()
    assert max(risk_misses, coverage_misses) / draws <= most_failures(0.1, draws)
    with pytest.raises(InvalidCertificate, match="raise the threshold"):
        selective_bound(losses, scores, -1.0, 0.1)
    with pytest.raises(InvalidCertificate, match="for each task"):
        selective_bound(losses, scores[:-1], 0.5, 0.1)


@pytest.mark.parametrize("in_sequence", [False, True])
def test_a_threshold_chosen_on_the_same_tasks_keeps_the_wish(in_sequence: bool) -> None:
    generator, draws, misses, found, covers_less = np.random.default_rng(1), 200, 0, 0, 0
    thresholds = np.linspace(0.2, 1.0, 17)
    for _ in range(draws):
        losses, scores = draw(generator, 600)
        chosen = learn_then_test(
            losses, scores, thresholds, 0.12, 0.1, bound=mean_bound_binomial, in_sequence=in_sequence
        )
        found += chosen is not None
        misses += chosen is not None and chosen.threshold / 4 > 0.12
        covers_less += chosen is not None and chosen.coverage_low > chosen.threshold
        assert chosen is None or (chosen.risk.value <= 0.12 and chosen.risk.delta == 0.1)
    assert max(misses, covers_less) / draws <= most_failures(0.1, draws)
    assert found / draws > 0.5, "it finds a threshold"


def test_thresholds_that_accept_nothing_are_passed_over() -> None:
    losses, scores = draw(np.random.default_rng(2), 300)
    assert learn_then_test(losses, scores, [-1.0], 0.5, 0.1) is None
    chosen = learn_then_test(losses, scores, [-1.0, 0.5], 0.5, 0.1)
    assert chosen is not None and chosen.threshold == 0.5
    assert learn_then_test(losses, scores, [-1.0, 0.5], 0.5, 0.1, in_sequence=True) is None
