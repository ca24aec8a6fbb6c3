"""Weights and residual together on a fixed support: a convex problem, solved by Newton steps.

Each step minimises the second-order model of the loss: the residual is eliminated, the weights are found by Frank-Wolfe
on what remains, and the move is halved until the loss falls. A squared loss is its own model: one step is exact.
"""

import torch
from torch import Tensor

from smatter.linear.residual import columns_of, padded_hessian
from smatter.linear.source_limit import limit_sources
from smatter.linear.task import LinearTask
from smatter.solve.frank_wolfe import FrankWolfe
from smatter.solve.loop import run
from smatter.solve.quadratic import QuadraticMixture

MAX_NEWTON_STEPS = 30
MAX_HALVINGS = 30
MAX_FRANK_WOLFE_STEPS = 10_000


def solve_on_support(
    task: LinearTask,
    support: Tensor,
    weights: Tensor,
    residual: Tensor,
    max_sources: int | None = None,
    tolerance: float = 1e-6,
    allowed: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The best weights and the best residual that is zero outside a support.

    Args:
        task: the loss and its sources.
        support: true where the residual may differ from zero, (n_tasks, n_parameters).
        weights: where to start, (n_tasks, n_blocks, n_sources).
        residual: where to start, within the support.
        max_sources: the most active sources in a row of weights; chosen in the first model and then kept.
        tolerance: on what the last step gained, and on the duality gap of the models.
        allowed: true for the sources that may carry weight, shaped as the weights; all by default.
    """
    value = task.value(weights, residual)
    for index in range(MAX_NEWTON_STEPS):
        model = _Model.of(task, support, weights, residual)
        goal = run(FrankWolfe(tolerance / 4, allowed=allowed), model.mixture, weights, MAX_FRANK_WOLFE_STEPS).point
        if max_sources is not None and index == 0:
            goal = limit_sources(model.mixture, goal, max_sources, tolerance / 4)
            # The start may use other sources; from here on only these count.
            allowed, weights = goal > 0, goal
            residual = model.residual(goal)
            value = task.value(weights, residual)
        else:
            weights, residual, new = _towards(
                task, weights, residual, value=value, new_weights=goal, new_residual=model.residual(goal)
            )
            gained, value = value - new, new
            if bool((gained <= 0.1 * tolerance * value.abs().clamp(min=1)).all()):
                break
        if task.loss.is_quadratic:
            break
    return weights, residual


class _Model:
    """The loss to second order in (w, D on a support), with D eliminated."""

    def __init__(self, mixture: QuadraticMixture, solved: Tensor, columns: Tensor, n_parameters: int) -> None:
        self.mixture = mixture
        self._solved, self._columns, self._n_parameters = solved, columns, n_parameters

    @classmethod
    def of(cls, task: LinearTask, support: Tensor, weights: Tensor, residual: Tensor) -> "_Model":
        columns, inside = columns_of(support)
        n_kept = columns.shape[1]
        theta = task.mixed(weights) + residual
        value, gradient = task.loss.evaluate(theta)
        value = value + 0.5 * (task.ridge * residual.square()).sum(dim=1)
        hessian = task.loss.hessian_among(theta, columns, task.rows)
        corner = padded_hessian(hessian[:, :n_kept, :n_kept], inside, task.ridge[columns])
        cross = torch.where(inside[:, :, None], hessian[:, :n_kept, n_kept:], 0.0)
        square = hessian[:, n_kept:, n_kept:]
        # As 1/2 z'Hz - b'z + c in z = (D, w) themselves, not in their changes.
        inner, flat = residual.gather(1, columns) * inside, weights.flatten(1)
        inner_slope = torch.where(inside, gradient.gather(1, columns) + task.ridge[columns] * inner, 0.0)
        flat_slope = (task.rows @ gradient.unsqueeze(-1)).squeeze(-1)
        inner_linear = _times(corner, inner) + _times(cross, flat) - inner_slope
        flat_linear = _times(cross.mT, inner) + _times(square, flat) - flat_slope
        constant = value + 0.5 * ((inner_linear - inner_slope) * inner).sum(dim=1)
        constant = constant + 0.5 * ((flat_linear - flat_slope) * flat).sum(dim=1)
        solved: Tensor = torch.linalg.solve(corner, torch.cat([cross, inner_linear.unsqueeze(-1)], dim=2))
        mixture = QuadraticMixture(
            square - cross.mT @ solved[..., :-1],
            flat_linear - _times(cross.mT, solved[..., -1]),
            constant - 0.5 * (inner_linear * solved[..., -1]).sum(dim=1),
            task.n_blocks,
        )
        return cls(mixture, solved, columns, residual.shape[1])

    def residual(self, weights: Tensor) -> Tensor:
        """The best residual of the model for given weights, (n_tasks, n_parameters)."""
        inner = self._solved[..., -1] - _times(self._solved[..., :-1], weights.flatten(1))
        return inner.new_zeros(len(inner), self._n_parameters).scatter(1, self._columns, inner)


def _towards(
    task: LinearTask, weights: Tensor, residual: Tensor, value: Tensor, new_weights: Tensor, new_residual: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As much of a move as does not raise the loss: all of it, a half, a quarter ..., or nothing."""
    share = torch.ones_like(value)
    for _ in range(MAX_HALVINGS):
        trial_weights = weights + share[:, None, None] * (new_weights - weights)
        trial_residual = residual + share[:, None] * (new_residual - residual)
        trial = task.value(trial_weights, trial_residual)
        worse = ~(trial <= value)
        if not bool(worse.any()):
            return trial_weights, trial_residual, trial
        share = torch.where(worse, share / 2, share)
    keep = worse[:, None]
    return (
        torch.where(keep[..., None], weights, trial_weights),
        torch.where(keep, residual, trial_residual),
        torch.where(worse, value, trial),
    )


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
