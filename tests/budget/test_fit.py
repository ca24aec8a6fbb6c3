"""Fitting a budget to a task: within budget, never worse than the policy, better where the policy is wrong."""

from collections.abc import Mapping

import numpy as np
import pytest
from small_budgets import everything, random_ranked

from smatter.budget.fit import fit_budget, within
from smatter.budget.knapsack import allocate
from smatter.budget.ranked import Ranked, RankedModule
from smatter.errors import InvalidSettings


class Toy:
    """A task whose units are worth a random factor of what the policy says, module by module."""

    def __init__(self, seed: int, spread: float = 1.0, n_resources: int = 1) -> None:
        generator = np.random.default_rng(seed)
        self.ranked = random_ranked(generator, (3, 2, 4, 1, 3, 2), n_resources)
        self.factors = 1 + spread * generator.normal(size=6)
        self.budgets = 0.4 * self.ranked.cost(everything(self.ranked))
        self.asked: list[dict[str, float]] = []

    def loss(self, shares: Mapping[str, float]) -> float:
        self.asked.append(dict(shares))
        levels = self.ranked.levels(shares)
        gains = [module.level_values[levels[name]] for name, module in self.ranked.modules.items()]
        return 5.0 - float(self.factors @ gains)


@pytest.mark.parametrize("solver", ["exact", "steps"])
@pytest.mark.parametrize("seed", range(15))
def test_fits_keep_all_budgets_and_the_number_of_losses(solver: str, seed: int) -> None:
    toy = Toy(seed, n_resources=2)
    fit = fit_budget(toy.ranked, toy.budgets, toy.loss, solver=solver)
    assert (np.array(fit.costs) <= toy.budgets * (1 + 1e-9)).all()
    assert fit.evaluations == len(toy.asked) <= 5
    assert fit.costs == tuple(toy.ranked.cost(fit.levels)) and fit.value == toy.ranked.value(fit.levels)
    assert toy.ranked.levels(fit.shares) == fit.levels
    for asked in toy.asked:  # what is tried could be served
        assert (toy.ranked.cost(toy.ranked.levels(asked)) <= toy.budgets * (1 + 1e-9)).all()
    assert fit.loss == min(toy.loss(each) for each in toy.asked[: fit.evaluations])


@pytest.mark.parametrize("solver", ["exact", "steps"])
def test_a_fit_is_never_worse_than_the_policy_and_better_on_average(solver: str) -> None:
    gains, possible = [], []
    for seed in range(60):
        toy = Toy(seed)
        policy = toy.loss(toy.ranked.shares(allocate(toy.ranked, toy.budgets).levels))
        fit = fit_budget(toy.ranked, toy.budgets, toy.loss, solver=solver, closed=5.0)
        truth = Ranked(
            {
                name: RankedModule(module.units, factor * module.values, module.costs, module.on)
                for (name, module), factor in zip(toy.ranked.modules.items(), toy.factors, strict=True)
            },
            toy.ranked.resources,
        )
        gains.append(policy - fit.loss)
        possible.append(policy - (5.0 - allocate(truth, toy.budgets).value))
    assert min(gains) >= 0
    assert sum(gains) > {"exact": 0.8, "steps": 0.15}[solver] * sum(possible)


def test_right_values_are_left_alone() -> None:
    for seed in range(10):
        toy = Toy(seed, spread=0.0)
        fit = fit_budget(toy.ranked, toy.budgets, toy.loss)
        assert fit.levels == allocate(toy.ranked, toy.budgets).levels


def test_without_a_loss_the_policy_decides() -> None:
    toy = Toy(0)
    expected = allocate(toy.ranked, toy.budgets).levels
    for fit in (fit_budget(toy.ranked, toy.budgets), fit_budget(toy.ranked, toy.budgets, toy.loss, n_evaluations=0)):
        assert fit.levels == expected and fit.loss is None and fit.evaluations == 0
    assert not toy.asked


def test_units_that_only_harm_stay_closed() -> None:
    toy = Toy(0)
    toy.factors = np.full(6, -1.0)
    fit = fit_budget(toy.ranked, toy.budgets, toy.loss)
    assert not any(fit.levels.values()) and fit.loss == 5.0


def test_a_budget_for_nothing_opens_nothing_and_says_its_loss() -> None:
    toy = Toy(0)
    fit = fit_budget(toy.ranked, 0.0, toy.loss)
    assert not any(fit.levels.values()) and fit.loss == 5.0 and fit.evaluations == 1


def test_a_loss_that_is_no_number_is_never_chosen() -> None:
    toy = Toy(1)
    fit = fit_budget(toy.ranked, toy.budgets, lambda shares: float("nan") if any(shares.values()) else 1.0)
    assert not any(fit.levels.values()) and fit.loss == 1.0
    with pytest.raises(InvalidSettings, match="nothing open is not a finite number"):
        fit_budget(toy.ranked, toy.budgets, lambda shares: float("nan"))


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_moved_into_the_budget_and_no_further(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ranked = random_ranked(generator, (3, 2, 4, 5))
    shares = generator.random(4)
    full = float(ranked.cost(everything(ranked))[0])
    for budget in (0.0, 0.1 * full, 0.5 * full, full):
        moved = within(ranked, shares, budget)
        levels = ranked.levels(dict(zip(ranked.modules, moved.tolist(), strict=True)))
        assert ranked.cost(levels)[0] <= budget * (1 + 1e-9)
        assert (moved <= shares + 1e-12).all()
    assert within(ranked, shares, full) == pytest.approx(shares)


def test_what_is_no_fit_is_refused() -> None:
    toy = Toy(0)
    with pytest.raises(InvalidSettings, match="unknown solver 'best'"):
        fit_budget(toy.ranked, toy.budgets, toy.loss, solver="best")
    with pytest.raises(InvalidSettings, match="above 0"):
        fit_budget(toy.ranked, toy.budgets, toy.loss, noise=float("nan"))
