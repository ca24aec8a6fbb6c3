"""The mixture part of a linear task: the loss in w for a fixed residual, without scanning d again.

theta = sum_r w_r theta_r + D. A squared loss needs only R x R numbers per task; any other loss needs the sources'
predictions, n R numbers (multi-source paper, section 9).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.linear.links import Link
from smatter.linear.loss import LinearLoss, Loss, hessian_along, predict
from smatter.solve.problem import Evaluation, Problem
from smatter.solve.quadratic import QuadraticMixture


def per_block(sources: Tensor, blocks: Tensor | None) -> Tensor:
    """Sources cut into blocks of coordinates, so that each block can have its own w.

    Args:
        sources: (n_tasks or 1, n_sources, n_parameters).
        blocks: block number of each parameter, (n_parameters,); None keeps them whole.

    Returns:
        (n_tasks or 1, n_blocks * n_sources, n_parameters), zero outside a row's block.
    """
    if blocks is None:
        return sources
    inside = torch.nn.functional.one_hot(blocks).mT.to(sources.dtype)
    return (inside[None, :, None] * sources[:, None]).flatten(1, 2)


def mixture_problem(loss: Loss, rows: Tensor, residual: Tensor, n_blocks: int = 1) -> Problem:
    """The loss as a function of the weights for a fixed residual.

    Args:
        loss: of theta.
        rows: the sources, whole or per block, (n_tasks or 1, n_blocks * n_sources, n_parameters).
        residual: D, (n_tasks, n_parameters).
        n_blocks: rows of weights.
    """
    if loss.is_quadratic:
        return _quadratic(loss, rows, residual, n_blocks)
    if not isinstance(loss, LinearLoss):
        raise TypeError(f"no mixture of {type(loss).__name__}")
    n_tasks = len(residual)
    return PredictedMixture(
        predict(loss, rows).expand(n_tasks, -1, -1),
        loss.outputs(residual),
        loss.targets.expand(n_tasks, -1, -1),
        weights=loss.weights.expand(n_tasks, -1, -1),
        link=loss.link,
        gram=(loss.ridge * rows @ rows.mT).expand(n_tasks, -1, -1),
        linear=loss.ridge * (rows @ residual.unsqueeze(-1)).squeeze(-1),
        constant=0.5 * loss.ridge * residual.square().sum(dim=1),
    )


def _quadratic(loss: Loss, rows: Tensor, residual: Tensor, n_blocks: int) -> QuadraticMixture:
    """Q = T H T', q = -T g(D), c = g(D); from predictions where there are examples, so that they are scanned once."""
    if not isinstance(loss, LinearLoss):
        value, gradient = loss.evaluate(residual)
        linear = -(rows @ gradient.unsqueeze(-1)).squeeze(-1)
        return QuadraticMixture(hessian_along(loss, residual, rows), linear, value, n_blocks)
    predictions = predict(loss, rows).expand(len(residual), -1, -1)
    weights = loss.weights.tile(1, 1, loss.n_outputs)
    outputs = loss.outputs(residual)
    slopes = (loss.link.slopes(outputs, loss.targets) * loss.weights).flatten(1)
    quadratic = (predictions * weights) @ predictions.mT
    linear = -(predictions @ slopes.unsqueeze(-1)).squeeze(-1)
    if loss.ridge:
        quadratic = quadratic + loss.ridge * rows @ rows.mT
        linear = linear - loss.ridge * (rows @ residual.unsqueeze(-1)).squeeze(-1)
    return QuadraticMixture(quadratic, linear, loss.value_of(outputs, residual), n_blocks)


@dataclass(frozen=True)
class PredictedMixture:
    """A loss in w from the predictions of the sources.

    Args:
        predictions: (n_tasks, n_rows, n_outputs * n).
        offsets: outputs of the residual, (n_tasks, n_outputs, n).
        targets: as the offsets.
        weights: of the examples, (n_tasks, 1, n).
        link: from outputs to losses.
        gram: ridge times the sources' inner products, (n_tasks, n_rows, n_rows).
        linear: ridge times the sources' products with the residual, (n_tasks, n_rows).
        constant: ridge / 2 times the residual's squared norm, (n_tasks,).
    """

    predictions: Tensor
    offsets: Tensor
    targets: Tensor
    weights: Tensor
    link: Link
    gram: Tensor
    linear: Tensor
    constant: Tensor
    is_convex = True
    is_quadratic = False

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss and its gradient."""
        flat = point.flatten(1)
        outputs = self._outputs(flat)
        slopes = (self.link.slopes(outputs, self.targets) * self.weights).flatten(1)
        bent = (self.gram @ flat.unsqueeze(-1)).squeeze(-1)
        gradient = (self.predictions @ slopes.unsqueeze(-1)).squeeze(-1) + bent + self.linear
        return Evaluation(self._value(flat, outputs), gradient.reshape(point.shape))

    def value(self, point: Tensor) -> Tensor:
        """The loss alone."""
        flat = point.flatten(1)
        return self._value(flat, self._outputs(flat))

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Not asked: the loss is not quadratic."""
        raise NotImplementedError

    def select(self, tasks: Tensor) -> "PredictedMixture":
        """The problem of some tasks."""
        return PredictedMixture(
            self.predictions[tasks],
            self.offsets[tasks],
            self.targets[tasks],
            weights=self.weights[tasks],
            link=self.link,
            gram=self.gram[tasks],
            linear=self.linear[tasks],
            constant=self.constant[tasks],
        )

    def _outputs(self, flat: Tensor) -> Tensor:
        return self.offsets + (flat.unsqueeze(1) @ self.predictions).reshape(self.offsets.shape)

    def _value(self, flat: Tensor, outputs: Tensor) -> Tensor:
        losses = (self.link.losses(outputs, self.targets) * self.weights[:, 0]).sum(dim=1)
        bent = (self.gram @ flat.unsqueeze(-1)).squeeze(-1)
        return losses + (flat * (0.5 * bent + self.linear)).sum(dim=1) + self.constant
