"""Tails: CVaR against its variational form, quantiles against their definition, reductions in pairs."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from smatter.errors import InvalidScores
from smatter.scores.tail import (
    cvar_by_group,
    cvar_difference,
    cvar_of,
    cvar_reduction,
    quantile_of,
    worst_group_mean,
)

losses_of_tasks = st.lists(st.floats(0, 10), min_size=1, max_size=30)
shares = st.floats(0.01, 1)


@settings(max_examples=60, deadline=None)
@given(losses_of_tasks, shares)
def test_cvar_is_the_least_of_its_variational_form(losses: list[float], share: float) -> None:
    """The objective is convex and piecewise linear, so its least value is at one of the losses (equation 2)."""
    sample = np.array(losses)
    least = min(t + np.maximum(sample - t, 0).mean() / share for t in losses)
    assert cvar_of(losses, share) == pytest.approx(least, abs=1e-9)


def test_cvar_agrees_with_a_minimiser() -> None:
    sample = np.random.default_rng(0).exponential(size=137)
    found = minimize_scalar(lambda t: t + np.maximum(sample - t, 0).mean() / 0.13, bounds=(0, 10), method="bounded")
    assert cvar_of(sample, 0.13) == pytest.approx(found.fun, abs=1e-5)


def test_cvar_of_known_distributions() -> None:
    """Of a uniform loss 1 - rho / 2; of an exponential one 1 - log rho."""
    middle = (np.arange(200_000) + 0.5) / 200_000
    for share in (0.05, 0.1, 0.2, 1.0):
        assert cvar_of(middle, share) == pytest.approx(1 - share / 2, abs=1e-6)
        assert cvar_of(-np.log(middle), share) == pytest.approx(1 - math.log(share), abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(losses_of_tasks, shares, st.randoms())
def test_cvar_lies_between_mean_and_maximum_in_any_order(losses: list[float], share: float, random) -> None:
    shuffled = losses.copy()
    random.shuffle(shuffled)
    found = cvar_of(losses, share)
    assert found == pytest.approx(cvar_of(shuffled, share), abs=1e-9)
    assert np.mean(losses) - 1e-9 <= found <= max(losses) + 1e-9
    assert cvar_of(losses, 1) == pytest.approx(np.mean(losses))


@settings(max_examples=60, deadline=None)
@given(losses_of_tasks, st.sampled_from([0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0]))
def test_quantiles_are_the_smallest_losses_that_enough_do_not_exceed(losses: list[float], level: float) -> None:
    enough = [each for each in losses if sum(other <= each for other in losses) >= level * len(losses) - 1e-9]
    assert quantile_of(losses, level) == min(enough)


def test_groups_are_scored_apart() -> None:
    losses, groups = [0.1, 0.9, 0.2, 0.4, 0.6], ["blur", "noise", "blur", "noise", "noise"]
    worst = worst_group_mean(losses, groups)
    assert (worst.group, worst.n_tasks) == ("noise", 3)
    assert worst.mean == pytest.approx(1.9 / 3)
    assert cvar_by_group(losses, groups, 0.5) == pytest.approx({"blur": 0.2, "noise": (0.9 + 0.5 * 0.6) / 1.5})


def test_a_tail_that_is_a_tenth_lower_everywhere_is_a_tenth_lower() -> None:
    reference = np.random.default_rng(1).exponential(size=300)
    found = cvar_reduction(0.9 * reference, reference, 0.1, np.arange(300) // 3, generator=np.random.default_rng(2))
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))


def test_differences_pair_tasks_but_not_tails() -> None:
    """Two methods that are bad on different tasks have the same tail: no task's own difference shows that."""
    generator = np.random.default_rng(3)
    first = generator.exponential(size=400)
    found = cvar_difference(first, first[::-1], 0.1, np.arange(400), generator=generator)
    assert found.mean == pytest.approx(0, abs=1e-12)
    assert found.low < 0 < found.high
    shifted = cvar_difference(first - 0.25, first, 0.1, np.arange(400), generator=generator)
    assert (shifted.low, shifted.mean, shifted.high) == pytest.approx((-0.25, -0.25, -0.25))


def test_variants_of_one_draw_widen_the_interval() -> None:
    generator = np.random.default_rng(4)
    draws = np.repeat(np.arange(60), 6)
    first, second = (generator.exponential(size=60)[draws] for _ in range(2))
    alike = cvar_difference(first, second, 0.2, draws, generator=np.random.default_rng(0))
    apart = cvar_difference(first, second, 0.2, np.arange(360), generator=np.random.default_rng(0))
    assert alike.half > 1.7 * apart.half


@pytest.mark.slow
def test_the_interval_of_a_tail_covers_nearly_as_often_as_it_says() -> None:
    """Two methods whose tasks are exchangeable: the reduction is zero, and draws make their variants alike."""
    generator = np.random.default_rng(5)
    draws = np.repeat(np.arange(168), 6)
    hits = 0
    for _ in range(400):
        hardness = generator.normal(size=168)[draws] + 0.7 * generator.normal(size=len(draws))
        own = hardness + 0.25 * generator.normal(size=(2, len(draws)))
        first, second = generator.binomial(75, 1 / (1 + np.exp(-own))) / 75
        found = cvar_reduction(first, second, 0.1, draws, generator=generator, n_resamples=300)
        hits += found.low <= 0 <= found.high
    assert 0.89 < hits / 400 < 0.98


def test_a_reference_without_losses_has_no_reduction() -> None:
    found = cvar_reduction([0.0, 0.1], [0.0, 0.0], 0.5, ["a", "b"], generator=np.random.default_rng(0))
    assert math.isnan(found.mean) and found.low == -math.inf and found.high == math.inf


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, math.nan])
def test_shares_outside_their_range_are_refused(share: float) -> None:
    with pytest.raises(InvalidScores, match="at most 1"):
        cvar_of([1.0], share)
    with pytest.raises(InvalidScores, match="at most 1"):
        quantile_of([1.0], share)


def test_numbers_that_cannot_be_scored_are_refused() -> None:
    with pytest.raises(InvalidScores, match="row 1 is nan"):
        cvar_of([1.0, math.nan], 0.1)
    with pytest.raises(InvalidScores, match="at least one task"):
        cvar_of([], 0.1)
    with pytest.raises(InvalidScores, match="same tasks"):
        cvar_reduction([1.0], [1.0, 2.0], 0.1, ["a"], generator=np.random.default_rng(0))
    with pytest.raises(InvalidScores, match="group of each"):
        cvar_difference([1.0], [1.0], 0.1, ["a", "b"], generator=np.random.default_rng(0))
    with pytest.raises(InvalidScores, match="group of each"):
        worst_group_mean([1.0], [])
