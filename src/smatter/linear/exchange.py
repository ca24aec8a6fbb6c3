"""Exchange of units: swap what a residual needs least for what it lacks most, as long as the loss falls.

The loss that a unit saves is estimated to second order: H_jj D_j^2 / 2 for one in use, g_j^2 / 2 H_jj for one that is
not (as in the splicing of Zhu et al., 2020). Every trial is refitted exactly, so the loss never rises.
"""

import torch
from torch import Tensor

from smatter.algebra.threshold import hard_mask
from smatter.linear.residual import ResidualProblem
from smatter.solve.pattern import Pattern

MAX_ROUNDS = 20
N_LEAST = 8
"""Units in use that a round tries to do without: those that are worth least."""

N_CANDIDATES = 3
"""Units tried in the place of one."""


def grow(problem: ResidualProblem, pattern: Pattern, point: Tensor) -> Tensor:
    """Add the unit that promises most, and refit, until `n_kept` are in use (orthogonal matching pursuit)."""
    units = pattern.units_of(point)
    point = problem.refit(pattern.spread(units), point)
    while bool((missing := units.sum(dim=1) < min(pattern.n_kept, units.shape[1])).any()):
        gain = torch.where(units, -torch.inf, promise(problem, pattern, point))
        best = hard_mask(gain, 1).bool() & missing[:, None] & (gain > 0)
        if not bool(best.any()):
            break
        units = units | best
        point = problem.refit(pattern.spread(units), point)
    return point


def exchange(problem: ResidualProblem, pattern: Pattern, point: Tensor) -> Tensor:
    """Improve residuals one swap at a time: any unit in use for one of the few that promise most without it.

    Returns refitted residuals of the same pattern that no swap tried improves.
    """
    point = grow(problem, pattern, pattern.project(point))
    value = problem.value(point)
    going = torch.arange(len(point))
    for _ in range(MAX_ROUNDS):
        part = problem.select(going)
        best, best_value = point[going], value[going]
        for rank in range(min(pattern.n_kept, N_LEAST)):
            best, best_value = _swap(part, pattern, best, best_value, rank)
        improved = best_value < value[going]
        point[going], value[going] = best, best_value
        going = going[improved]
        if not len(going):
            break
    return point


def _swap(problem: ResidualProblem, pattern: Pattern, point: Tensor, value: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Try to do without the unit that is worth `rank`-th least."""
    units = pattern.units_of(point)
    loss_without = torch.where(units, worth(problem, pattern, point), torch.inf)
    out = torch.zeros_like(units).scatter(1, loss_without.argsort(dim=1)[:, rank : rank + 1], True)
    rest = units & ~out
    without = problem.refit(pattern.spread(rest), point)
    gain = torch.where(units, -torch.inf, promise(problem, pattern, without))
    for candidate in gain.topk(min(N_CANDIDATES, gain.shape[1]), dim=1).indices.unbind(1):
        into = torch.zeros_like(units).scatter(1, candidate[:, None], True)
        trial = problem.refit(pattern.spread(rest | into), without)
        trial_value = problem.value(trial)
        # The pattern is held whatever ties and empty units did.
        better = (trial_value < value - 1e-12 * value.abs()) & pattern.holds(trial)
        point = torch.where(better[:, None], trial, point)
        value = torch.where(better, trial_value, value)
    return point, value


def worth(problem: ResidualProblem, pattern: Pattern, point: Tensor) -> Tensor:
    """What the loss would rise by without each unit in use, (n_tasks, n_units)."""
    return pattern.sums(0.5 * problem.hessian_diagonal(point) * point.square())


def promise(problem: ResidualProblem, pattern: Pattern, point: Tensor) -> Tensor:
    """What the loss would fall by with each unit not in use, (n_tasks, n_units)."""
    gradient = problem.evaluate(point).gradient
    return pattern.sums(0.5 * gradient.square() / problem.hessian_diagonal(point).clamp(min=1e-30))
