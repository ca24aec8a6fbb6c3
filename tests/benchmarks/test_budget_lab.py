"""The budget lab's helpers: chains that are nested, frontiers that are undominated, sums that can be reached."""

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from smatter.budget.knapsack import allocate
from smatter.budget.ranked import Ranked, RankedModule

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from budget_lab import BUDGETS, _chains, _reachable, frontier, full_cost, network, priced_sweep, subset_sum


@pytest.mark.parametrize("seed", range(10))
def test_no_chain_beats_the_best_one_nor_what_each_budget_allows(seed: int) -> None:
    ranked = network(np.random.default_rng(seed), 4, 9)
    budgets = [share * full_cost(ranked) for share in BUDGETS]
    free = [allocate(ranked, budget, 8_000) for budget in budgets]
    chains = _chains(ranked, budgets, free)
    for values in chains.values():
        assert all(value <= found.bound + 1e-9 for value, found in zip(values, free, strict=True))
        assert sum(values) <= sum(chains["best chain"]) + 1e-9
        assert (np.diff(values) >= -1e-9).all()


def test_the_smallest_example_of_sets_that_are_not_nested() -> None:
    modules = {"small": RankedModule((0,), [1.0], [1.0], 0.0), "large": RankedModule((0,), [3.0], [2.0], 0.0)}
    ranked = Ranked(modules)
    budgets = [1.0, 2.0, 2.0, 2.0, 2.0]
    chains = _chains(ranked, budgets, [allocate(ranked, budget) for budget in budgets])
    assert chains["best chain"] == [0, 3, 3, 3, 3] and chains["greedy"] == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_frontiers_are_undominated_and_prices_find_corners_of_them(seed: int) -> None:
    ranked = network(np.random.default_rng(seed), 4, 9)
    costs, values = frontier(ranked)
    assert (np.diff(costs) > 0).all() and (np.diff(values) > 0).all()
    found = priced_sweep(ranked, np.geomspace(1e-4, 1e3, 200))
    for cost, value in zip(*found, strict=True):
        assert values[costs <= cost + 1e-9].max() == pytest.approx(value)


@pytest.mark.parametrize("seed", range(5))
def test_sums_that_can_be_reached_are_found(seed: int) -> None:
    ranked = subset_sum(np.random.default_rng(seed), 8, 2)
    costs = [int(module.costs[0, 0]) for module in ranked.modules.values()]
    sums = {sum(some) for n in range(9) for some in combinations(costs, n)}
    for budget in (0, 50, 133, 1000):
        assert _reachable(ranked, budget) == max(each for each in sums if each <= budget)
