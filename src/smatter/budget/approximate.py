"""Allocations without a table: greedy by value per cost, and the linear relaxation, rounded.

They are what exact allocation is compared with, and the relaxation's price says what a little more budget is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from smatter.budget.knapsack import ROUNDING, Allocation, Levels, choosable, rooms
from smatter.budget.ranked import Floats, Ranked
from smatter.errors import InvalidSettings


def greedy(ranked: Ranked, budgets: float | Sequence[float]) -> Allocation:
    """Raise the module whose next levels add the most value per cost, as long as any fits.

    Several levels may be taken at once: the first unit pays for the module to be on, which only more of them make up
    for. With several resources a cost is the sum of its shares of the budgets. It can be arbitrarily bad: a unit worth
    a little more per cost may leave no room for one that is worth all.
    """
    room = rooms(ranked, budgets)
    modules = choosable(ranked, room)
    at, left = [0] * len(modules), room
    scale = np.where(room > 0, room, 1.0)
    steps = [_best_step(module, 0, left, scale) for module in modules]
    while True:
        index = max(range(len(steps)), key=lambda each: steps[each].rate)
        step, module = steps[index], modules[index]
        if step.rate <= 0:
            break
        if (step.costs <= left + ROUNDING * scale).all():
            at[index], left = step.level, left - step.costs
        steps[index] = _best_step(module, at[index], left, scale)  # also where the step found before fits no more
    return _allocation(ranked, modules, at, np.inf)


@dataclass(frozen=True, eq=False)
class _Raise:
    """Levels of one module to add at once: how many, value per cost, and costs; a rate of zero where none fits."""

    level: int
    rate: float
    costs: Floats


def _best_step(module: Levels, at: int, left: Floats, scale: Floats) -> _Raise:
    """The levels above one that fit and have the largest value per cost."""
    extra = module.costs[:, at + 1 :] - module.costs[:, [at]]
    if not extra.shape[1]:
        return _Raise(at, 0.0, left * 0)
    gains = module.values[at + 1 :] - module.values[at]
    share = np.maximum((extra / scale[:, None]).sum(axis=0), 1e-300)  # what is free comes first
    rates = np.where((extra <= left[:, None] + ROUNDING * scale[:, None]).all(axis=0), gains / share, 0.0)
    best = int(rates.argmax())
    return _Raise(at + 1 + best, float(rates[best]), extra[:, best])


@dataclass(frozen=True)
class Relaxation:
    """The best allocation if levels could be taken in part.

    Args:
        shares: open share of each module's units; one of them may lie between two levels.
        value: what that would be worth: no allocation is worth more.
        price: value of a little more budget, per unit of it.
        rounded: an allocation made of it.
    """

    shares: Mapping[str, float]
    value: float
    price: float
    rounded: Allocation

    @property
    def integrality_gap(self) -> float:
        """What rounding lost, and what no allocation can have, together."""
        return self.value - self.rounded.value


def relax(ranked: Ranked, budget: float) -> Relaxation:
    """Solve the linear relaxation for one resource, and round it.

    Only corners of a module's concave hull of (cost, value) are used. Its segments, over all modules, are taken by
    slope until one does not fit; that one is taken in part. Rounding leaves it out, or takes its end and nothing else,
    whichever is worth more: at least half of the best, since the two together are worth more than the relaxation.
    """
    if len(ranked.resources) > 1:
        raise InvalidSettings("the relaxation is for one resource: allocate takes several")
    room = rooms(ranked, budget)
    modules = choosable(ranked, room)
    segments = [
        (slope, index, low, high)
        for index, module in enumerate(modules)
        for slope, low, high in _hull(module.costs[0], module.values)
    ]
    segments.sort(key=lambda segment: -segment[0])
    at, left, price = [0] * len(modules), float(room[0]), 0.0
    broken, end, part = 0, 0, 0.0  # the module that is taken in part, up to which level, and what part
    for slope, index, low, high in segments:
        cost = float(modules[index].costs[0, high] - modules[index].costs[0, low])
        if cost > left + ROUNDING * room[0]:
            price, broken, end, part = slope, index, high, left / cost
            break
        at[index], left = high, left - cost
    alone = [end if index == broken else 0 for index in range(len(modules))]
    value = sum(float(module.values[n]) for module, n in zip(modules, at, strict=True))
    value += part * float(modules[broken].values[end] - modules[broken].values[at[broken]])
    opened = [float(module.numbers[n]) for module, n in zip(modules, at, strict=True)]
    opened[broken] += part * float(modules[broken].numbers[end] - opened[broken])
    shares = {name: n / len(ranked.modules[name].units) for name, n in zip(ranked.modules, opened, strict=True)}
    rounded = max((_allocation(ranked, modules, each, value) for each in (at, alone)), key=lambda found: found.value)
    return Relaxation(shares, value, float(price), rounded)


def _hull(costs: Floats, values: Floats) -> list[tuple[float, int, int]]:
    """Segments of the upper concave hull of points with rising costs: slope, first and last point."""
    corners: list[int] = []
    for point in range(len(costs)):
        while len(corners) > 1 and _slope(costs, values, corners[-2], corners[-1]) <= _slope(
            costs, values, corners[-1], point
        ):
            corners.pop()
        corners.append(point)
    return [(_slope(costs, values, low, high), low, high) for low, high in pairwise(corners)]


def _slope(costs: Floats, values: Floats, low: int, high: int) -> float:
    return float(values[high] - values[low]) / max(float(costs[high] - costs[low]), 1e-300)


def _allocation(ranked: Ranked, modules: Sequence[Levels], at: Sequence[int], bound: float) -> Allocation:
    levels = {name: int(each.numbers[n]) for name, each, n in zip(ranked.modules, modules, at, strict=True)}
    return Allocation(levels, ranked.value(levels), tuple(ranked.cost(levels).tolist()), bound)
