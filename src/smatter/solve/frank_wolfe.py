"""Frank-Wolfe over the simplex and over products of simplices (multi-source paper, equation 6 and theorem 3).

Vanilla steps go towards the vertex of least gradient: from a vertex, at most t + 1 sources are active after t steps.
Away and pairwise steps can also take weight off a source, and converge linearly on strongly convex losses
(Lacoste-Julien and Jaggi, 2015); they move one block at a time, the one with the largest gap. On quadratics these
steps alternate with fully corrective ones (Wolfe, 1976), which end where many small steps would.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smatter.solve.loop import State
from smatter.solve.problem import Problem
from smatter.solve.quadratic import QuadraticMixture

Variant = Literal["vanilla", "away", "pairwise"]
StepRule = Literal["line search", "open loop"]

Barrier = tuple[Tensor, ...]
"""Infinite where a source may not carry weight, shaped as the weights; empty where all may."""

SUFFICIENT = 1e-4
"""Share of the linear decrease that a backtracking step must reach (Armijo)."""

MAX_HALVINGS = 40


@dataclass(frozen=True)
class FrankWolfe:
    """Conditional gradient on weights (n_tasks, n_blocks, n_sources).

    Args:
        tolerance: on the duality gap, which bounds the distance from the minimum of a convex loss.
        variant: which directions a block may take.
        step_rule: `line search` is exact where the loss is quadratic and backtracks elsewhere, so the loss never
            rises. `open loop` is 2 / (t + 2), for vanilla steps.
        allowed: true for the sources that may carry weight, shaped as the weights; all by default.
        max_halvings: losses that a backtracking step may cost.
    """

    tolerance: float = 1e-6
    variant: Variant = "pairwise"
    step_rule: StepRule = "line search"
    allowed: Tensor | None = None
    max_halvings: int = MAX_HALVINGS

    @property
    def patience(self) -> float:
        """Open-loop steps may raise the loss for a while; a line search that fails thrice has ended."""
        return 3 if self.step_rule == "line search" else math.inf

    def start(self, problem: Problem, point: Tensor) -> State:
        """The state at given weights."""
        value, gradient = problem.evaluate(point)
        barrier = _barrier(self.allowed, point)
        return State(point, value, gradient, _gaps(point, gradient, barrier).sum(dim=-1), barrier)

    def step(self, problem: Problem, state: State, index: int) -> State:
        """Move along the variant's direction as far as the step rule says."""
        if isinstance(problem, QuadraticMixture) and self.variant != "vanilla" and index % 2 == 0:
            direction = _correction(problem, state.point, state.gradient, state.memory)
        else:
            direction = self._direction(state.point, state.gradient, state.memory)
        slope = (state.gradient * direction).sum(dim=(1, 2))
        bent = problem.hessian_product(direction) if problem.is_quadratic else None
        curvature = None if bent is None else (direction * bent).sum(dim=(1, 2))
        if self.step_rule == "open loop":
            share = torch.full_like(state.value, 2 / (index + 2))
        elif curvature is not None:
            share = exact_share(slope, curvature)
        else:
            share = backtrack(
                problem, state.point, state.value, direction=direction, slope=slope, max_halvings=self.max_halvings
            )
        along = share[:, None, None]
        point = state.point + along * direction
        point = torch.where(point > 2 * torch.finfo(point.dtype).eps, point, 0.0)
        if bent is None or curvature is None:
            value, gradient = problem.evaluate(point)
        else:
            value = state.value + share * (slope + 0.5 * share * curvature)
            gradient = state.gradient + along * bent
        return State(point, value, gradient, _gaps(point, gradient, state.memory).sum(dim=-1), state.memory)

    def _direction(self, weights: Tensor, gradient: Tensor, barrier: Barrier) -> Tensor:
        """The longest feasible move, so that a share of one is the boundary."""
        best = _vertex(_barred(gradient, barrier).argmin(dim=-1), weights)
        if self.variant == "vanilla":
            return best - weights
        # The worst source among those with weight.
        worst = _vertex(torch.where(weights > 0, gradient, -torch.inf).argmax(dim=-1), weights)
        available = (worst * weights).sum(dim=-1, keepdim=True)
        if self.variant == "pairwise":
            direction = available * (best - worst)
        else:
            towards = ((weights - best) * gradient).sum(dim=-1, keepdim=True)
            away = ((worst - weights) * gradient).sum(dim=-1, keepdim=True)
            longest = available / (1 - available).clamp(min=torch.finfo(weights.dtype).tiny)
            direction = torch.where((towards >= away) | (available >= 1), best - weights, longest * (weights - worst))
        if weights.shape[1] == 1:
            return direction
        widest = _gaps(weights, gradient, barrier).argmax(dim=-1)
        return direction * torch.zeros_like(weights[..., :1]).scatter(1, widest[:, None, None], 1.0)


def _correction(problem: QuadraticMixture, weights: Tensor, gradient: Tensor, barrier: Barrier) -> Tensor:
    """Towards the minimum over the active sources and the best of the others, where weights may be negative.

    Either no further than to the first weight that becomes zero, which lowers the loss but drops one source at a time,
    or to the nearest point with no weight below zero, whichever is the better of the two.
    """
    active = (weights > 0) | (_vertex(_barred(gradient, barrier).argmin(dim=-1), weights) > 0)
    goal = torch.where(active, problem.minimum_on(active), 0.0)
    # Rounding must not lead off the simplex, nor may a system that could not be solved lead anywhere.
    goal = goal / goal.sum(dim=2, keepdim=True)
    goal = torch.where(goal.isfinite().all(dim=2, keepdim=True), goal, weights)
    falling = goal < weights
    longest = torch.where(falling, weights / torch.where(falling, weights - goal, 1.0), torch.inf).amin(dim=(1, 2))
    within = longest.clamp(max=1)[:, None, None] * (goal - weights)
    positive = goal.clamp(min=0)
    cut = positive / positive.sum(dim=2, keepdim=True) - weights
    return torch.where((_drop(problem, gradient, cut) > _drop(problem, gradient, within))[:, None, None], cut, within)


def _drop(problem: QuadraticMixture, gradient: Tensor, direction: Tensor) -> Tensor:
    """How much an exact step along a direction lowers the loss, (n_tasks,)."""
    slope = (gradient * direction).sum(dim=(1, 2))
    curvature = (problem.hessian_product(direction) * direction).sum(dim=(1, 2))
    share = exact_share(slope, curvature)
    return -share * (slope + 0.5 * share * curvature)


def duality_gap(weights: Tensor, gradient: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Sum over blocks of <w, gradient> - min gradient: at least value - minimum of a convex loss; (n_tasks,)."""
    return _gaps(weights, gradient, _barrier(allowed, weights)).sum(dim=-1)


def _barrier(allowed: Tensor | None, like: Tensor) -> Barrier:
    return () if allowed is None else (torch.where(allowed, 0.0, torch.inf).to(like),)


def _gaps(weights: Tensor, gradient: Tensor, barrier: Barrier) -> Tensor:
    return ((weights * gradient).sum(dim=-1) - _barred(gradient, barrier).amin(dim=-1)).clamp(min=0)


def _barred(gradient: Tensor, barrier: Barrier) -> Tensor:
    return gradient + barrier[0] if barrier else gradient


def exact_share(slope: Tensor, curvature: Tensor) -> Tensor:
    """Where a parabola is least on [0, 1]; where it does not bend the loss falls to the very end; (n_tasks,)."""
    exact = torch.where(curvature > 0, -slope / torch.where(curvature > 0, curvature, 1.0), 1.0)
    return torch.where(slope < 0, exact.clamp(0, 1), 0.0)


def backtrack(
    problem: Problem,
    point: Tensor,
    value: Tensor,
    direction: Tensor,
    slope: Tensor,
    max_halvings: int = MAX_HALVINGS,
) -> Tensor:
    """The largest share 1, 1/2, 1/4 ... of a direction that lowers the loss enough; 0 where none does; (n_tasks,)."""
    axes = (-1, *(1 for _ in direction.shape[1:]))
    share = torch.where(slope < 0, torch.ones_like(slope), 0.0)
    enough = share == 0
    for _ in range(max_halvings):
        moved = problem.value(point + share.reshape(axes) * direction)
        enough = (moved <= value + SUFFICIENT * share * slope) | (share == 0)
        if bool(enough.all()):
            break
        share = torch.where(enough, share, share / 2)
    return torch.where(enough, share, 0.0)


def uniform(n_tasks: int, n_blocks: int, n_sources: int, like: Tensor) -> Tensor:
    """Equal weights, the start when nothing better is known."""
    return torch.full((n_tasks, n_blocks, n_sources), 1 / n_sources, dtype=like.dtype, device=like.device)


def _vertex(index: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).scatter(-1, index.unsqueeze(-1), 1.0)
