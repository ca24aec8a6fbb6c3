"""Iterative hard thresholding: a gradient step, then the nearest sparse residual (multi-source paper, equation 7).

Steps are normalised (Blumensath and Davies, 2010): the step size is exact along the gradient on the current support,
and halved until the loss falls. With a refit, every step ends in the minimum on its support (Foucart, 2011), so that
a support that repeats is a fixed point.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.solve.loop import State
from smatter.solve.problem import Problem

Projection = Callable[[Tensor], Tensor]

MAX_HALVINGS = 30
SUFFICIENT = 1e-3


@dataclass(frozen=True)
class HardThresholding:
    """Projected gradient on residuals, (n_tasks, d).

    Args:
        project: to the nearest residual that is sparse enough, e.g. `Pattern.project`.
        tolerance: on the decrease that the last step predicted; a residual that no step moves is stationary.
        first_step: where nothing is known of the curvature, the step size tried first.
    """

    project: Projection
    tolerance: float = 1e-8
    first_step: float = 1.0
    patience = 3

    def start(self, problem: Problem, point: Tensor) -> State:
        """The state at a sparse residual."""
        value, gradient = problem.evaluate(point)
        return State(
            point, value, gradient, torch.full_like(value, torch.inf), (torch.full_like(value, self.first_step),)
        )

    def step(self, problem: Problem, state: State, index: int) -> State:  # noqa: ARG002
        """One thresholded gradient step that does not raise the loss."""
        size = self._first_size(problem, state)
        point, value = state.point, state.value
        for _ in range(MAX_HALVINGS):
            trial = self.project(state.point - size[:, None] * state.gradient)
            moved = (trial - state.point).square().sum(dim=1)
            trial_value = problem.value(trial)
            enough = trial_value <= state.value - SUFFICIENT * moved / size
            if bool(enough.all()):
                point, value = trial, trial_value
                break
            size = torch.where(enough, size, size / 2)
        else:
            point = torch.where(enough[:, None], trial, state.point)
            moved = torch.where(enough, moved, 0.0)
        value, gradient = problem.evaluate(point)
        return State(point, value, gradient, moved / size, (size,))

    def _first_size(self, problem: Problem, state: State) -> Tensor:
        """Exact along the gradient on the support; where the loss is not quadratic, twice the last size."""
        empty = (state.point == 0).all(dim=1, keepdim=True)
        inside = torch.where(state.point != 0, state.gradient, 0.0)
        inside = torch.where(empty, self.project(state.gradient), inside)
        if not problem.is_quadratic:
            return 2 * state.memory[0]
        length, curvature = inside.square().sum(dim=1), (inside * problem.hessian_product(inside)).sum(dim=1)
        return torch.where(curvature > 0, length / curvature.clamp(min=torch.finfo(length.dtype).tiny), state.memory[0])
