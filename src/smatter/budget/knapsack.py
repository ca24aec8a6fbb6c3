"""Levels of modules worth the most within budgets: a multiple-choice knapsack, by dynamic programming.

    maximise  sum over l of value_l(n_l)   subject to   fixed_r + sum over l of cost_lr(n_l) <= B_r  for each resource r

With one resource, costs are rounded up to cells of B / n_cells, so that the result is never above the budget. It is the
best for those costs, and at least as good as any allocation with n open modules that leaves n cells of the budget free.
With several, the one that binds most is handled like that, and the others have prices (Lagrange) at the minimum of the
dual; the best allocation found that keeps all budgets is taken. Then nothing is exact, but `bound` says how much better
an allocation could be at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smatter.budget.ranked import Floats, Ranked
from smatter.errors import BudgetInfeasible, InvalidSettings

N_CELLS = 2000
MOST_PRICES = 40
"""Prices that are tried for several budgets; the dual's minimum is found after 5 to 15."""

ROUNDING = 1e-9
"""Share of a budget that sums of floats may be off by."""


@dataclass(frozen=True)
class Allocation:
    """Levels within budgets.

    Args:
        levels: open units of each module, best first.
        value: what they are worth.
        costs: what they cost, with what is fixed, in each resource.
        bound: no allocation within the budgets is worth more.
    """

    levels: Mapping[str, int]
    value: float
    costs: tuple[float, ...]
    bound: float

    @property
    def gap(self) -> float:
        """How much better an allocation could be at most."""
        return self.bound - self.value


@dataclass(frozen=True)
class Levels:
    """The levels of one module that an allocation may choose: dearer ones are worth more, and each fits alone.

    Args:
        numbers: open units of each, none first; (n_levels,).
        values: (n_levels,).
        costs: (n_resources, n_levels).
    """

    numbers: NDArray[np.int64]
    values: Floats
    costs: Floats


def rooms(ranked: Ranked, budgets: float | Sequence[float]) -> Floats:
    """What budgets leave beyond what is fixed, (n_resources,); budgets that nothing can keep are refused.

    Args:
        ranked: modules.
        budgets: one for each resource; infinite for none.
    """
    given, fixed = np.atleast_1d(np.asarray(budgets, np.float64)), np.array(ranked.fixed)
    if given.shape != fixed.shape:
        raise InvalidSettings(f"give one budget for each of {', '.join(ranked.resources)}")
    for budget, least, unit in zip(given.tolist(), ranked.fixed, ranked.resources, strict=True):
        if not budget >= 0:  # also rejects NaN
            raise InvalidSettings(f"a budget of {budget} {unit} is no budget: give a number that is not negative")
        if budget < least * (1 - ROUNDING):
            raise BudgetInfeasible(f"{budget:.6g} {unit} is below the smallest possible budget, {least:.6g} {unit}")
    return np.asarray(np.maximum(given - fixed, 0.0))


def choosable(ranked: Ranked, room: Floats) -> list[Levels]:
    """The levels of each module that fit alone and are worth more than every cheaper one."""
    found = []
    for module in ranked.modules.values():
        values, costs = module.level_values, module.level_costs
        fits = (costs <= room[:, None] * (1 + ROUNDING)).all(axis=0)
        better = np.concatenate([[True], values[1:] > np.maximum.accumulate(values)[:-1]])
        numbers = np.flatnonzero(fits & better)
        found.append(Levels(numbers, values[numbers], costs[:, numbers]))
    return found


def allocate(ranked: Ranked, budgets: float | Sequence[float], n_cells: int = N_CELLS) -> Allocation:
    """The best levels within all budgets; see the module's text for how exact it is.

    Args:
        ranked: units of modules, with values and costs.
        budgets: one for each resource, with what is fixed; infinite for none.
        n_cells: of the grid of costs.
    """
    room = rooms(ranked, budgets)
    modules = choosable(ranked, room)
    everything = np.sum([module.costs[:, -1] for module in modules], axis=0)
    scarce = np.flatnonzero(everything > room * (1 + ROUNDING))
    if scarce.size:
        by_need = scarce[np.argsort(-everything[scarce] / np.maximum(room[scarce], 1e-300), kind="stable")]
        choices, bound = _priced(modules, room, int(by_need[0]), by_need[1:], n_cells)
    else:
        choices, bound = [len(module.numbers) - 1 for module in modules], 0.0
    levels = {
        name: int(module.numbers[choice]) for name, module, choice in zip(ranked.modules, modules, choices, strict=True)
    }
    value = ranked.value(levels)
    return Allocation(levels, value, tuple(ranked.cost(levels).tolist()), max(bound, value))


def _priced(
    modules: Sequence[Levels], room: Floats, main: int, others: NDArray[np.int64], n_cells: int
) -> tuple[list[int], float]:
    """The best choices found, and a bound on all: prices of the other resources by cutting planes of the dual.

        dual(mu) = max over choices within room_main of  value - sum over r of mu_r (cost_r - room_r),   mu >= 0

    It is convex, and each choice found is a plane below it.
    """
    best, best_value = [0] * len(modules), 0.0
    planes = [(0.0, -room[others])]  # nothing open
    prices = np.zeros(len(others))
    bound = np.inf
    for _ in range(MOST_PRICES if others.size else 1):
        values = [module.values - prices @ module.costs[others] for module in modules]
        costs = [module.costs[main] for module in modules]
        choices = _table_choices(values, costs, room[main], n_cells)
        value = sum(module.values[n] for module, n in zip(modules, choices, strict=True))
        over = np.sum([module.costs[others, n] for module, n in zip(modules, choices, strict=True)], axis=0)
        over = over - room[others]
        loose = _table(values, [np.floor(_cells(each, room[main], n_cells)) for each in costs], n_cells)[-1][-1]
        bound = min(bound, float(loose + prices @ room[others]))
        kept = _filled(modules, choices, room) if (over <= ROUNDING * room[others]).all() else best
        kept_value = sum(module.values[n] for module, n in zip(modules, kept, strict=True))
        if kept_value > best_value:
            best, best_value = kept, kept_value
        lowest = max(float(height - prices @ slope) for height, slope in planes)
        if not others.size or value - prices @ over <= lowest + 1e-12 * max(1.0, abs(lowest)):
            break
        planes.append((float(value), over))
        prices = _lowest_point(planes)
    return best, bound


def _lowest_point(planes: Sequence[tuple[float, Floats]]) -> Floats:
    """Where the largest of the planes height - mu * slope is least, over mu >= 0."""
    from scipy.optimize import linprog  # a quarter of a second, which adapting does not need

    heights, slopes = np.array([height for height, _ in planes]), np.stack([slope for _, slope in planes])
    rows = np.hstack([-slopes, -np.ones((len(planes), 1))])
    objective = np.eye(rows.shape[1])[-1]
    limits = [(0, None)] * slopes.shape[1] + [(None, None)]
    return np.asarray(linprog(objective, A_ub=rows, b_ub=-heights, bounds=limits).x[:-1])


def _cells(costs: Floats, room: float, n_cells: int) -> Floats:
    """Costs in cells of the grid, not rounded yet; what the room is too small for is beyond the last cell."""
    if room <= 0:
        return np.where(costs > 0, n_cells + 1.0, 0.0)
    return costs * (n_cells / room)


def _table(values: Sequence[Floats], cells: Sequence[Floats], n_cells: int) -> Floats:
    """The largest value of the first l modules within each number of cells; (n_modules + 1, n_cells + 1)."""
    table, spare = np.zeros((len(values) + 1, n_cells + 1)), np.empty(n_cells + 1)
    for before, after, value, cell in zip(table, table[1:], values, cells, strict=False):
        after[:] = before  # nothing of the module is open
        for worth, wide in zip(value[1:].tolist(), cell[1:].astype(np.int64).tolist(), strict=True):
            if wide <= n_cells and worth > 0:
                candidate = np.add(before[: n_cells + 1 - wide], worth, out=spare[wide:])
                np.maximum(after[wide:], candidate, out=after[wide:])
    return table


def _table_choices(values: Sequence[Floats], costs: Sequence[Floats], room: float, n_cells: int) -> list[int]:
    """The choice of each module that the table's last cell came from; the cheapest of equal ones."""
    slack = ROUNDING * n_cells  # so that a budget which is exactly met is met
    cells = [np.ceil(_cells(each, room, n_cells) - slack).clip(min=0) for each in costs]
    table = _table(values, cells, n_cells)
    at, choices = n_cells, [0] * len(values)
    for index in range(len(values) - 1, -1, -1):
        if table[index + 1, at] > table[index, at]:
            wide = cells[index].astype(np.int64)
            reached = np.where(wide <= at, table[index, np.maximum(at - wide, 0)] + values[index], -np.inf)
            choices[index] = 1 + int(np.argmax(reached[1:] == table[index + 1, at]))
            at -= int(wide[choices[index]])
    return choices


def _filled(modules: Sequence[Levels], choices: Sequence[int], room: Floats) -> list[int]:
    """Choices raised where room is left: rounding up and prices leave some."""
    filled = list(choices)
    left = room - np.sum([module.costs[:, n] for module, n in zip(modules, filled, strict=True)], axis=0)
    while True:
        best, found = 0.0, None
        for index, (module, n) in enumerate(zip(modules, filled, strict=True)):
            extra = module.costs[:, n + 1 :] - module.costs[:, [n]]
            gains = np.where((extra <= left[:, None]).all(axis=0), module.values[n + 1 :] - module.values[n], 0.0)
            if gains.size and gains.max() > best:
                best, found = float(gains.max()), (index, n + 1 + int(gains.argmax()))
        if found is None:
            return filled
        index, level = found
        left = left - modules[index].costs[:, level] + modules[index].costs[:, filled[index]]
        filled[index] = level
