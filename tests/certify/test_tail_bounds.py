"""Bounds of CVaR: they hold as often as they say, agree with other forms of the same bound, and meet wishes."""

import numpy as np
import pytest
from known_losses import SHAPES, coin_shape, failures, most_failures

from smatter.certify.tail import (
    CVAR_BOUNDS,
    brown_radius,
    cvar_bound_betting,
    cvar_bound_brown,
    cvar_bound_dkw,
    cvar_bound_pac_bayes,
    dkw_radius,
    tasks_for_cvar,
)
from smatter.errors import InvalidCertificate

DRAWS = 200


@pytest.mark.parametrize("method", CVAR_BOUNDS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_bounds_fail_as_rarely_as_they_say(method: str, shape) -> None:
    rate = failures(lambda x: CVAR_BOUNDS[method](x, 0.2, 0.1).value, shape.cvar(0.2), shape, 200, DRAWS)
    assert rate <= most_failures(0.1, DRAWS)


def test_the_betting_bound_can_fail() -> None:
    shape = coin_shape(0.1)
    rate = failures(lambda x: cvar_bound_betting(x, 0.2, 0.6).value, shape.cvar(0.2), shape, 200, DRAWS)
    assert rate > most_failures(0.1, DRAWS)


def test_shapes_know_their_cvar() -> None:
    for shape in SHAPES:
        losses = shape.draw(np.random.default_rng(0), 100_000)
        assert cvar_bound_dkw(losses, 0.2, 0.05).estimate == pytest.approx(shape.cvar(0.2), abs=0.02)
        assert losses.mean() == pytest.approx(shape.mean, abs=0.005)


def test_the_band_is_the_largest_distribution_inside_it() -> None:
    """Moving the mass by hand, loss by loss, gives the same value."""
    losses = np.sort(np.random.default_rng(0).random(50))
    mass, left = np.full(51, 1 / 50), dkw_radius(50, 0.1)
    mass[50] = left
    for index in range(50):
        taken = min(mass[index], left)
        mass[index] -= taken
        left -= taken
    points, tail, value = np.append(losses, 1.0), 0.3, 0.0
    for index in reversed(range(51)):
        taken = min(mass[index], tail)
        value += taken * points[index]
        tail -= taken
    assert cvar_bound_dkw(losses, 0.3, 0.1).value == pytest.approx(value / 0.3)


def test_the_whole_of_the_tasks_is_the_mean() -> None:
    losses = np.random.default_rng(0).random(500)
    assert cvar_bound_brown(losses, 1.0, 0.05).estimate == pytest.approx(losses.mean())
    assert cvar_bound_betting(losses, 1.0, 0.05).gap < 0.06


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_betting_is_the_narrowest(shape) -> None:
    losses = shape.draw(np.random.default_rng(0), 5000)
    gaps = {method: bound(losses, 0.1, 0.05).gap for method, bound in CVAR_BOUNDS.items()}
    assert gaps["betting"] <= min(gaps["dkw"], gaps["brown"]) + 1e-12
    assert gaps["betting"] <= 0.08


def test_pac_bayes_holds_for_a_posterior_that_was_chosen_on_the_same_tasks() -> None:
    generator, prior, draws, misses, values = np.random.default_rng(0), np.full(10, 0.1), 100, 0, []
    truth = coin_shape(0.1).cvar(0.2)
    for _ in range(draws):
        losses = (generator.random((10, 200)) < 0.1).astype(float)
        posterior = np.zeros(10)
        posterior[losses.mean(axis=1).argmin()] = 1.0
        bound = cvar_bound_pac_bayes(losses, posterior, prior, 0.2, 0.1)
        misses += bound.value < truth
        values.append(bound.value)
    assert misses / draws <= most_failures(0.1, draws)
    assert np.mean(values) < 0.95, "it says something"


def test_pac_bayes_bounds_the_tail_of_the_average_from_its_members() -> None:
    """Two routers that fail on different tasks: their average never fails by more than half."""
    losses = np.zeros((2, 4000))
    losses[0, ::10], losses[1, 5::10] = 1.0, 1.0
    bound = cvar_bound_pac_bayes(losses, [0.5, 0.5], [0.5, 0.5], 0.2, 0.05)
    assert bound.estimate == pytest.approx(0.5) and bound.estimate < bound.value < 0.75
    with pytest.raises(InvalidCertificate, match="weights of sum 1"):
        cvar_bound_pac_bayes(losses, [0.5, 0.6], [0.5, 0.5], 0.2, 0.05)


def test_wishes_are_met_and_not_by_one_task_less() -> None:
    n = tasks_for_cvar(0.08, 0.1, 0.05, "brown")
    assert n == int(np.ceil(5 * np.log(60) / (0.1 * 0.08**2)))
    assert brown_radius(n, 0.1, 0.05) <= 0.08 < brown_radius(n - 1, 0.1, 0.05)
    n = tasks_for_cvar(0.08, 0.1, 0.05, "dkw", quantile=0.5)
    losses = np.where(np.arange(n) < 0.05 * n, 0.8, 0.5)
    assert cvar_bound_dkw(losses, 0.1, 0.05).gap == pytest.approx(0.08, rel=0.01)


def test_bad_numbers_are_refused() -> None:
    for share, delta in ((0.0, 0.05), (1.5, 0.05), (0.1, 0.0), (np.nan, 0.05)):
        with pytest.raises(InvalidCertificate):
            cvar_bound_dkw([0.1, 0.2], share, delta)
    with pytest.raises(InvalidCertificate, match="above 1/2"):
        cvar_bound_dkw([0.1, 0.2], 0.1, 0.7)
