"""Small problems in which the AutoBudget paper's claims about budgets can be checked: closed forms and short runs."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor
from torch.nn.functional import softplus

from smatter.budget.monotone import interpolation_weights
from smatter.budget.multipliers import KKTResidual, Multipliers, kkt_residual, projected_gradient

Floats = np.ndarray


@dataclass(frozen=True)
class Separable:
    """The loss of equation 26 with a linear cost: sum a_l (1 - s_l)^2 within c . s <= B, 0 <= s <= 1.

    Every limit here makes s = 1 - x u for some direction u, cut to the box, with x such that the budget is met. Where
    the box does not bind, the loss is D^2 sum(a u^2) / (c . u)^2 for a deficit D = sum(c) - B.
    """

    worth: tuple[float, ...]
    costs: tuple[float, ...]
    budget: float

    def along(self, direction: Floats) -> tuple[Floats, float]:
        """Shares and loss where what is missing is in proportion to a direction."""
        a, c = np.array(self.worth), np.array(self.costs)
        low, high = 0.0, 1 / float(direction.min())
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (low, middle) if c @ (1 - middle * direction).clip(0, 1) <= self.budget else (middle, high)
        shares = (1 - high * direction).clip(0, 1)
        return shares, float(a @ (1 - shares) ** 2)

    def best(self) -> tuple[Floats, float]:
        """s_l = 1 - mu c_l / (2 a_l)."""
        return self.along(np.array(self.costs) / np.array(self.worth))

    def tied(self) -> tuple[Floats, float]:
        """One share for all modules: a single tau."""
        return self.along(np.ones(len(self.costs)))

    def pooled(self, sizes: Floats) -> tuple[Floats, float]:
        """The best for a limit on the number of open parameters of all modules together."""
        return self.along(sizes / np.array(self.worth))

    @property
    def gap(self) -> float:
        """Loss of one share for all less that of the best, for two modules; zero if and only if a_1/c_1 = a_2/c_2."""
        (a1, a2), (c1, c2) = self.worth, self.costs
        deficit = c1 + c2 - self.budget
        return deficit**2 * (a1 * c2 - a2 * c1) ** 2 / (a1 * a2 * (c1 + c2) ** 2 * (c1**2 / a1 + c2**2 / a2))


@dataclass(frozen=True)
class Trained:
    """Where a primal-dual training ended.

    Args:
        grid: budgets.
        shares: open share of each module at each of them.
        limits: b_l at each of them.
        cap_prices: lambda.
        over: cost less the budget at each of them.
    """

    grid: Floats
    shares: Floats
    limits: Floats
    cap_prices: tuple[float, ...]
    over: Floats


def as_written(
    worth: Tensor,
    costs: Tensor,
    budgets: tuple[float, float],
    n_steps: int,
    *,
    cut: bool = False,
    first: float = 0.3,
    rate: float = 0.05,
    seed: int = 0,
) -> Trained:
    """Equations 12 to 17 on the loss of equation 26, with budgets drawn log-uniformly.

    Masks have logits phi of their own; b_l(B) = sigmoid(omega_l + softplus(.) log B) enters as -lambda_l b_l alone.

    Args:
        worth, costs: of the modules.
        budgets: the smallest and the largest.
        n_steps: of training.
        cut: open no more than b_l of a module instead, as "masks subject to the current budget policy" may be read.
        first: b_l at the start, for a budget of one.
        rate: of all updates.
        seed: of the budgets.
    """
    generator = torch.Generator().manual_seed(seed)
    low, high = (log(budget) for budget in budgets)
    phi = torch.zeros(len(worth), requires_grad=True)
    omega = torch.stack([torch.full_like(worth, first).logit(), torch.full_like(worth, -3.0)]).requires_grad_(True)
    caps, mu = torch.zeros(len(worth)), torch.zeros(())

    def limit(log_budget: Tensor) -> Tensor:
        return (omega[0] + softplus(omega[1]) * log_budget).sigmoid()

    def opened(limits: Tensor) -> Tensor:
        return torch.minimum(phi.sigmoid(), limits.detach()) if cut else phi.sigmoid()

    for _ in range(n_steps):
        log_budget = low + (high - low) * torch.rand((), generator=generator)
        limits = limit(log_budget)
        shares = opened(limits)
        over = costs @ shares - log_budget.exp()
        objective = worth @ (1 - shares) ** 2 + caps @ (shares - limits) + mu * over
        gradients = torch.autograd.grad(objective, (phi, omega))
        with torch.no_grad():
            for parameter, gradient in zip((phi, omega), gradients, strict=True):
                parameter -= rate * gradient
            caps = (caps + rate * (shares - limits)).clamp(min=0)
            mu = (mu + rate * over).clamp(min=0)
    grid = torch.linspace(low, high, 9)
    with torch.no_grad():
        limits = torch.stack([limit(each) for each in grid])
        shares = torch.stack([opened(each) for each in limits])
    return Trained(grid.exp().numpy(), shares.numpy(), limits.numpy(), tuple(caps.tolist()),
                   (shares @ costs - grid.exp()).numpy())  # fmt: skip


def in_the_network(
    worth: Tensor, costs: Tensor, budgets: tuple[float, float], n_steps: int, *, rate: float = 0.1, seed: int = 0
) -> Trained:
    """The same with b_l(B) as what is open: a monotone spline for each module, and a price mu at each knot.

    Each step sees the smallest, the largest and a random budget; g is the cost over the budget, less one.
    """
    generator = torch.Generator().manual_seed(seed)
    knots = torch.linspace(log(budgets[0]), log(budgets[1]), 9)
    heights = torch.cat([torch.full((len(worth), 1), -2.0), torch.full((len(worth), 8), -1.0)], dim=1)
    prices = Multipliers(torch.zeros(9), rate=rate, damping=1.0)
    optimizer = torch.optim.Adam([heights.requires_grad_(True)], lr=rate)

    def share(weights: Tensor) -> Tensor:
        rising = torch.cat([heights[:, :1], softplus(heights[:, 1:])], dim=1).cumsum(dim=1)
        return (weights @ rising.T).sigmoid()

    for step in range(n_steps):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / n_steps)
        random = knots[0] + (knots[-1] - knots[0]) * torch.rand(1, generator=generator)
        log_budgets = torch.cat([knots[:1], knots[-1:], random])
        weights = interpolation_weights(log_budgets, knots)
        shares = share(weights)
        over = weights.T @ (shares @ costs / log_budgets.exp() - 1)
        loss = ((1 - shares) ** 2 @ worth).sum() + prices.price(over)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        prices.ascend(over, seen=weights.sum(dim=0) > 0)
    with torch.no_grad():
        shares = share(torch.eye(9))
    return Trained(knots.exp().numpy(), shares.numpy(), shares.numpy(), (), (shares @ costs - knots.exp()).numpy())


@dataclass(frozen=True)
class Surrogate:
    """A convex problem: sum a_l (1 - s_l)^2 within sum c_l s_l^power <= B, and caps on some modules."""

    worth: Tensor
    costs: Tensor
    budget: float
    power: float = 1.0
    caps: tuple[tuple[int, float], ...] = ()

    def loss(self, shares: Tensor) -> Tensor:
        return self.worth @ (1 - shares) ** 2

    def violations(self, shares: Tensor) -> Tensor:
        whole = self.costs @ shares**self.power - self.budget
        return torch.stack([whole, *(shares[module] - cap for module, cap in self.caps)])

    def gradient(self, shares: Tensor, prices: Tensor) -> Tensor:
        """Of the Lagrangian."""
        whole = self.costs if self.power == 1 else self.costs * self.power * shares ** (self.power - 1)
        gradient = 2 * self.worth * (shares - 1) + prices[0] * whole
        for (module, _), price in zip(self.caps, prices[1:], strict=True):
            gradient[module] += price
        return gradient

    def residual(self, shares: Tensor, prices: Tensor) -> KKTResidual:
        step = projected_gradient(shares, self.gradient(shares, prices))
        return kkt_residual(step, self.violations(shares), prices)

    def solve(self) -> tuple[Floats, Floats, float]:
        """Shares, prices and loss by cvxpy."""
        import cvxpy

        shares = cvxpy.Variable(len(self.worth))
        costs = self.costs.numpy() @ (shares if self.power == 1 else cvxpy.power(shares, self.power))
        limits = [costs <= self.budget, *(shares[module] <= cap for module, cap in self.caps)]
        problem = cvxpy.Problem(
            cvxpy.Minimize(self.worth.numpy() @ (1 - shares) ** 2), [*limits, shares >= 0, shares <= 1]
        )
        problem.solve(solver=cvxpy.CLARABEL)
        return shares.value, np.array([float(limit.dual_value) for limit in limits]), float(problem.value)


def descend(
    problem: Surrogate,
    prices: Multipliers,
    n_steps: int,
    *,
    rate: float = 0.02,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
    watch: Callable[[int, Tensor], object] | None = None,
) -> Tensor:
    """Projected descent on shares and ascent on prices, at once; the last shares.

    Args:
        problem: what is solved.
        prices: changed.
        n_steps: of both.
        rate: of the descent.
        noise: standard deviation of what is added to each gradient.
        generator: of the noise.
        watch: told of each step's number and shares.
    """
    shares = torch.full_like(problem.worth, 0.5)
    for step in range(n_steps):
        gradient = problem.gradient(shares, prices.values)
        if noise:
            gradient = gradient + noise * torch.randn(gradient.shape, generator=generator, dtype=gradient.dtype)
        prices.ascend(problem.violations(shares))
        shares = (shares - rate * gradient).clamp(0, 1)
        if watch:
            watch(step + 1, shares)
    return shares


def least_error(epsilon: float, n_calls: int) -> float:
    """How often any method must mistake eps |x - 1/2| for eps |x + 1/2| after so many slopes with unit noise.

    Between the two minima the slopes are -eps and +eps: two normal means, told apart no better than by the sign of
    their sum. Elsewhere slopes are the same for both. A mistake costs eps / 2 or more.
    """
    return float(norm.cdf(-epsilon * sqrt(n_calls)))


def noisy_descent(epsilon: float, n_calls: int, n_runs: int, generator: np.random.Generator) -> Floats:
    """Suboptimality of averaged projected descent on eps |x - 1/2| over [-1, 1], from 0; (n_runs,)."""
    x, total, rate = np.zeros(n_runs), np.zeros(n_runs), 1 / sqrt(n_calls)
    for _ in range(n_calls):
        total += x
        slope = epsilon * np.sign(x - 0.5) + generator.standard_normal(n_runs)
        x = np.clip(x - rate * slope, -1, 1)
    return epsilon * np.abs(total / n_calls - 0.5)
