"""The lasso under a squared loss by its signs (Lee, Battle, Raina and Ng, 2007).

Where the signs of a solution are known, it solves a linear system. Each step solves for the coordinates in use with
their present signs and goes there, or to the first coordinate that vanishes on the way; a task that has arrived takes
in the coordinates that most violate optimality. The loss never rises, and the end is reached in finitely many steps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.linear.group_lasso import penalised
from smatter.linear.residual import ResidualProblem, at, columns_of, padded_hessian
from smatter.solve.loop import State
from smatter.solve.pattern import Pattern
from smatter.solve.problem import Evaluation, Problem

NEWCOMERS = 2
"""Coordinates that a task takes in at a time."""


@dataclass(frozen=True)
class FeatureSign:
    """Minimise a squared loss + strength * |D|_1 over residuals, (n_tasks, d).

    Args:
        strength: lambda of each task, (n_tasks,).
        tolerance: on the duality gap.
    """

    strength: Tensor
    tolerance: float = 1e-7
    patience = 100

    def start(self, problem: Problem, point: Tensor) -> State:
        """The state at any residual, with no signs but its own."""
        known = problem.evaluate(point)
        return self._state(point, known, point.sign(), self.strength.to(point))

    def step(self, problem: Problem, state: State, index: int) -> State:  # noqa: ARG002
        """Take in newcomers where the signs are settled, then solve for all coordinates with a sign."""
        if not isinstance(problem, ResidualProblem):
            raise TypeError("signs alone determine a residual under a squared loss only: use ProximalGradient")
        signs, strength = state.memory
        slope = state.gradient + strength[:, None] * signs
        unsettled = torch.where(signs != 0, slope, 0.0).abs().amax(dim=1, keepdim=True) > 1e-9 * strength[:, None]
        excess = torch.where(signs == 0, state.gradient.abs() - strength[:, None], 0.0)
        best = excess.topk(min(NEWCOMERS, excess.shape[1]), dim=1)
        welcome = (best.values > 0) & ~unsettled
        newcomers = torch.zeros_like(signs).scatter(1, best.indices, welcome.to(signs))
        signs = signs - newcomers * state.gradient.sign()
        point, signs = _solve(problem, state, signs, strength)
        return self._state(point, problem.evaluate(point), signs, strength)

    def _state(self, point: Tensor, known: Evaluation, signs: Tensor, strength: Tensor) -> State:
        total, gap = penalised(Pattern(0), strength, point, known)
        return State(point, total, known.gradient, gap, (signs, strength))


def _solve(problem: ResidualProblem, state: State, signs: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
    """The minimum among residuals of these signs, or the way there up to the first coordinate that vanishes."""
    columns, inside = columns_of(signs != 0)
    if not columns.shape[1]:
        return state.point, signs
    sign = torch.where(inside, signs.gather(1, columns), 0.0)
    inner = torch.where(inside, state.point.gather(1, columns), 0.0)
    slope = torch.where(inside, state.gradient.gather(1, columns), 0.0) + strength[:, None] * sign
    hessian = padded_hessian(problem.loss.hessian_among(problem.base, columns), inside, at(problem.alpha, columns))
    move: Tensor = -torch.linalg.solve(hessian, slope.unsqueeze(-1)).squeeze(-1)
    against = sign * move < 0
    reach = torch.where(against, -inner / torch.where(against, move, 1.0), torch.inf)
    longest = reach.amin(dim=1, keepdim=True).clamp(max=1)
    gone = reach <= longest
    moved = torch.where(gone, 0.0, inner + longest * move)
    remaining = torch.where(gone, 0.0, sign)
    return torch.zeros_like(signs).scatter(1, columns, moved), torch.zeros_like(signs).scatter(1, columns, remaining)
