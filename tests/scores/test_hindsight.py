"""Hindsight: on noise the crossed one gains nothing and the naive one does; all splits one by one."""

import math
from itertools import combinations

import numpy as np
import pytest

from smatter.errors import InvalidScores
from smatter.scores.hindsight import hindsight_of, split_halves
from smatter.scores.intervals import mean_interval


def brute(losses: np.ndarray, compared: np.ndarray) -> float:
    """Crossed hindsight over all splits into halves."""
    n = losses.shape[1]
    found = []
    for first in combinations(range(n), n // 2):
        second = [each for each in range(n) if each not in first]
        lost = 0.0
        for choosing, scoring in ((list(first), second), (second, list(first))):
            sums = compared[:, choosing].sum(axis=1)
            lost += losses[np.flatnonzero(sums == sums.min())][:, scoring].sum(axis=1).mean()
        found.append(lost / n)
    return float(np.mean(found))


def test_noise_gains_nothing_when_crossed_and_something_when_not() -> None:
    """Routings that are all right with the same chance, on 400 tasks of 30 queries."""
    generator = np.random.default_rng(0)
    naive, crossed = [], []
    for _ in range(400):
        errors = (generator.random((12, 30)) < 0.4).astype(float)
        found = hindsight_of(errors, generator=generator, n_splits=16)
        naive.append(errors[0].mean() - found.naive)
        crossed.append(errors[0].mean() - found.crossed)
    assert mean_interval(naive).low > 0.1
    gain = mean_interval(crossed)
    assert abs(gain.mean) < 2 * gain.half < 0.04


def test_a_routing_that_is_clearly_better_is_found_either_way() -> None:
    generator = np.random.default_rng(1)
    losses = generator.random((5, 40))
    losses[3] -= 5
    found = hindsight_of(losses, generator=generator)
    assert found.naive == pytest.approx(losses[3].mean()) and found.crossed == pytest.approx(losses[3].mean())


def test_a_real_difference_between_tasks_is_kept_in_part() -> None:
    """Each task has its own best routing by 0.1: the crossed gain is below that, the naive one above."""
    generator = np.random.default_rng(2)
    naive, crossed = [], []
    for task in range(300):
        chance = np.where(np.arange(6) == task % 6, 0.4, 0.5)
        errors = (generator.random((6, 40)) < chance[:, None]).astype(float)
        found = hindsight_of(errors, generator=generator, n_splits=16)
        naive.append(0.5 - found.naive)
        crossed.append(0.5 - found.crossed)
    assert mean_interval(naive).low > 0.1 > mean_interval(crossed).high
    assert mean_interval(crossed).low > 0


@pytest.mark.parametrize("n_queries", [6, 7])
def test_many_splits_approach_all_of_them(n_queries: int) -> None:
    generator = np.random.default_rng(3)
    losses, compared = generator.integers(0, 3, (4, n_queries)) / 2, generator.integers(0, 3, (4, n_queries)) / 2
    for chosen_by in (None, compared):
        expected = brute(losses, losses if chosen_by is None else chosen_by)
        found = hindsight_of(losses, generator=generator, chosen_by=chosen_by, n_splits=40_000)
        assert found.crossed == pytest.approx(expected, abs=4 * 0.5 / math.sqrt(40_000))


def test_naive_is_the_least_mean_and_what_is_compared_may_differ() -> None:
    generator = np.random.default_rng(4)
    losses, compared = generator.random((7, 20)), generator.random((7, 20))
    assert hindsight_of(losses, generator=generator).naive == pytest.approx(losses.mean(axis=1).min())
    best = compared.mean(axis=1).argmin()
    assert hindsight_of(losses, generator=generator, chosen_by=compared).naive == pytest.approx(losses[best].mean())


def test_the_order_of_routings_does_not_matter() -> None:
    generator = np.random.default_rng(5)
    errors = generator.integers(0, 2, (8, 10)).astype(float)  # few queries: many routings are equally good
    plain, flipped = (hindsight_of(each, generator=np.random.default_rng(6)) for each in (errors, errors[::-1]))
    assert plain.crossed == pytest.approx(flipped.crossed) and plain.naive == pytest.approx(flipped.naive)


def test_a_single_routing_leaves_no_choice() -> None:
    losses = np.random.default_rng(7).random((1, 9))
    found = hindsight_of(losses, generator=np.random.default_rng(0))
    assert found.naive == pytest.approx(losses.mean()) and found.crossed == pytest.approx(losses.mean())


def test_halves_are_halves_and_differ() -> None:
    halves = split_halves(9, 50, np.random.default_rng(0))
    assert set(halves.sum(axis=1).tolist()) == {4}
    assert len(np.unique(halves, axis=0)) > 25


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        (np.zeros(3), "row for each routing"),
        (np.zeros((0, 3)), "row for each routing"),
        (np.zeros((2, 1)), "at least 2"),
        (np.array([[0.0, math.nan]]), "routing 0 has loss nan on query 1"),
    ],
)
def test_tables_that_cannot_be_split_are_refused(losses: np.ndarray, words: str) -> None:
    with pytest.raises(InvalidScores, match=words):
        hindsight_of(losses, generator=np.random.default_rng(0))


def test_tables_that_do_not_fit_and_no_splits_are_refused() -> None:
    with pytest.raises(InvalidScores, match="same table"):
        hindsight_of(np.zeros((2, 4)), generator=np.random.default_rng(0), chosen_by=np.zeros((2, 3)))
    with pytest.raises(InvalidScores, match="at least 1"):
        hindsight_of(np.zeros((2, 4)), generator=np.random.default_rng(0), n_splits=0)
