"""Linear predictors on frozen features: the convex regime (multi-source paper, sections 3 and 9).

A loss is a function of theta, (n_tasks, n_outputs * d) with an output's coefficients side by side, for a batch of
tasks. `LinearLoss` scans the examples, n d per gradient; `SquaredStatistics` is the squared loss from X'X and X'y,
d^2 per gradient, which pays when n exceeds d.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from smatter.linear.links import Link, Squared
from smatter.solve.problem import Evaluation


class Loss(Protocol):
    """A convex function of the parameters of each task: a mean over examples plus ridge / 2 |theta|^2."""

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        ...

    @property
    def is_quadratic(self) -> bool:
        """Whether the Hessian is the same everywhere."""
        ...

    def evaluate(self, theta: Tensor) -> Evaluation:
        """The loss, (n_tasks,), and its gradient, (n_tasks, n_parameters)."""
        ...

    def value(self, theta: Tensor) -> Tensor:
        """The loss alone."""
        ...

    def hessian_product(self, direction: Tensor) -> Tensor:
        """The Hessian times a direction, (n_tasks, n_parameters), where it is constant."""
        ...

    def hessian_among(self, theta: Tensor, columns: Tensor, directions: Tensor | None = None) -> Tensor:
        """Second derivatives among coordinates, (n_tasks, k), and further directions, (n_tasks or 1, m, n_parameters).

        Returns:
            (n_tasks, k + m, k + m).
        """
        ...

    def hessian_diagonal(self, theta: Tensor) -> Tensor:
        """Second derivative in every coordinate, (n_tasks, n_parameters)."""
        ...

    def select(self, tasks: Tensor) -> "Loss":
        """The loss of some tasks."""
        ...


@dataclass(frozen=True)
class LinearLoss:
    """Mean loss of X theta against the targets, by scanning the examples.

    Args:
        features: X, (n_tasks, n, d); one X may serve all tasks, (1, n, d).
        targets: (n_tasks or 1, n_outputs, n): numbers for `Squared`; for `Logistic` zeros and ones.
        link: from outputs to losses.
        ridge: strength of the penalty.
        shares: weight of each example, (n_tasks, n), summing to one; equal by default. Zeros pad a batch of tasks of
            different sizes, or leave examples out.
    """

    features: Tensor
    targets: Tensor
    link: Link = Squared()  # noqa: RUF009
    ridge: float = 0.0
    shares: Tensor | None = None

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.targets.shape[1] * self.features.shape[2]

    @property
    def is_quadratic(self) -> bool:
        """Whether the loss is squared."""
        return isinstance(self.link, Squared)

    @property
    def n_outputs(self) -> int:
        """Numbers predicted for an example."""
        return self.targets.shape[1]

    def outputs(self, theta: Tensor) -> Tensor:
        """X theta, (n_tasks, n_outputs, n); nothing is scanned where theta is zero."""
        if not bool((theta != 0).any()):
            n_tasks = max(len(theta), len(self.features))
            return theta.new_zeros(n_tasks, self.n_outputs, self.features.shape[1])
        return _times(theta.reshape(len(theta), self.n_outputs, -1), self.features.mT)

    def evaluate(self, theta: Tensor) -> Evaluation:
        """The loss and its gradient."""
        outputs = self.outputs(theta)
        slopes = self.link.slopes(outputs, self.targets) * self.weights
        gradient = _times(slopes, self.features).flatten(1) + self.ridge * theta
        return Evaluation(self.value_of(outputs, theta), gradient)

    def value(self, theta: Tensor) -> Tensor:
        """The loss alone."""
        return self.value_of(self.outputs(theta), theta)

    def hessian_product(self, direction: Tensor) -> Tensor:
        """X'X d / n + ridge d, under a squared loss."""
        return _times(self.outputs(direction) * self.weights, self.features).flatten(1) + self.ridge * direction

    def hessian_among(self, theta: Tensor, columns: Tensor, directions: Tensor | None = None) -> Tensor:
        """J'BJ + ridge I: J is how the outputs change, B how the link bends."""
        jacobian = self._jacobian(columns)
        if directions is not None:
            changes = predict(self, directions).unflatten(2, (self.n_outputs, -1))
            jacobian = torch.cat([jacobian, changes.expand(len(columns), -1, -1, -1)], dim=1)
        bent = self.link.bend(jacobian, self.outputs(theta)) * self.weights[:, None]
        hessian = bent.flatten(2) @ jacobian.flatten(2).mT
        return hessian + self.ridge * _inner_products(columns, directions, theta) if self.ridge else hessian

    def hessian_diagonal(self, theta: Tensor) -> Tensor:
        """Second derivative in every coordinate."""
        one_each = torch.eye(self.n_outputs, dtype=theta.dtype)[None, :, :, None]
        bends = self.link.bend(one_each, self.outputs(theta)).diagonal(dim1=1, dim2=2).mT * self.weights
        return (_times(bends, self.features.square()).flatten(1) + self.ridge).expand(len(theta), -1)

    def _jacobian(self, columns: Tensor) -> Tensor:
        """How the outputs change with some coordinates, (n_tasks, k, n_outputs, n)."""
        output, feature = columns // self.features.shape[2], columns % self.features.shape[2]
        examples = self.features.expand(len(columns), -1, -1)
        chosen = examples.gather(2, feature.unsqueeze(1).expand(-1, examples.shape[1], -1)).mT
        if self.n_outputs == 1:
            return chosen.unsqueeze(2)
        return torch.nn.functional.one_hot(output, self.n_outputs).unsqueeze(-1) * chosen.unsqueeze(2)

    def select(self, tasks: Tensor) -> "LinearLoss":
        """The loss of some tasks."""
        return LinearLoss(
            _of_tasks(self.features, tasks),
            _of_tasks(self.targets, tasks),
            self.link,
            self.ridge,
            None if self.shares is None else _of_tasks(self.shares, tasks),
        )

    @cached_property
    def weights(self) -> Tensor:
        """Shares of the examples, (n_tasks or 1, 1, n)."""
        n_examples = self.features.shape[1]
        if self.shares is None:
            return self.features.new_full((1, 1, n_examples), 1 / n_examples)
        return self.shares[:, None]

    def value_of(self, outputs: Tensor, theta: Tensor) -> Tensor:
        """The loss, where the outputs of theta are known."""
        value = (self.link.losses(outputs, self.targets) * self.weights[:, 0]).sum(dim=1)
        return value + 0.5 * self.ridge * theta.square().sum(dim=1) if self.ridge else value


@dataclass(frozen=True)
class SquaredStatistics:
    """1/2 theta'H theta - b'theta + c: a squared loss of one output that has forgotten its examples.

    Args:
        hessian: H = X'X / n + ridge I, (n_tasks, d, d).
        linear: b = X'y / n, (n_tasks, d).
        constant: c = y'y / 2n, (n_tasks,).
    """

    hessian: Tensor
    linear: Tensor
    constant: Tensor
    is_quadratic = True

    @classmethod
    def of(cls, loss: LinearLoss) -> "SquaredStatistics":
        """The statistics of a squared loss; costs n d^2, once."""
        weighted = loss.features * loss.weights.mT
        identity = torch.eye(loss.features.shape[2], dtype=weighted.dtype, device=weighted.device)
        linear = (loss.targets @ weighted).squeeze(1)
        constant = 0.5 * (loss.targets.square() * loss.weights).sum(dim=(1, 2))
        return cls(weighted.mT @ loss.features + loss.ridge * identity, linear, constant)

    @property
    def n_parameters(self) -> int:
        """Length of theta."""
        return self.linear.shape[1]

    def evaluate(self, theta: Tensor) -> Evaluation:
        """The loss and its gradient."""
        bent = self.hessian_product(theta)
        return Evaluation((theta * (0.5 * bent - self.linear)).sum(dim=1) + self.constant, bent - self.linear)

    def value(self, theta: Tensor) -> Tensor:
        """The loss alone."""
        return self.evaluate(theta).value

    def hessian_product(self, direction: Tensor) -> Tensor:
        """H d."""
        return _times(direction.unsqueeze(1), self.hessian).squeeze(1)

    def hessian_among(self, theta: Tensor, columns: Tensor, directions: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """The part of H that belongs to some coordinates and directions."""
        tasks = torch.arange(len(columns))[:, None, None]
        among = self.hessian.expand(len(columns), -1, -1)[tasks, columns[:, :, None], columns[:, None, :]]
        if directions is None:
            return among
        bent = (directions @ self.hessian).expand(len(columns), -1, -1)
        return _bordered(among, bent.gather(2, _for_rows(columns, bent)), bent @ directions.mT)

    def hessian_diagonal(self, theta: Tensor) -> Tensor:
        """The diagonal of H."""
        return self.hessian.diagonal(dim1=1, dim2=2).expand_as(theta)

    def select(self, tasks: Tensor) -> "SquaredStatistics":
        """The loss of some tasks."""
        return SquaredStatistics(*(_of_tasks(tensor, tasks) for tensor in (self.hessian, self.linear, self.constant)))


def predict(loss: LinearLoss, rows: Tensor) -> Tensor:
    """What every row of coefficients predicts for every example, (n_tasks or 1, n_rows, n_outputs * n)."""
    coefficients = rows.reshape(len(rows), -1, loss.features.shape[2])
    if len(rows) == 1 and len(loss.features) > 1:  # one product instead of one per task; this way round it is faster
        predictions: Tensor = (coefficients[0] @ loss.features.flatten(0, 1).mT).unflatten(1, loss.features.shape[:2])
        predictions = predictions.transpose(0, 1)
    else:
        predictions = coefficients @ loss.features.mT
    return predictions.reshape(len(predictions), rows.shape[1], -1)


def hessian_along(loss: Loss, theta: Tensor, directions: Tensor) -> Tensor:
    """Second derivatives among directions alone, (n_tasks, m, m)."""
    return loss.hessian_among(theta, torch.empty(len(theta), 0, dtype=torch.int64), directions)


def _inner_products(columns: Tensor, directions: Tensor | None, like: Tensor) -> Tensor:
    """Among unit vectors and directions, (n_tasks, k + m, k + m)."""
    identity = torch.eye(columns.shape[1], dtype=like.dtype).expand(len(columns), -1, -1)
    if directions is None:
        return identity
    directions = directions.expand(len(columns), -1, -1)
    return _bordered(identity, directions.gather(2, _for_rows(columns, directions)), directions @ directions.mT)


def _for_rows(columns: Tensor, rows: Tensor) -> Tensor:
    return columns[:, None].expand(-1, rows.shape[1], -1)


def _bordered(corner: Tensor, cross: Tensor, square: Tensor) -> Tensor:
    """[[corner, cross'], [cross, square]]."""
    return torch.cat([torch.cat([corner, cross.mT], dim=2), torch.cat([cross, square], dim=2)], dim=1)


def _times(left: Tensor, right: Tensor) -> Tensor:
    """(n_tasks, a, b) times (n_tasks, b, c); one right side for all tasks makes it a single product."""
    if len(right) == 1 and len(left) > 1:
        return (left.flatten(0, 1) @ right[0]).reshape(*left.shape[:2], -1)
    return left @ right


def _of_tasks(tensor: Tensor, tasks: Tensor) -> Tensor:
    """Rows of some tasks; what all tasks share stays as it is."""
    return tensor if len(tensor) == 1 else tensor[tasks]
