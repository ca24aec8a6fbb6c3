"""The residual part of a linear task: the loss in D for fixed weights, and exact refits on a support."""

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.linear.loss import Loss
from smatter.solve.problem import Evaluation

Ridge = float | Tensor
"""One strength for all coordinates, or one for each."""

NEWTON_STEPS = 20
NEWTON_TOLERANCE = 1e-10


@dataclass(frozen=True)
class ResidualProblem:
    """loss(base + D) + alpha / 2 |D|^2 as a function of D, (n_tasks, n_parameters).

    Args:
        loss: of theta.
        base: the mixture, (n_tasks, n_parameters).
        alpha: how strongly each coordinate is pulled towards zero, (n_parameters,), or all.
    """

    loss: Loss
    base: Tensor
    alpha: Ridge = 0.0
    is_convex = True

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss and its gradient."""
        value, gradient = self.loss.evaluate(self.base + point)
        return Evaluation(value + self._penalty(point), gradient + self.alpha * point)

    def value(self, point: Tensor) -> Tensor:
        """The loss alone."""
        return self.loss.value(self.base + point) + self._penalty(point)

    @property
    def is_quadratic(self) -> bool:
        """Whether the loss is squared."""
        return self.loss.is_quadratic

    def hessian_product(self, direction: Tensor) -> Tensor:
        """The Hessian times a direction, where it is constant."""
        return self.loss.hessian_product(direction) + self.alpha * direction

    def hessian_diagonal(self, point: Tensor) -> Tensor:
        """Second derivative in every coordinate."""
        return self.loss.hessian_diagonal(self.base + point) + self.alpha

    def select(self, tasks: Tensor) -> "ResidualProblem":
        """The problem of some tasks."""
        return ResidualProblem(self.loss.select(tasks), self.base[tasks], self.alpha)

    def refit(self, support: Tensor, start: Tensor | None = None) -> Tensor:
        """The minimum over residuals that are zero outside a support, by Newton steps on its coordinates alone.

        Args:
            support: true where D may differ from zero, (n_tasks, n_parameters).
            start: a residual within the support; zero by default.
        """
        point = torch.zeros_like(self.base) if start is None else start * support
        columns, inside = columns_of(support)
        if not columns.shape[1]:
            return point
        value = self.value(point)
        for _ in range(NEWTON_STEPS):
            _, gradient = self.evaluate(point)
            slope = torch.where(inside, gradient.gather(1, columns), 0.0)
            move = self._newton(point, columns, inside, slope)
            decrease = (slope * move).sum(dim=1)
            if bool((decrease <= NEWTON_TOLERANCE * value.abs().clamp(min=1e-30)).all()):
                break
            point, value = self._damped(point, value, columns, move)
            if self.loss.is_quadratic:
                break
        return point

    def _newton(self, point: Tensor, columns: Tensor, inside: Tensor, slope: Tensor) -> Tensor:
        hessian = padded_hessian(self.loss.hessian_among(self.base + point, columns), inside, at(self.alpha, columns))
        solved: Tensor = torch.linalg.solve(hessian, slope.unsqueeze(-1))
        return solved.squeeze(-1)

    def _damped(self, point: Tensor, value: Tensor, columns: Tensor, move: Tensor) -> tuple[Tensor, Tensor]:
        """Halve the Newton step until no task's loss rises."""
        share = torch.ones_like(value)
        for _ in range(30):
            moved = point.scatter_add(1, columns, -share[:, None] * move)
            new = self.value(moved)
            worse = ~(new <= value)
            if not bool(worse.any()):
                return moved, new
            share = torch.where(worse, share / 2, share)
        return point.scatter_add(1, columns, torch.where(worse[:, None], 0.0, -share[:, None] * move)), new.minimum(
            value
        )

    def _penalty(self, point: Tensor) -> Tensor:
        return 0.5 * (self.alpha * point.square()).sum(dim=1)


def columns_of(support: Tensor) -> tuple[Tensor, Tensor]:
    """The coordinates of each task's support, (n_tasks, k), padded to the largest; and which are not padding."""
    n_kept = int(support.sum(dim=1).max())
    columns = support.to(torch.uint8).sort(dim=1, descending=True, stable=True).indices[:, :n_kept]
    return columns, support.gather(1, columns)


def at(ridge: Ridge, columns: Tensor) -> Ridge:
    """The ridge of some coordinates."""
    return ridge[columns] if isinstance(ridge, Tensor) else ridge


def padded_hessian(hessian: Tensor, inside: Tensor, ridge: Ridge) -> Tensor:
    """A Hessian that can be inverted: ridge added, padding made an identity, duplicate or empty columns lifted."""
    if not hessian.shape[1]:
        return hessian
    both = inside[:, :, None] & inside[:, None, :]
    hessian = torch.where(both, hessian, 0.0)
    diagonal = hessian.diagonal(dim1=1, dim2=2)
    # Too little to move a well-posed solution.
    floor = ridge + 1e4 * torch.finfo(hessian.dtype).eps * diagonal.amax(dim=1, keepdim=True).clamp(min=1e-30)
    return hessian + torch.diag_embed(torch.where(inside, floor.expand_as(diagonal), 1.0))
