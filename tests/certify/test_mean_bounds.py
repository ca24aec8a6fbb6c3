"""Bounds of a mean: they hold as often as they say, they order as theory says, wishes are met and not by one less."""

import numpy as np
import pytest
from known_losses import SHAPES, coin_shape, failures, most_failures
from scipy.optimize import brentq
from scipy.stats import binom

from smatter.certify.betting import bets_for_all, log_wealth, refuted_from
from smatter.certify.bound import UpperBound
from smatter.certify.mean import (
    MEAN_BOUNDS,
    bernstein_radius,
    binary_kl,
    kl_upper,
    mean_bound_bernstein,
    mean_bound_betting,
    mean_bound_hoeffding,
    mean_bound_kl,
    mean_bounds_of_choices,
    tasks_for_mean,
)
from smatter.errors import InvalidCertificate

DRAWS = 300


@pytest.mark.parametrize("method", MEAN_BOUNDS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_bounds_fail_as_rarely_as_they_say(method: str, shape) -> None:
    rate = failures(lambda x: MEAN_BOUNDS[method](x, 0.1).value, shape.mean, shape, 100, DRAWS)
    assert rate <= most_failures(0.1, DRAWS)


@pytest.mark.parametrize("method", ["kl", "betting"])
def test_sharp_bounds_would_fail_if_they_were_much_smaller(method: str) -> None:
    """A test of failures must be able to fail: nine times the claimed delta is found out."""
    shape = coin_shape(0.5)
    rate = failures(lambda x: MEAN_BOUNDS[method](x, 0.9).value, shape.mean, shape, 100, DRAWS)
    assert rate > most_failures(0.1, DRAWS)


def test_the_kl_bound_is_below_hoeffdings_and_inverts_kl() -> None:
    losses = np.linspace(0, 0.3, 200)
    kl, hoeffding = mean_bound_kl(losses, 0.05), mean_bound_hoeffding(losses, 0.05)
    assert kl.value < hoeffding.value == pytest.approx(0.15 + np.sqrt(np.log(20) / 400))
    assert 200 * binary_kl(kl.estimate, kl.value) == pytest.approx(np.log(20), rel=1e-9)
    assert kl_upper(0.0, 0.25) == pytest.approx(1 - np.exp(-0.25)) and kl_upper(1.0, 0.1) == 1.0


def test_the_kl_bound_of_errors_is_just_above_the_exact_tail() -> None:
    bound = mean_bound_kl([1.0] * 100 + [0.0] * 900, 0.05).value
    exact = brentq(lambda p: binom.cdf(100, 1000, p) - 0.05, 0.1, 0.2)
    assert exact < bound < exact + 0.01


def test_small_variance_is_seen_by_bernstein_and_betting_alone() -> None:
    losses = 0.5 + 0.01 * np.sin(np.arange(1000))
    gaps = {method: bound(losses, 0.05).gap for method, bound in MEAN_BOUNDS.items()}
    assert gaps["betting"] < gaps["bernstein"] < 0.01 < gaps["kl"] < gaps["hoeffding"]


def test_bernstein_is_its_formula() -> None:
    losses = np.arange(11) / 10
    log = np.log(2 / 0.05)
    expected = 0.5 + np.sqrt(2 * losses.var(ddof=1) * log / 11) + 7 * log / 30
    assert mean_bound_bernstein(losses, 0.05).value == min(1.0, expected)
    assert bernstein_radius(0.1, 1000, 0.05) == pytest.approx(
        np.sqrt(0.2 * log / 1000) + 7 * log / (3 * 999)
    )  # fmt: skip


def test_wealth_is_a_fair_game_and_rises_with_the_claim() -> None:
    """Over all 2^10 streams of a fair coin the mean wealth against the truth is 1."""
    streams = ((np.arange(1024)[:, None] >> np.arange(10)) & 1).astype(float)
    tops = np.ones(10)
    final = [np.exp(log_wealth(each, bets_for_all(each, 0.05), tops, 0.5)[-1]) for each in streams]
    assert np.mean(final) == pytest.approx(1, abs=1e-9)
    losses = np.random.default_rng(0).random(50)
    wealth = [log_wealth(losses, bets_for_all(losses, 0.05), np.ones(50), m)[-1] for m in np.linspace(0.01, 0.99, 99)]
    assert (np.diff(wealth) > 0).all()


def test_the_betting_bound_is_where_wealth_reaches_the_claim() -> None:
    losses = np.random.default_rng(1).beta(2, 5, 300)
    value = mean_bound_betting(losses, 0.05).value
    bets = bets_for_all(losses, 0.05)
    assert value == refuted_from(losses, bets, np.ones(300), 0.05)
    assert log_wealth(losses, bets, np.ones(300), value).max() == pytest.approx(np.log(20), abs=1e-6)


def test_a_choice_pays_for_its_candidates() -> None:
    generator = np.random.default_rng(0)
    misses, unpaid = 0, 0
    for _ in range(DRAWS):
        losses = (generator.random((20, 40)) < 0.5).astype(float)
        best = int(losses.mean(axis=1).argmin())
        misses += mean_bounds_of_choices(losses, 0.1, mean_bound_kl)[best].value < 0.5
        unpaid += mean_bound_kl(losses[best], 0.1).value < 0.5
    assert misses / DRAWS <= most_failures(0.1, DRAWS) < unpaid / DRAWS
    chosen = mean_bounds_of_choices(losses, 0.1, mean_bound_hoeffding)[0]
    assert chosen.delta == 0.1 and chosen.gap == pytest.approx(np.sqrt(np.log(20 / 0.1) / 80))


@pytest.mark.parametrize("method", ["hoeffding", "kl", "bernstein"])
def test_wishes_are_met_and_not_by_one_task_less(method: str) -> None:
    n = tasks_for_mean(0.03, 0.05, method, mean=0.2, variance=0.02)
    law = np.sqrt(0.02)

    def gap(count: int) -> float:
        half = count // 2
        losses = np.r_[np.full(half, 0.2 - law), np.full(half, 0.2 + law), [0.2] * (count % 2)]
        if method == "bernstein":
            return bernstein_radius(0.02, count, 0.05)
        return MEAN_BOUNDS[method](losses, 0.05).gap

    assert gap(n) <= 0.03 + 1e-12 < gap(n - 1) + 1e-9


def test_numbers_of_tasks_are_those_of_the_closed_form() -> None:
    assert tasks_for_mean(0.03, 0.05, "hoeffding") == int(np.ceil(np.log(20) / (2 * 0.03**2))) == 1665
    with pytest.raises(InvalidCertificate, match="hoeffding, kl, bernstein"):
        tasks_for_mean(0.03, 0.05, "betting")
    with pytest.raises(InvalidCertificate, match="infinitely many"):
        tasks_for_mean(0.0, 0.05, "kl")


@pytest.mark.parametrize("bound", MEAN_BOUNDS.values())
def test_bad_numbers_are_refused_in_one_line(bound) -> None:
    for losses, delta in (([], 0.05), ([0.1, np.nan], 0.05), ([0.1, 1.2], 0.05), ([[0.1]], 0.05), ([0.1, 0.2], 1.0)):
        with pytest.raises(InvalidCertificate) as raised:
            bound(losses, delta)
        assert "\n" not in str(raised.value) and ":" in str(raised.value)


def test_a_bound_that_says_nothing_says_so() -> None:
    few = mean_bound_hoeffding([0.5, 0.5], 0.05)
    assert few.vacuous and few.value == 1.0 and "vacuous" in str(few)
    many = mean_bound_hoeffding([0.5] * 1000, 0.05)
    assert not many.vacuous and str(many).startswith("mean loss at most 0.5387 with probability 0.95")
    with pytest.raises(InvalidCertificate):
        UpperBound("mean loss", "none", float("nan"), 0.0, 0.05, 1)
