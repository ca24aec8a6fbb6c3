"""Refinement on the examples from a router's word: Frank-Wolfe steps on the weights, or gradient steps on the residual.

Both descend the leave-one-out loss, so neither can end worse on it than it began (multi-source paper, section 6).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from smatter.adaptation.sparsity import keep_modules
from smatter.algebra.simplex import project_to_simplex
from smatter.compose.residual import Residual
from smatter.live.mixture import LiveMixture, Rows
from smatter.live.problems import GateLoss, MixtureLoss, ResidualLoss
from smatter.solve.frank_wolfe import FrankWolfe
from smatter.solve.loop import State, run
from smatter.solve.problem import Evaluation
from smatter.solve.thresholding import HardThresholding
from smatter.units.layouts import Layout

Watch = Callable[[State], None]

GAP = 1e-2
"""Of the Frank-Wolfe steps, as in the solver."""

DECREASE = 1e-4
"""Of the gradient steps, as in the solver."""


def refine_weights(
    live: LiveMixture, rows: Rows, weights: Tensor, residual: Residual | None, n_steps: int, pull: float, watch: Watch
) -> Tensor:
    """Frank-Wolfe steps on weights, (n_blocks, n_sources); a source without weight gets none, so limits hold.

    Args:
        live: the network.
        rows: the support set.
        weights: to begin at.
        residual: a correction that stays as it is.
        n_steps: at most.
        pull: towards the weights to begin at, in examples.
        watch: told the state at the start and after every step, its value the loss without the pull.
    """
    problem = MixtureLoss(live, rows, len(weights) > 1, residual, pull, weights)
    allowed = (weights > 0).any(dim=0).expand(1, *weights.shape)
    algorithm = FrankWolfe(GAP, "vanilla", "line search", allowed)

    def watch_loss(state: State) -> None:
        watch(replace(state, value=torch.full_like(state.value, problem.loss(state.point))))

    return run(algorithm, _Frugal(problem, n_steps), weights[None], n_steps, time.perf_counter, watch_loss).point[0]


class _Frugal:
    """A loss that gives so many gradients, one for each step, and then its value alone: nothing follows the last step.

    Args:
        loss: of the weights.
        n_gradients: that it gives.
    """

    is_convex = False
    is_quadratic = False

    def __init__(self, loss: MixtureLoss, n_gradients: int) -> None:
        self.loss, self.left = loss, n_gradients
        self.value, self.hessian_product = loss.value, loss.hessian_product

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss and its gradient, or zero for one that nobody will use."""
        self.left -= 1
        return self.loss.evaluate(point) if self.left >= 0 else Evaluation(self.value(point), torch.zeros_like(point))

    def select(self, tasks: Tensor) -> _Frugal:  # noqa: ARG002
        """There is one task."""
        return self


def refine_experts(
    loss: ResidualLoss, layout: Layout, values: Tensor, masks: Tensor, alpha: Tensor, n_steps: int, watch: Watch
) -> Tensor:
    """Gradient steps on the weights of experts; where they end, (n_experts,)."""
    problem = GateLoss(loss, layout, values, masks)

    def project(point: Tensor) -> Tensor:
        """To weights that are not negative and sum to at most one; the null expert has the rest."""
        inside = point.clamp(min=0)
        return torch.where(inside.sum(dim=1, keepdim=True) <= 1, inside, project_to_simplex(point))

    return _descend(problem, alpha[None], project, n_steps, watch)[0]


def refine_mask(
    loss: ResidualLoss, layout: Layout, values: Tensor, open_: Tensor, n_steps: int, watch: Watch
) -> Tensor:
    """Gradient steps on how far each unit is open, between 0 and 1; where they end, (n_units,)."""
    problem = GateLoss(loss, layout, values)
    return _descend(problem, open_[None], lambda point: point.clamp(0, 1), n_steps, watch)[0]


def refine_modules(loss: ResidualLoss, n_modules: int, n_steps: int, watch: Watch) -> Tensor:
    """Gradient steps on all parameters of a few modules, above what is fixed; what they add to it, (d,)."""
    project = keep_modules(loss.flat.modules, n_modules)
    start = torch.zeros(1, loss.flat.n_parameters)
    return run(HardThresholding(project, DECREASE), loss, start, n_steps, time.perf_counter, watch).point[0]


def _descend(
    problem: GateLoss, start: Tensor, project: Callable[[Tensor], Tensor], n_steps: int, watch: Watch
) -> Tensor:
    algorithm = HardThresholding(project, DECREASE)
    return run(algorithm, problem, start, n_steps, time.perf_counter, watch).point
