"""Linear predictors on frozen features: the convex regime (multi-source paper, sections 3 and 9).

A loss is a function of theta, (n_tasks, d), for a batch of tasks with n examples each. `SquaredLoss` scans the
examples; `SquaredStatistics` is the same function from X'X and X'y, which pays when n exceeds d. Example weights of
zero pad a batch or leave an example out.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus


class Loss(Protocol):
    """A convex function of the parameters of each task."""

    ridge: float

    def value(self, theta: Tensor) -> Tensor:
        """The mean loss on the support set plus ridge / 2 |theta|^2, (n_tasks,)."""
        ...

    def gradient(self, theta: Tensor) -> Tensor:
        """Its gradient, (n_tasks, d)."""
        ...

    def curvature(self, theta: Tensor, direction: Tensor) -> Tensor | None:
        """Second derivative along a direction, (n_tasks,), where it is the same everywhere on it; else None."""
        ...

    def hessian(self, theta: Tensor, columns: Tensor) -> Tensor:
        """Second derivatives among some coordinates, (n_tasks, k, k) for columns (n_tasks, k)."""
        ...

    def select(self, tasks: Tensor) -> "Loss":
        """The loss of some tasks."""
        ...


@dataclass(frozen=True)
class SquaredLoss:
    """1 / 2n |X theta - y|^2 + ridge / 2 |theta|^2 by scanning the examples: n d per gradient.

    Args:
        features: X, (n_tasks, n, d).
        targets: y, (n_tasks, n).
        ridge: strength of the penalty.
        weights: of the examples, summing to one per task, (n_tasks, n); equal by default.
    """

    features: Tensor
    targets: Tensor
    ridge: float = 0.0
    weights: Tensor | None = None

    def value(self, theta: Tensor) -> Tensor:
        """The loss of each task."""
        return 0.5 * (self._shares * self._errors(theta).square()).sum(dim=1) + 0.5 * self.ridge * _dot(theta, theta)

    def gradient(self, theta: Tensor) -> Tensor:
        """X' (X theta - y) / n + ridge theta."""
        return self._back(self._shares * self._errors(theta)) + self.ridge * theta

    def curvature(self, theta: Tensor, direction: Tensor) -> Tensor:  # noqa: ARG002
        """|X d|^2 / n + ridge |d|^2."""
        return (self._shares * self._predict(direction).square()).sum(dim=1) + self.ridge * _dot(direction, direction)

    def hessian(self, theta: Tensor, columns: Tensor) -> Tensor:  # noqa: ARG002
        """X_S' X_S / n + ridge I."""
        return _gram(self.features, columns, self._shares, self.ridge)

    def select(self, tasks: Tensor) -> "SquaredLoss":
        """The loss of some tasks."""
        weights = None if self.weights is None else self.weights[tasks]
        return SquaredLoss(self.features[tasks], self.targets[tasks], self.ridge, weights)

    @cached_property
    def _shares(self) -> Tensor:
        return torch.full_like(self.targets, 1 / self.targets.shape[1]) if self.weights is None else self.weights

    def _predict(self, theta: Tensor) -> Tensor:
        return (self.features @ theta.unsqueeze(-1)).squeeze(-1)

    def _errors(self, theta: Tensor) -> Tensor:
        return self._predict(theta) - self.targets

    def _back(self, values: Tensor) -> Tensor:
        return (values.unsqueeze(1) @ self.features).squeeze(1)
