"""Warnings for the three ways a pair can mislead (multi-source paper, section 5): each says what to do."""

import math

import torch
from torch import Tensor

from smatter.linear.exchange import promise
from smatter.linear.loss import LinearLoss, hessian_along
from smatter.linear.model import source_directions
from smatter.linear.residual import ResidualProblem
from smatter.linear.task import LinearTask, PairSolution

VAGUE = 0.5
"""Standard error of weights, along their flattest direction, from which they should not be read."""

DENSE = 1.4
"""What units outside the residual may promise, over what luck would."""

SHORT = 1 / 3
"""Degrees of freedom for each example from which, in the theory lab, a correction did more harm than good."""


def advise(task: LinearTask, pair: PairSolution) -> list[str]:
    """Warnings that any task of the batch calls for, each in one line; none where all is well."""
    if not isinstance(task.loss, LinearLoss):
        return []
    checks = [
        (
            bool((vagueness(task, pair) > VAGUE).any()),
            "the examples cannot tell some sources apart: predictions hardly depend on how weight is split between "
            "them, so do not read the weights as importance",
        ),
        (
            bool(unused_promise(task, pair).gt(DENSE).any()),
            "the correction uses all it may and coefficients outside it still matter: allow more nonzeros, or group "
            "them",
        ),
        (
            bool(shortage(task, pair).gt(SHORT).any()),
            "few examples for this much freedom: a lower loss on them may mean a higher one on others; allow fewer "
            "nonzeros, raise alpha, or add examples",
        ),
    ]
    return [text for applies, text in checks if applies]


def vagueness(task: LinearTask, pair: PairSolution) -> Tensor:
    """Standard error of the weights along the direction the loss knows least of, (n_tasks,).

    A squared loss of noise sigma^2 rises by sigma^2 / 2n at one standard error, and sigma^2 is about twice the loss.
    """
    n_examples = _examples(task)
    # A source without weight counts too, where taking it in costs less than the noise would.
    slopes = (task.rows @ task.loss.evaluate(pair.theta).gradient.unsqueeze(-1)).reshape(pair.weights.shape)
    nearly = slopes - slopes.amin(dim=2, keepdim=True) <= (pair.value / n_examples)[:, None, None]
    active = (pair.weights > 0) | nearly
    directions = source_directions(task.rows, pair.weights, active)
    hessian = hessian_along(task.loss, pair.theta, directions)
    moving = directions.square().sum(dim=2) > 0
    largest = hessian.diagonal(dim1=1, dim2=2).amax(dim=1, keepdim=True).clamp(min=1e-300)
    # Directions that are not there must not count as flat.
    padded = hessian + torch.diag_embed(torch.where(moving, 0.0, largest))
    flattest = torch.linalg.eigvalsh(padded)[:, 0].clamp(min=1e-300)
    error = (2 * pair.value.clamp(min=0) / (n_examples * flattest)).sqrt()
    # Where source and task have the same loss everywhere the loss may be zero and so may be its rise.
    error = torch.where(flattest <= 1e-10 * largest.squeeze(1), torch.inf, error)
    return torch.where(moving.any(dim=1), error, 0.0)


def unused_promise(task: LinearTask, pair: PairSolution) -> Tensor:
    """What the k best units outside a full residual would gain, over what noise alone would promise, (n_tasks,).

    The k luckiest of d useless coordinates promise about sigma^2 k log(d / k) / n together. In the theory lab a sparse
    truth stays below 1.4 whatever n is; a dense one grows with n.
    """
    if task.pattern is None or not task.pattern.n_kept:
        return torch.zeros_like(pair.value)
    problem = ResidualProblem(task.loss, task.mixed(pair.weights), task.ridge)
    gains = promise(problem, task.pattern, pair.residual)
    units = task.pattern.units_of(pair.residual)
    n_units, n_examples = units.shape[1], _examples(task)
    k = min(task.pattern.n_kept, n_units)
    best = torch.where(units, 0.0, gains).topk(k, dim=1).values.sum(dim=1)
    per_unit = task.loss.n_parameters / n_units
    left = (n_examples - k * per_unit - (pair.weights > 0).sum(dim=(1, 2))).clamp(min=1)
    noise = 2 * pair.value.clamp(min=1e-300) * n_examples / left
    luck = noise * k * (math.log(max(n_units / k, math.e)) + 0.5 * (per_unit - 1)) / n_examples
    return torch.where(units.sum(dim=1) >= k, best / luck, 0.0)


def shortage(task: LinearTask, pair: PairSolution) -> Tensor:
    """R - 1 + k (1 + log(d / k)) over n, (n_tasks,): the rate's degrees of freedom for each example."""
    n_sources = (pair.weights > 0).sum(dim=(1, 2)) - task.n_blocks
    freedom = n_sources.to(pair.value)
    if task.pattern is not None and task.pattern.n_kept:
        n_units = task.pattern.n_units(task.loss.n_parameters)
        k = min(task.pattern.n_kept, n_units)
        size = (pair.residual != 0).sum(dim=1)
        freedom = freedom + size + k * math.log(n_units / k)
    return freedom / _examples(task)


def _examples(task: LinearTask) -> Tensor:
    """Examples with a share, (n_tasks or 1,)."""
    assert isinstance(task.loss, LinearLoss)
    return (task.loss.weights[:, 0] > 0).sum(dim=1)
