"""Where the AutoBudget paper's statements need another condition, or are not so: each with its numbers."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from small_budgets import everything, random_ranked

from smatter.budget.approximate import greedy
from smatter.budget.kept import counted_accuracy
from smatter.budget.knapsack import allocate
from smatter.budget.latency import LatencyModel, ModuleCost
from smatter.budget.multipliers import Multipliers, kkt_residual
from smatter.budget.ranked import Ranked, RankedModule

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from budget_forms import Separable, Surrogate, as_written, descend, in_the_network, least_error, noisy_descent

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("worth", "costs", "budget"),
    [((10.0, 1.0), (5.0, 1.0), 4.0), ((10.0, 1.0), (1000.0, 1.0), 800.0), ((3.0, 2.0), (1.0, 4.0), 3.0)],
)
def test_the_closed_form_of_the_separation_is_what_an_optimiser_finds(
    worth: tuple[float, float], costs: tuple[float, float], budget: float
) -> None:
    problem = Separable(worth, costs, budget)
    a, c = np.array(worth), np.array(costs)
    found = minimize(
        lambda s: float(a @ (1 - s) ** 2),
        np.full(2, 0.5),
        bounds=[(0, 1)] * 2,
        constraints=[{"type": "ineq", "fun": lambda s: (budget - float(c @ s)) / budget}],
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    shares, loss = problem.best()
    assert shares == pytest.approx(found.x, abs=1e-3) and loss == pytest.approx(found.fun, rel=1e-5)
    assert problem.tied()[1] - loss == pytest.approx(problem.gap, rel=1e-9)
    assert c @ problem.tied()[0] == pytest.approx(c @ shares) == pytest.approx(budget)


def test_much_worth_and_much_cost_alone_separate_nothing() -> None:
    """a_1 >> a_2 and c_1 >> c_2, as the paper has it, with a gap of zero; the condition is a_1/c_1 != a_2/c_2."""
    same = Separable((100.0, 1.0), (100.0, 1.0), 60.0)
    assert same.best()[0][0] == pytest.approx(same.best()[0][1]) and same.gap == 0
    assert same.tied()[1] - same.best()[1] == pytest.approx(0, abs=1e-12)
    assert Separable((100.0, 1.0), (99.0, 1.0), 60.0).gap > 0
    assert Separable((1.0, 1.0), (1.0, 2.0), 2.0).gap > 0  # equal worth is enough if costs differ


def test_most_may_go_to_the_module_of_less_worth() -> None:
    shares, _ = Separable((10.0, 1.0), (1000.0, 1.0), 800.0).best()
    assert shares == pytest.approx([0.799, 0.998], abs=1e-3)


def test_one_count_of_parameters_for_all_loses_nothing_where_costs_are_in_proportion_to_it() -> None:
    """What SMAT limits is the count of all modules: better than one share where costs follow sizes, else worse."""
    problem = Separable((10.0, 1.0), (5.0, 1.0), 4.0)
    best, tied = problem.best()[1], problem.tied()[1]
    assert problem.pooled(np.array([5.0, 1.0]))[1] == pytest.approx(best)
    near = problem.pooled(np.array([4.0, 1.0]))[1]
    assert best < near < tied
    far = Separable((10.0, 1.0), (1000.0, 1.0), 990.0)
    assert far.pooled(np.array([1.0, 1.0]))[1] > 5 * far.tied()[1]


def test_as_written_limits_only_rise_their_prices_end_at_zero_and_masks_ignore_the_budget() -> None:
    worth, costs = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0])
    written = as_written(worth, costs, (0.2, 2.0), 1500)
    assert written.cap_prices == (0.0, 0.0)
    assert (written.limits > written.shares).all()  # nothing binds any more
    assert (written.limits[4] > 0.3).all()  # from 0.3: each step can only raise b at its budget
    assert np.ptp(written.shares, axis=0) == pytest.approx(0)
    assert (written.over > 0).mean() > 0.4  # the tighter half of the budgets is broken, only the mean is kept
    cut = as_written(worth, costs, (0.2, 2.0), 1500, cut=True)
    assert cut.cap_prices == (0.0, 0.0) and cut.limits[4] == pytest.approx(0.3, abs=0.03)  # never moved
    ours = in_the_network(worth, costs, (0.2, 2.0), 1500)
    assert (ours.over < 0.1 * ours.grid).all() and (written.over > 2 * written.grid).any()
    assert (np.diff(ours.shares, axis=0) >= -1e-6).all()
    loss = [float(worth @ (1 - torch.tensor(row)) ** 2) for row in ours.shares]
    assert loss[-1] < 0.3 * loss[0]


def test_the_best_sets_are_not_nested() -> None:
    ranked = Ranked(
        {
            "small": RankedModule((0,), np.array([1.0]), np.array([0.5]), 0.5),
            "large": RankedModule((0,), np.array([3.0]), np.array([1.5]), 0.5),
        }
    )
    assert allocate(ranked, 1.0).levels == {"small": 1, "large": 0}
    assert allocate(ranked, 2.0).levels == {"small": 0, "large": 1}
    assert allocate(ranked, 2.0).value - ranked.value({"small": 1, "large": 0}) == 2  # what nesting costs at B = 2


def test_one_sided_slackness_calls_a_point_optimal_that_is_not() -> None:
    """Minimise (x - 1)^2 within x <= 2: x = 0 at a price of 2 passes all four conditions, and is worse by 1."""
    x, price = torch.tensor([0.0]), torch.tensor([2.0])
    broken = x - 2
    gradient = 2 * (x - 1) + price
    assert float(gradient) == 0 and float(broken) <= 0 and float(price * broken) <= 0  # the paper's, with eps = 0
    assert kkt_residual(gradient, broken, price).largest == 4
    assert float((x - 1) ** 2) == 1


def test_nearly_optimal_is_not_nearly_stationary() -> None:
    for epsilon in (1e-2, 1e-4, 1e-6):
        kink = torch.tensor(epsilon, dtype=torch.float64, requires_grad=True)
        kink.abs().backward()
        assert float(kink.abs().detach()) == pytest.approx(epsilon) and float(kink.grad) == 1
        smooth = torch.tensor(np.sqrt(epsilon), requires_grad=True)
        (smooth**2).backward()
        assert float(smooth.detach() ** 2) == pytest.approx(epsilon)
        assert float(smooth.grad) == pytest.approx(2 * np.sqrt(epsilon))


def test_at_the_budget_of_the_base_no_price_is_high_enough() -> None:
    """sum c s^2 <= 0 leaves s = 0 alone, where the cost is flat: the price that it takes grows without end."""
    worth, costs = torch.tensor([3.0, 1.0], dtype=torch.float64), torch.tensor([1.0, 1.0], dtype=torch.float64)
    ends = []
    for n_steps in (1000, 4000, 11500):
        prices = Multipliers(torch.zeros(1, dtype=torch.float64), damping=1.0)
        descend(Surrogate(worth, costs, 0.0, power=2.0), prices, n_steps)
        ends.append(float(prices.values))
    assert ends[1] > 1.3 * ends[0] and ends[2] > 1.3 * ends[1]
    slater = [float(Surrogate(worth, costs, budget, power=2.0).solve()[1][0]) for budget in (1e-2, 1e-4)]
    assert slater[1] > 8 * slater[0]  # like 1 / sqrt(B)
    prices = Multipliers(torch.zeros(1, dtype=torch.float64), damping=1.0)
    descend(Surrogate(worth, costs, 0.0), prices, 1200)  # linear constraints need no Slater point
    assert float(prices.values) < 10


def test_a_convex_cost_without_offset_has_no_launch_overhead() -> None:
    """Convex and zero at zero means c(s) <= s c(1): below any overhead near zero. So the bound is positive there."""
    cost = ModuleCost(0.1, (0.05, 0.05, 0.1, 0.2))
    chord = float(cost(np.ones(1))[0])
    s = 0.01
    assert s * chord < 0.1 <= float(cost(np.array([s]))[0])
    assert max(offset for offset, _ in cost.majorant) >= 0.1
    model = LatencyModel({"a": cost, "b": cost})
    off = model.smooth_bound({"a": torch.zeros(()), "b": torch.ones(())})
    exact = float(model.relative({"a": 0.0, "b": 1.0})[0])
    assert float(off) - exact > 0.09 and exact == pytest.approx(1 + chord)  # the exact form knows what is off


def test_accuracy_on_the_tasks_that_keep_their_budget_rewards_who_breaks_it_on_hard_ones() -> None:
    hard = np.arange(100) % 2 == 0
    honest, base = np.where(hard, 0.5, 0.9), np.where(hard, 0.4, 0.8)
    bold, kept = np.where(hard, 0.6, 0.9), ~hard  # breaks the budget on every hard task
    assert bold[kept].mean() == pytest.approx(0.9) and honest.mean() == pytest.approx(0.7)
    assert counted_accuracy(bold, kept, base) == pytest.approx(0.65)
    assert counted_accuracy(bold, kept) == pytest.approx(0.45)
    assert counted_accuracy(honest, np.ones(100, bool), base) == pytest.approx(0.7)


def test_inflating_the_proxy_makes_budgets_safer_and_optimism_breaks_them() -> None:
    generator = np.random.default_rng(0)
    kept: dict[float, list[bool]] = {0.8: [], 1.0: [], 1.25: []}
    worth: dict[float, list[float]] = {0.8: [], 1.0: [], 1.25: []}
    for _ in range(60):
        ranked = random_ranked(generator, (4, 3, 5, 2))
        truth = {name: generator.uniform(0.85, 1.15) for name in ranked.modules}
        budget = 0.4 * float(ranked.cost(everything(ranked))[0])
        for factor in kept:
            found = allocate(ranked, budget / factor)  # kappa' cost <= B
            measured = sum(truth[name] * ranked.cost({name: n})[0] for name, n in found.levels.items())
            kept[factor].append(measured <= budget)
            worth[factor].append(found.value)
    share = {factor: float(np.mean(each)) for factor, each in kept.items()}
    assert share[0.8] < 0.3 < share[1.0] < 0.9 < share[1.25]
    assert np.mean(worth[0.8]) > np.mean(worth[1.0]) > np.mean(worth[1.25])  # what safety costs


def test_hard_in_theory_is_faster_than_a_forward_pass() -> None:
    """178 units on 2,000 cells; costs that need all of 10^6 cells to be told apart take 500 times as long, linearly."""
    generator = np.random.default_rng(0)
    ranked = random_ranked(generator, generator.multinomial(138, np.full(40, 1 / 40)) + 1)
    budget = 0.25 * float(ranked.cost(everything(ranked))[0])
    begin = time.process_time()
    found = allocate(ranked, budget)
    assert time.process_time() - begin < 0.1
    assert found.gap < 0.02 * found.value
    assert found.value >= greedy(ranked, budget).value - 0.005 * found.value


def test_greedy_and_the_relaxation_can_be_arbitrarily_far_from_the_best() -> None:
    small = RankedModule((0,), np.array([0.011]), np.array([0.005]), 0.005)
    large = RankedModule((0,), np.array([1.0]), np.array([0.5]), 0.5)
    ranked = Ranked({"small": small, "large": large})
    assert greedy(ranked, 1.0).value == pytest.approx(0.011) and allocate(ranked, 1.0).value == 1


def test_no_method_beats_the_bound_of_the_noisy_instance_and_descent_comes_near_it() -> None:
    generator = np.random.default_rng(0)
    for epsilon in (0.1, 0.05):
        few, enough = int(0.25 / epsilon**2), int(16 / epsilon**2)
        assert least_error(epsilon, few) > 0.3 and least_error(epsilon, enough) < 1e-4
        suboptimal = noisy_descent(epsilon, few, 2000, generator)
        assert suboptimal.mean() >= least_error(epsilon, few) * epsilon / 2
        assert noisy_descent(epsilon, enough, 500, generator).mean() < 0.35 * epsilon
