"""Streams: bounds that hold at all times together, for losses that depend on each other."""

import numpy as np
import pytest
from known_losses import most_failures
from scipy.stats import beta

from smatter.certify.betting import MOST, bets_at_any_time
from smatter.certify.mean import mean_bound_betting, mean_bound_kl
from smatter.certify.streams import N_MEANS, block_mean_bound, mean_sequence_betting, running_mean_sequence
from smatter.errors import InvalidCertificate

DRAWS = 100


def test_the_mean_is_below_the_bound_at_all_times_together() -> None:
    generator, misses, looked, count = np.random.default_rng(0), 0, 0, np.arange(1, 401)
    for _ in range(DRAWS):
        losses = (generator.random(400) < 0.3).astype(float)
        misses += (mean_sequence_betting(losses, 0.1) < 0.3).any()
        errors = np.cumsum(losses)
        looked += (beta.ppf(0.9, errors + 1, count - errors)[20:] < 0.3).any()  # the binomial tail, after each task
    assert misses / DRAWS <= most_failures(0.1, DRAWS) < looked / DRAWS, "looking often at a bound for once fails"


def test_bounds_are_those_of_a_direct_search() -> None:
    losses = np.random.default_rng(1).beta(2, 6, 120)
    bounds = mean_sequence_betting(losses, 0.05)
    bets = bets_at_any_time(losses, 0.05)
    for n in (30, 120):
        refuted = [
            mean
            for mean in np.arange(N_MEANS) / N_MEANS
            if np.cumprod(1 + np.minimum(bets, MOST / (1 - mean)) * (mean - losses))[:n].max() >= 20
        ]
        assert bounds[n - 1] == pytest.approx(min(refuted, default=1.0))
    assert (np.diff(bounds) <= 0).all() and bounds[0] == 1.0


def drifting(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Each loss is expected to be what the last ones were, or so: nothing is constant or independent."""
    losses, expected = np.empty(n), np.empty(n)
    level = 0.3
    for index in range(n):
        expected[index] = level
        losses[index] = float(generator.random() < level)
        level = float(np.clip(level + 0.05 * (losses[index] - level) + 0.02 * generator.normal(), 0.02, 0.98))
    return losses, expected


def test_the_running_mean_of_a_drifting_stream_is_bounded_at_all_times() -> None:
    generator, misses, gaps = np.random.default_rng(2), 0, []
    for _ in range(DRAWS):
        losses, expected = drifting(generator, 500)
        bounds = running_mean_sequence(losses, 0.1)
        truth = np.cumsum(expected) / np.arange(1, 501)
        misses += (bounds < truth).any()
        gaps.append(bounds[-1] - losses.mean())
    assert misses / DRAWS <= most_failures(0.1, DRAWS)
    assert np.mean(gaps) < 0.12, "it says something"


def test_the_running_bound_sees_small_variance() -> None:
    assert running_mean_sequence(np.full(2000, 0.4), 0.05)[-1] - 0.4 < 0.01


def moving_average(generator: np.random.Generator, n: int, reach: int) -> np.ndarray:
    """Independent beyond `reach`, strongly dependent within; mean 1/2."""
    noise = generator.random(n + reach)
    sums = np.convolve(noise - 0.5, np.ones(reach + 1), "valid")
    return (sums > 0).astype(float)


def test_blocks_that_are_apart_bound_a_dependent_stream_where_a_plain_bound_fails() -> None:
    generator, draws, misses, plain = np.random.default_rng(3), 200, 0, 0
    for _ in range(draws):
        losses = moving_average(generator, 1200, 20)
        misses += block_mean_bound(losses, 20, 20, 0.1).value < 0.5
        plain += mean_bound_betting(losses, 0.1).value < 0.5
    assert misses / draws <= most_failures(0.1, draws) < plain / draws


def test_mixing_is_paid_for_by_the_number_of_blocks() -> None:
    losses = moving_average(np.random.default_rng(4), 200, 3)
    bound = block_mean_bound(losses, 10, 10, 0.1, mixing=0.005, bound=mean_bound_kl)
    blocks = losses.reshape(10, 20)[:, :10].mean(axis=1)
    assert bound.value == mean_bound_kl(blocks, 0.1 - 9 * 0.005).value
    assert bound.delta == 0.1 and bound.n == 200 and "10 blocks of 10" in bound.method
    with pytest.raises(InvalidCertificate, match="widen the gap"):
        block_mean_bound(losses, 10, 10, 0.1, mixing=0.02)
    with pytest.raises(InvalidCertificate, match="too few"):
        block_mean_bound(losses, 300, 10, 0.1)
