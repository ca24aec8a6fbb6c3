"""What a pair costs to deploy, and pairs that cost no more than a limit (multi-source paper, section 9).

    cost = sum over blocks l of  c_mix[l] |w_l|_0  +  c_res[l] 1{D_l != 0}     (or c_res[l] nnz(D_l))

The limit is held by projection (discard what is worth least for its cost, then solve again on what is left), or by
a Lagrangian (discard what is worth less than its price, with the least price that meets the limit).
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from smatter.errors import BudgetInfeasible
from smatter.linear.alternate import solve_pair
from smatter.linear.exchange import worth
from smatter.linear.loss import hessian_along
from smatter.linear.mixing import mixture_problem
from smatter.linear.model import source_directions
from smatter.linear.residual import ResidualProblem
from smatter.linear.support import solve_on_support
from smatter.linear.task import LinearTask, PairSolution
from smatter.solve.frank_wolfe import duality_gap
from smatter.solve.pattern import Pattern

PRICES = 40


@dataclass(frozen=True)
class Costs:
    """Prices of a network's blocks.

    Args:
        mix: of one more active source in each row of weights, (n_blocks,); with one w for all, one number.
        residual: of a residual in each block, (n_residual_blocks,), or of each nonzero where `per_element`.
        blocks: residual block of each parameter, (n_parameters,).
        per_element: whether the residual is paid for by its nonzeros.
    """

    mix: Tensor
    residual: Tensor
    blocks: Tensor
    per_element: bool = False

    def of(self, weights: Tensor, residual: Tensor) -> Tensor:
        """The cost of each task, (n_tasks,)."""
        mixing = ((weights > 0).sum(dim=2) * self.mix).sum(dim=1)
        return mixing + (self._units(residual) * self.unit_costs).sum(dim=1)

    @property
    def unit_costs(self) -> Tensor:
        """What each unit of the residual costs: blocks, or single coordinates."""
        return self.residual[self.blocks] if self.per_element else self.residual

    @property
    def unit_pattern(self) -> Pattern:
        """The units that are paid for."""
        return Pattern(len(self.unit_costs), None if self.per_element else self.blocks)

    def _units(self, residual: Tensor) -> Tensor:
        return self.unit_pattern.units_of(residual)


def solve_within(
    task: LinearTask,
    costs: Costs,
    limit: float,
    method: Literal["projection", "lagrangian"] = "projection",
    tolerance: float = 1e-6,
) -> PairSolution:
    """The best pair found that costs at most `limit`.

    Args:
        task: what to solve; its residual pattern, if any, holds as well.
        costs: the prices.
        limit: C, in the unit of the prices.
        method: how what has to go is chosen.
        tolerance: of the solves.

    Raises:
        BudgetInfeasible: one source in every row of weights already costs more.
    """
    least = float((costs.mix.expand(task.n_blocks)).sum())
    if not limit >= least:
        raise BudgetInfeasible(
            f"a cost of {limit:g} is below the {least:g} that one source everywhere costs; raise the limit"
        )
    free = solve_pair(task, tolerance=tolerance)
    weight_worth, unit_worth = _worth(task, costs, free)
    if method == "projection":
        keep_weights, keep_units = _discard_cheapest(costs, free, weight_worth, unit_worth, limit)
    else:
        keep_weights, keep_units = _discard_by_price(costs, free, weight_worth, unit_worth, limit)
    return _solve_on(task, costs, free, weights=keep_weights, units=keep_units, tolerance=tolerance)


def _worth(task: LinearTask, costs: Costs, pair: PairSolution) -> tuple[Tensor, Tensor]:
    """To second order, what the loss rises by without a source (its weight goes to the heaviest) or a unit.

    The heaviest source of a row is worth infinitely much: a row needs one.
    """
    mixture = mixture_problem(task.loss, task.rows, pair.residual, task.n_blocks)
    gradient = mixture.evaluate(pair.weights).gradient
    weights = pair.weights
    heaviest = weights.argmax(dim=2, keepdim=True)
    slope = (gradient.gather(2, heaviest) - gradient) * weights
    moves = source_directions(task.rows, weights, weights)
    bends = hessian_along(task.loss, pair.theta, moves).diagonal(dim1=1, dim2=2).reshape(weights.shape)
    weight_worth = torch.where(weights > 0, (slope + 0.5 * bends).clamp(min=0), 0.0)
    weight_worth = weight_worth.scatter(2, heaviest, torch.inf)
    problem = ResidualProblem(task.loss, task.mixed(weights), task.ridge)
    return weight_worth, worth(problem, costs.unit_pattern, pair.residual)


def _discard_cheapest(
    costs: Costs, pair: PairSolution, weight_worth: Tensor, unit_worth: Tensor, limit: float
) -> tuple[Tensor, Tensor]:
    """Keep items in the order of worth per cost, each that still fits the task's limit."""
    n_tasks = len(weight_worth)
    mix = costs.mix.expand(weight_worth.shape[1])[None, :, None].expand_as(weight_worth).flatten(1)
    prices = torch.cat([mix, costs.unit_costs.expand_as(unit_worth)], dim=1)
    used = torch.cat([(pair.weights > 0).flatten(1), costs.unit_pattern.units_of(pair.residual)], dim=1)
    values = torch.cat([weight_worth.flatten(1), unit_worth], dim=1)
    rate = torch.where(used, values / prices.clamp(min=1e-300), -1.0)
    order = rate.argsort(dim=1, descending=True)
    spent, kept = torch.zeros_like(prices[:, :1]), torch.zeros_like(used)
    for item in order.T[: int(used.sum(dim=1).max())]:  # those that are not used come last
        price = prices.gather(1, item[:, None])
        fits = used.gather(1, item[:, None]) & (spent + price <= limit * (1 + 1e-12))
        spent = spent + price * fits
        kept.scatter_(1, item[:, None], fits)
    n_weights = weight_worth[0].numel()
    return kept[:, :n_weights].reshape(n_tasks, *weight_worth.shape[1:]), kept[:, n_weights:]


def _discard_by_price(
    costs: Costs, pair: PairSolution, weight_worth: Tensor, unit_worth: Tensor, limit: float
) -> tuple[Tensor, Tensor]:
    """Keep what is worth more than price times cost, at the least price, found by bisection, that meets the limit."""
    mix = costs.mix.expand(weight_worth.shape[1])[None, :, None]
    used_weights, used_units = pair.weights > 0, costs.unit_pattern.units_of(pair.residual)

    def keep(price: Tensor) -> tuple[Tensor, Tensor]:
        return (
            used_weights & (weight_worth >= price[:, None, None] * mix),
            used_units & (unit_worth >= price[:, None] * costs.unit_costs),
        )

    def cost(price: Tensor) -> Tensor:
        weights, units = keep(price)
        return (weights.sum(dim=2) * costs.mix).sum(dim=1) + (units * costs.unit_costs).sum(dim=1)

    finite = torch.where(weight_worth.isfinite(), weight_worth, 0.0).flatten(1)
    dearest = torch.cat([finite, unit_worth], dim=1).amax(dim=1)
    cheapest = torch.cat([costs.mix.flatten(), costs.unit_costs]).clamp(min=1e-12).min()
    low, high = torch.zeros_like(dearest), 2 * dearest / cheapest + 1e-12
    high = torch.where(cost(low) <= limit, 0.0, high)
    for _ in range(PRICES):
        middle = 0.5 * (low + high)
        meets = cost(middle) <= limit
        high, low = torch.where(meets, middle, high), torch.where(meets, low, middle)
    return keep(high)


def _solve_on(
    task: LinearTask, costs: Costs, pair: PairSolution, weights: Tensor, units: Tensor, tolerance: float
) -> PairSolution:
    """The best pair that uses nothing but the sources and units kept."""
    support = costs.unit_pattern.spread(units) & (pair.residual != 0)
    start = pair.weights * weights
    start = start / start.sum(dim=2, keepdim=True)
    solved, residual = solve_on_support(
        task, support, start, pair.residual * support, tolerance=tolerance, allowed=weights
    )
    value = task.value(solved, residual)
    mixture = mixture_problem(task.loss, task.rows, residual, task.n_blocks)
    return replace(
        pair,
        weights=solved,
        residual=residual,
        theta=task.mixed(solved) + residual,
        value=value,
        gap=duality_gap(solved, mixture.evaluate(solved).gradient, weights),
        epsilon=None,
    )
