"""Frontiers: against definitions, point by point, and against a sweep over prices in exact arithmetic."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smatter.errors import InvalidScores
from smatter.scores.pareto import (
    area_under_frontier,
    domination,
    domination_counts,
    frontier_points,
    supported_points,
)

points_of = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=12)
Points = list[tuple[int, int]]


def beats(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] <= second[0] and first[1] >= second[1] and first != second


def columns(points: Points) -> tuple[list[int], list[int]]:
    return [cost for cost, _ in points], [value for _, value in points]


@settings(max_examples=60, deadline=None)
@given(points_of)
def test_points_beat_as_defined(points: Points) -> None:
    expected = [[beats(first, second) for second in points] for first in points]
    assert domination(*columns(points)).tolist() == expected
    frontier = frontier_points(*columns(points)).tolist()
    assert sorted(frontier) == [each for each in range(len(points)) if not any(row[each] for row in expected)]
    assert [points[each] for each in frontier] == sorted(points[each] for each in frontier)


@settings(max_examples=60, deadline=None)
@given(points_of, st.lists(st.sampled_from("abc"), min_size=12, max_size=12))
def test_methods_count_the_points_that_they_beat(points: Points, names: list[str]) -> None:
    methods = names[: len(points)]
    found = domination_counts(*columns(points), methods)
    for (winner, loser), count in found.items():
        ours = [point for point, method in zip(points, methods, strict=True) if method == winner]
        theirs = [point for point, method in zip(points, methods, strict=True) if method == loser]
        assert count == sum(any(beats(first, second) for first in ours) for second in theirs)
    n_methods = len(set(methods))
    assert len(found) == n_methods * (n_methods - 1)


@settings(max_examples=60, deadline=None)
@given(points_of)
def test_supported_points_are_what_prices_find(points: Points) -> None:
    """Which points are best changes at the slopes between points: those and prices between them are all there are."""
    slopes = {
        Fraction(first[1] - second[1], first[0] - second[0])
        for first in points
        for second in points
        if first[0] != second[0] and first[1] - second[1] != 0
    }
    corners = sorted({Fraction(0), *(each for each in slopes if each > 0)})
    prices = [*corners, *((a + b) / 2 for a, b in pairwise(corners)), corners[-1] + 1]
    best = set()
    for price in prices:
        worth = [value - price * cost for cost, value in points]
        best |= {each for each, number in enumerate(worth) if number == max(worth)}
    frontier = set(frontier_points(*columns(points)).tolist())
    assert set(supported_points(*columns(points)).tolist()) == best & frontier


def test_a_point_below_the_hull_is_on_the_frontier_and_unsupported() -> None:
    costs, values = [1.0, 2.0, 3.0, 2.5], [0.5, 0.55, 0.9, 0.7]
    assert frontier_points(costs, values).tolist() == [0, 1, 3, 2]
    assert supported_points(costs, values).tolist() == [0, 2]


@settings(max_examples=60, deadline=None)
@given(points_of, st.integers(-2, 9), st.integers(1, 10))
def test_the_area_is_the_mean_over_budgets(points: Points, low: int, width: int) -> None:
    """The best affordable value is constant between whole costs: budgets in the middle of each step are enough."""
    best = []
    for budget in (low + each + 0.5 for each in range(width)):
        best.append(max((value for cost, value in points if cost <= budget), default=-1))
    found = area_under_frontier(*columns(points), low=low, high=low + width, nothing=-1)
    assert found == pytest.approx(np.mean(best))


@settings(max_examples=60, deadline=None)
@given(points_of, points_of)
def test_more_points_have_no_smaller_area(points: Points, more: Points) -> None:
    area = area_under_frontier(*columns(points), low=0, high=9)
    assert area_under_frontier(*columns(points + more), low=0, high=9) >= area - 1e-12


def test_bad_points_and_budgets_are_refused() -> None:
    with pytest.raises(InvalidScores, match="same tasks"):
        domination([1.0], [1.0, 2.0])
    with pytest.raises(InvalidScores, match="method of each"):
        domination_counts([1.0], [1.0], ["a", "b"])
    for low, high in ((1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)):
        with pytest.raises(InvalidScores, match="lower and a higher"):
            area_under_frontier([1.0], [1.0], low=low, high=high)
