"""Accuracy against cost: which points are beaten, the frontier of the others, and its area (AutoBudget paper, sections
6 and 8).

A point has a cost, of which less is better, and a value, of which more is better.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smatter.errors import InvalidScores
from smatter.scores.arrays import Floats, Groups, Rows, paired_values, rows_of_groups


def domination(costs: ArrayLike, values: ArrayLike) -> NDArray[np.bool_]:
    """Which points are beaten by which: [i, j] if i costs no more than j, is worth no less, and is not its equal.

    Args:
        costs: of each point, (n,).
        values: of each point, (n,).
    """
    cost, value = _points(costs, values)
    no_worse = (cost[:, None] <= cost) & (value[:, None] >= value)
    return np.asarray(no_worse & ~no_worse.T)


def domination_counts(costs: ArrayLike, values: ArrayLike, methods: Groups) -> dict[tuple[Hashable, Hashable], int]:
    """For each pair of methods how many points of the second some point of the first beats.

    Args:
        costs: of each point, (n,).
        values: of each point, (n,).
        methods: whose point it is, (n,).
    """
    beats = domination(costs, values)
    if len(methods) != len(beats):
        raise InvalidScores(f"{len(beats)} points of {len(methods)} methods: give the method of each point")
    rows = rows_of_groups(methods)
    return {
        (winner, loser): int(beats[np.ix_(rows[winner], rows[loser])].any(axis=0).sum())
        for winner in rows
        for loser in rows
        if winner != loser
    }


def frontier_points(costs: ArrayLike, values: ArrayLike) -> Rows:
    """Numbers of the points that none beats, from the cheapest to the dearest; equal ones are all there."""
    cost, _ = _points(costs, values)
    unbeaten = np.flatnonzero(~domination(costs, values).any(axis=0))
    return unbeaten[np.argsort(cost[unbeaten], kind="stable")]


def supported_points(costs: ArrayLike, values: ArrayLike) -> Rows:
    """Numbers of the points of the frontier that maximise value - mu cost for some price mu >= 0.

    These are the only ones that a sweep over prices can find: the corners and edges of the concave hull. A point of
    the frontier below the hull is found by a limit on cost alone.

    >>> supported_points([1.0, 2.0, 3.0], [0.0, 0.25, 1.0])
    array([0, 2])
    """
    cost, value = _points(costs, values)
    hull: list[int] = []
    for point in frontier_points(costs, values).tolist():
        while len(hull) > 1 and _is_below(hull[-1], hull[-2], point, cost, value):
            hull.pop()
        hull.append(point)
    return np.array(hull, np.intp)


def area_under_frontier(costs: ArrayLike, values: ArrayLike, *, low: float, high: float, nothing: float = 0.0) -> float:
    """The mean over budgets from low to high of the best value that a budget affords.

    Args:
        costs: of each point, (n,); in logarithms if budgets are compared by ratios.
        values: of each point, (n,).
        low: smallest budget, in the unit of costs.
        high: largest budget.
        nothing: the value of a budget that affords no point.

    >>> area_under_frontier([1.0, 3.0], [0.5, 0.75], low=1.0, high=5.0)
    0.625
    """
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InvalidScores(f"budgets from {low} to {high}: give a lower and a higher one")
    cost, value = _points(costs, values)
    order = np.argsort(cost, kind="stable")
    ends = np.concatenate([[low], np.clip(cost[order], low, high), [high]])
    best = np.concatenate([[nothing], np.maximum.accumulate(value[order])])
    return float(np.diff(ends) @ best / (high - low))


def _is_below(middle: int, left: int, right: int, cost: Floats, value: Floats) -> bool:
    """Is the middle point below the line from the left to the right one? Not if it is on it."""
    rise = (value[middle] - value[left]) * (cost[right] - cost[left])
    return bool(rise < (value[right] - value[left]) * (cost[middle] - cost[left]))


def _points(costs: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    return paired_values(costs, values, ("costs", "values"))
