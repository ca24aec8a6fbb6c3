"""Allocation: as good as trying all, never over budget, and honest about what it may have missed."""

import time

import numpy as np
import pytest
from small_budgets import brute_force, everything, random_ranked

from smatter.budget.approximate import greedy, relax
from smatter.budget.knapsack import N_CELLS, allocate
from smatter.budget.ranked import Ranked, RankedModule
from smatter.errors import BudgetInfeasible, InvalidSettings


@pytest.mark.parametrize("seed", range(40))
def test_whole_costs_are_solved_exactly(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ranked = random_ranked(generator, (3, 2, 4, 1, 3), whole=True)
    for budget in (0, 1, 2, 5, 9, 17, 100):
        found = allocate(ranked, budget, n_cells=max(budget, 1) * 7)
        assert found.value == pytest.approx(brute_force(ranked, [budget]))
        assert found.costs[0] <= budget and found.gap == pytest.approx(0)


@pytest.mark.parametrize("seed", range(40))
def test_any_costs_are_solved_up_to_the_grid_and_within_budget(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ranked = random_ranked(generator, (3, 2, 4, 1, 3))
    full = float(ranked.cost(everything(ranked))[0])
    for share in (0.1, 0.3, 0.6, 1.0):
        found = allocate(ranked, share * full)
        best = brute_force(ranked, [share * full])
        assert brute_force(ranked, [share * full * (1 - 5 / N_CELLS)]) - 1e-9 <= found.value <= best + 1e-9
        assert best <= found.bound + 1e-9
        assert found.costs[0] <= share * full * (1 + 1e-9)
        assert found.costs[0] == ranked.cost(found.levels)[0]


@pytest.mark.parametrize("seed", range(30))
def test_several_budgets_all_hold_and_the_best_is_within_the_bound(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ranked = random_ranked(generator, (3, 2, 4, 3), n_resources=3)
    budgets = generator.uniform(0.1, 0.6, 3) * ranked.cost(everything(ranked))
    found, best = allocate(ranked, budgets), brute_force(ranked, budgets.tolist())
    assert (np.array(found.costs) <= budgets * (1 + 1e-9)).all()
    assert 0.6 * best <= found.value <= best + 1e-9 <= found.bound + 2e-9


def test_several_budgets_lose_little_on_average() -> None:
    generator, lost = np.random.default_rng(0), []
    for _ in range(60):
        ranked = random_ranked(generator, (4, 3, 5, 2, 3), n_resources=2)
        budgets = generator.uniform(0.2, 0.6, 2) * ranked.cost(everything(ranked))
        lost.append(1 - allocate(ranked, budgets).value / brute_force(ranked, budgets.tolist()))
    assert float(np.mean(lost)) < 0.02


def test_a_budget_that_does_not_bind_changes_nothing() -> None:
    ranked = random_ranked(np.random.default_rng(1), (3, 4, 2), n_resources=2)
    one = Ranked(
        {name: RankedModule(m.units, m.values, m.costs[:1], m.on[:1]) for name, m in ranked.modules.items()}, ("first",)
    )
    for budget in (0.5, 1.0, 2.0):
        assert allocate(ranked, (budget, np.inf)).levels == allocate(one, budget).levels


@pytest.mark.parametrize("seed", range(20))
def test_budgets_without_end_open_what_is_worth_it_and_nothing_opens_nothing(seed: int) -> None:
    ranked = random_ranked(np.random.default_rng(seed), (3, 2, 4), n_resources=2)
    best = sum(float(module.level_values.max()) for module in ranked.modules.values())
    assert allocate(ranked, (np.inf, np.inf)).value == pytest.approx(best)
    assert not any(allocate(ranked, (0.0, 0.0)).levels.values())
    assert not any(allocate(ranked, (0.0, np.inf)).levels.values())


def test_caps_and_free_units_are_kept_and_used() -> None:
    free = RankedModule((0, 1), np.array([1.0, 1.0]), np.array([1.0, 0.0]), 0.5)
    capped = RankedModule((0, 1, 2, 3), np.full(4, 5.0), np.full(4, 0.1), 0.1, cap=0.5)
    assert allocate(Ranked({"free": free, "capped": capped}), 10.0).levels == {"free": 2, "capped": 2}
    assert allocate(Ranked({"free": free}), 1.5).levels == {"free": 2}


def test_an_impossible_budget_names_the_smallest_possible_one() -> None:
    module = RankedModule((0,), np.ones(1), np.ones(1), 0.1)
    ranked = Ranked({"a": module}, ("ms",), (20.5,))
    with pytest.raises(BudgetInfeasible, match=r"20 ms is below the smallest possible budget, 20.5 ms"):
        allocate(ranked, 20.0)
    assert allocate(ranked, 20.5).levels == {"a": 0}
    assert allocate(ranked, 21.6).levels == {"a": 1}
    for budget in (float("nan"), -1.0):
        with pytest.raises(InvalidSettings, match="is no budget"):
            allocate(ranked, budget)
    with pytest.raises(InvalidSettings, match="one budget for each"):
        allocate(ranked, (20.0, 1.0))


@pytest.mark.parametrize("seed", range(40))
def test_the_relaxation_is_above_its_rounding_at_least_half_and_the_price_is_the_slope(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ranked = random_ranked(generator, (3, 2, 4, 1, 3))
    budget = float(generator.uniform(0.05, 0.9) * ranked.cost(everything(ranked))[0])
    relaxed, best = relax(ranked, budget), brute_force(ranked, [budget])
    assert best <= relaxed.value + 1e-9
    assert best / 2 - 1e-9 <= relaxed.rounded.value <= best + 1e-9
    assert relaxed.rounded.costs[0] <= budget * (1 + 1e-9)
    assert relaxed.integrality_gap >= best - relaxed.rounded.value - 1e-9
    more = relax(ranked, budget * (1 + 1e-7)).value - relaxed.value
    assert more == pytest.approx(relaxed.price * budget * 1e-7, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_relaxation_agrees_with_a_linear_program(seed: int) -> None:
    from scipy.optimize import linprog

    generator = np.random.default_rng(seed)
    ranked = random_ranked(generator, (3, 2, 4, 1, 3))
    modules = list(ranked.modules.values())
    full = ranked.cost(everything(ranked))[0]
    budget = float(generator.uniform(0.05, 1.0) * full)
    fits = [module.level_costs[0] <= budget for module in modules]  # as each level must alone
    values = np.concatenate([module.level_values[fit] for module, fit in zip(modules, fits, strict=True)])
    costs = np.concatenate([module.level_costs[0][fit] for module, fit in zip(modules, fits, strict=True)])
    owner = np.repeat(np.arange(len(modules)), [fit.sum() for fit in fits])
    one_level = (owner == np.arange(len(modules))[:, None]).astype(float)
    found = linprog(-values, A_ub=costs[None], b_ub=[budget], A_eq=one_level, b_eq=np.ones(len(modules)))
    assert relax(ranked, budget).value == pytest.approx(-found.fun, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_greedy_keeps_budgets_and_never_beats_the_best(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ranked = random_ranked(generator, (3, 2, 4, 3), n_resources=2)
    budgets = generator.uniform(0.1, 0.6, 2) * ranked.cost(everything(ranked))
    found = greedy(ranked, budgets)
    assert (np.array(found.costs) <= budgets * (1 + 1e-9)).all()
    assert found.value <= brute_force(ranked, budgets.tolist()) + 1e-9


def test_greedy_pays_for_a_module_to_be_on_only_where_its_units_make_up_for_it() -> None:
    dear = RankedModule((0, 1, 2), np.array([1.0, 1.0, 1.0]), np.full(3, 0.1), 2.0)
    cheap = RankedModule((0,), np.array([0.6]), np.array([0.5]), 0.5)
    ranked = Ranked({"dear": dear, "cheap": cheap})
    assert greedy(ranked, 2.3).levels == {"dear": 3, "cheap": 0}
    assert greedy(ranked, 2.2).levels == allocate(ranked, 2.2).levels == {"dear": 2, "cheap": 0}


def test_a_network_of_178_units_takes_milliseconds() -> None:
    generator = np.random.default_rng(0)
    ranked = random_ranked(generator, generator.multinomial(138, np.full(40, 1 / 40)) + 1)
    budget = 0.25 * float(ranked.cost(everything(ranked))[0])
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        allocate(ranked, budget)
        seconds.append(time.process_time() - begin)
    assert min(seconds) < 0.03  # 3 ms where nothing else runs; a forward pass takes 20
