"""Prices: they settle at shadow prices, forget, resume to the bit; residuals vanish at optima and nowhere else."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from smatter.budget.multipliers import Multipliers, kkt_residual, projected_gradient
from smatter.errors import InvalidSettings

cvxpy = pytest.importorskip("cvxpy")

WORTH, COSTS = np.array([3.0, 1.0, 2.0, 0.5]), np.array([2.0, 0.5, 1.0, 1.0])
CAP = 0.35


def loss(shares: Tensor) -> Tensor:
    return (torch.tensor(WORTH) * (1 - shares) ** 2).sum()


def violations(shares: Tensor, budget: float) -> Tensor:
    """The whole cost, smooth and convex, and a cap on the third module."""
    cost = (torch.tensor(COSTS) * (shares + 0.5 * shares**2)).sum()
    return torch.stack([cost - budget, shares[2] - CAP])


def primal_dual(
    prices: Multipliers, constraints: Callable[[Tensor], Tensor], n_steps: int = 3000, rate: float = 0.02
) -> Tensor:
    shares = torch.full((4,), 0.5, dtype=torch.float64)
    for _ in range(n_steps):
        shares = shares.detach().requires_grad_(True)
        broken = constraints(shares)
        (gradient,) = torch.autograd.grad(loss(shares) + prices.price(broken), shares)
        prices.ascend(broken)
        shares = (shares.detach() - rate * gradient).clamp(0, 1)
    return shares


def solved(budget: float) -> tuple[np.ndarray, np.ndarray]:
    shares = cvxpy.Variable(4)
    cost = COSTS @ (shares + 0.5 * shares**2)
    limits = [cost <= budget, shares[2] <= CAP, shares >= 0, shares <= 1]
    cvxpy.Problem(cvxpy.Minimize(WORTH @ (1 - shares) ** 2), limits).solve(solver=cvxpy.CLARABEL)
    return shares.value, np.array([float(limits[0].dual_value), float(limits[1].dual_value)])


def residual(shares: Tensor, prices: Multipliers, budget: float):
    point = shares.detach().requires_grad_(True)
    broken = violations(point, budget)
    (gradient,) = torch.autograd.grad(loss(point) + prices.price(broken), point)
    return kkt_residual(projected_gradient(point.detach(), gradient), broken.detach(), prices.values)


@pytest.mark.parametrize("budget", [0.4, 1.5, 3.0, 9.0])
def test_plain_ascent_settles_at_the_shadow_prices_that_cvxpy_finds(budget: float) -> None:
    prices = Multipliers(torch.zeros(2, dtype=torch.float64), damping=1.0)
    shares = primal_dual(prices, lambda point: violations(point, budget))
    expected, shadow = solved(budget)
    assert shares.numpy() == pytest.approx(expected, abs=1e-3)
    assert prices.values.numpy() == pytest.approx(shadow, abs=5e-3)
    assert residual(shares, prices, budget).largest < 5e-3


def test_cooper_takes_the_same_steps() -> None:
    cooper = pytest.importorskip("cooper")

    class Toy(cooper.ConstrainedMinimizationProblem):
        def __init__(self) -> None:
            super().__init__()
            multiplier = cooper.multipliers.DenseMultiplier(num_constraints=2, dtype=torch.float64)
            self.limit = cooper.Constraint(
                multiplier=multiplier,
                constraint_type=cooper.ConstraintType.INEQUALITY,
                formulation_type=cooper.formulations.Lagrangian,
            )

        def compute_cmp_state(self, shares: Tensor):
            state = cooper.ConstraintState(violation=violations(shares, 1.5))
            return cooper.CMPState(loss=loss(shares), observed_constraints={self.limit: state})

    toy, shares = Toy(), torch.nn.Parameter(torch.full((4,), 0.5, dtype=torch.float64))
    optimizer = cooper.optim.SimultaneousOptimizer(
        cmp=toy,
        primal_optimizers=torch.optim.SGD([shares], lr=0.02),
        dual_optimizers=torch.optim.SGD(toy.dual_parameters(), lr=0.05, maximize=True),
    )
    for _ in range(400):
        optimizer.roll(compute_cmp_state_kwargs={"shares": shares})
        with torch.no_grad():
            shares.clamp_(0, 1)
    prices = Multipliers(torch.zeros(2, dtype=torch.float64), damping=1.0)
    ours = primal_dual(prices, lambda point: violations(point, 1.5), n_steps=400)
    torch.testing.assert_close(ours, shares.detach())
    torch.testing.assert_close(prices.values, toy.limit.multiplier.weight.detach())


def test_restarts_forget_only_after_a_window_and_damping_leaves_a_part() -> None:
    prices = Multipliers(torch.tensor([1.0, 1.0]), rate=0.1, window=3, damping=0.5)
    for _ in range(2):
        step = prices.ascend(torch.tensor([-1.0, 1.0]))
        assert step.forgotten == (False, False)
    assert prices.values.tolist() == pytest.approx([0.8, 1.2])
    step = prices.ascend(torch.tensor([-1.0, 1.0]))
    assert step.forgotten == (True, False)
    assert step.prices == pytest.approx((0.35, 1.3)) and step.violations == (-1.0, 1.0)
    prices.ascend(torch.tensor([0.5, -1.0]))
    assert prices.kept.tolist() == [0, 1]


def test_prices_of_experts_are_raised_and_forgotten_as_ever_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    prices, expected = Multipliers(torch.zeros(4)), torch.zeros(4)
    for _ in range(100):
        shares = torch.rand(4, generator=generator)
        excess = shares / 0.6 - 1
        assert torch.equal(prices.penalty(shares, 0.6), (expected * excess).sum())
        prices.update(shares, 0.6)
        expected.add_(0.05 * excess).mul_(excess > 0)
        assert torch.equal(prices.values, expected)


def test_prices_stay_between_zero_and_the_ceiling() -> None:
    generator = torch.Generator().manual_seed(0)
    prices = Multipliers(torch.zeros(5), rate=1.0, window=2, damping=0.9, ceiling=2.0)
    seen = []
    for _ in range(200):
        seen.append(prices.ascend(torch.randn(5, generator=generator)).prices)
    assert min(map(min, seen)) == 0 and max(map(max, seen)) == 2


def test_prices_that_a_step_says_nothing_of_stay() -> None:
    prices = Multipliers(torch.tensor([1.0, 1.0]), rate=0.1)
    prices.ascend(torch.tensor([0.0, 0.5]), seen=torch.tensor([False, True]))
    assert prices.values.tolist() == pytest.approx([1.0, 1.05]) and prices.kept.tolist() == [0, 0]


def test_going_on_from_a_state_ends_in_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    steps = torch.randn(40, 3, generator=generator)
    whole = Multipliers(torch.zeros(3), window=4, damping=0.3)
    for step in steps:
        whole.ascend(step)
    first = Multipliers(torch.zeros(3), window=4, damping=0.3)
    for step in steps[:17]:
        first.ascend(step)
    kept = {name: tensor.clone() for name, tensor in first.state().items()}
    second = Multipliers(torch.zeros(3), window=4, damping=0.3)
    second.resume(kept)
    for step in steps[17:]:
        second.ascend(step)
    assert torch.equal(whole.values, second.values) and torch.equal(whole.kept, second.kept)


def test_a_price_for_each_budget_settles_where_each_budget_alone_would() -> None:
    """Prices at knots of a grid of budgets, one budget a step: as many problems as budgets in one run."""
    budgets = (0.4, 1.5, 3.0)
    prices = Multipliers(torch.zeros(3, dtype=torch.float64), damping=1.0)
    shares = torch.full((3, 4), 0.5, dtype=torch.float64)
    for step in range(6000):
        at = step % 3
        weights = torch.eye(3, dtype=torch.float64)[at]
        point = shares[at].detach().requires_grad_(True)
        broken = weights * violations(point, budgets[at])[0]
        (gradient,) = torch.autograd.grad(loss(point) + prices.price(broken), point)
        prices.ascend(broken, seen=weights > 0)
        shares[at] = (point.detach() - 0.02 * gradient).clamp(0, 1)
    variable = cvxpy.Variable(4)
    for at, budget in enumerate(budgets):
        limit = COSTS @ (variable + 0.5 * variable**2) <= budget
        problem = cvxpy.Problem(cvxpy.Minimize(WORTH @ (1 - variable) ** 2), [limit, variable >= 0, variable <= 1])
        problem.solve(solver=cvxpy.CLARABEL)
        assert float(prices.values[at]) == pytest.approx(float(limit.dual_value), abs=0.02)


def test_residuals_vanish_at_the_optimum_and_not_beside_it() -> None:
    expected, shadow = solved(1.5)
    prices = Multipliers(torch.tensor(shadow))
    assert residual(torch.tensor(expected), prices, 1.5).largest < 1e-4
    assert residual(torch.tensor(expected) + 0.05, prices, 1.5).largest > 0.05
    slack = residual(torch.tensor(expected) * 0.5, Multipliers(torch.tensor([1e6, 0.0], dtype=torch.float64)), 1.5)
    assert slack.violation == 0 and slack.slackness > 1e5


def test_what_are_no_prices_is_refused() -> None:
    for changes in ({"rate": 0.0}, {"window": 0}, {"damping": 1.5}, {"ceiling": 0.0}, {"rate": float("nan")}):
        with pytest.raises(InvalidSettings, match="prices need"):
            Multipliers(torch.zeros(1), **changes)
    with pytest.raises(InvalidSettings, match="negative"):
        kkt_residual(torch.zeros(1), torch.zeros(1), -torch.ones(1))
