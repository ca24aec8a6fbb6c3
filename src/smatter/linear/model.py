"""A quadratic model of a loss in the residual alone, in which the weights follow the residual.

Around a pair (w, D) the loss is expanded to second order, exactly where it is squared. What is not counted by the
sparsity pattern is then eliminated: free coordinates, and the directions between the active sources. A search for
a support in this model knows that the weights will move with it; a search at fixed weights does not, and gets stuck.
"""

import torch
from torch import Tensor

from smatter.linear.loss import Loss, SquaredStatistics
from smatter.linear.residual import ResidualProblem, padded_hessian
from smatter.solve.pattern import Pattern
from smatter.solve.problem import Evaluation

SCREENED = 6
"""Coordinates in a model, as a multiple of those a residual may use, at least `FEWEST_SCREENED`."""

FEWEST_SCREENED = 64


def source_directions(rows: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """From the heaviest source of each block to the others, (n_tasks, n_rows, n_parameters), each times its length.

    Lengths are shaped as the weights; true and false keep a direction or make it zero.
    """
    n_tasks, n_blocks, n_sources = weights.shape
    stacked = rows.unflatten(1, (n_blocks, n_sources)).expand(n_tasks, -1, -1, -1)
    heaviest = weights.argmax(dim=2)[:, :, None, None].expand(-1, -1, 1, rows.shape[2])
    moves: Tensor = (stacked - stacked.gather(2, heaviest)) * lengths.unsqueeze(-1)
    return moves.flatten(1, 2)


def screen(loss: Loss, ridge: Tensor, theta: Tensor, residual: Tensor, pattern: Pattern) -> Tensor:
    """The coordinates worth searching, (n_tasks, k): all in use and those that promise most.

    Blocks are not screened: all coordinates but the free ones are returned, in order.
    """
    counted = torch.ones(theta.shape[1], dtype=torch.bool) if pattern.free is None else ~pattern.free
    n_screened = max(FEWEST_SCREENED, SCREENED * pattern.n_kept)
    if pattern.blocks is not None or n_screened >= int(counted.sum()):
        return counted.nonzero().flatten().expand(len(theta), -1)
    gradient = loss.evaluate(theta).gradient + ridge * residual
    promise = gradient.square() / (loss.hessian_diagonal(theta) + ridge).clamp(min=1e-30)
    promise = torch.where(residual != 0, torch.inf, promise).masked_fill(~counted, -1.0)
    return promise.topk(n_screened, dim=1).indices.sort(dim=1).values


def model_pattern(pattern: Pattern) -> Pattern:
    """The pattern of a model's coordinates, from which the free ones are gone."""
    if pattern.blocks is None or pattern.free is None:
        return Pattern(pattern.n_kept, pattern.blocks)
    return Pattern(pattern.n_kept, pattern.blocks[~pattern.free])


def local_model(
    loss: Loss,
    ridge: Tensor,
    theta: Tensor,
    residual: Tensor,
    columns: Tensor,
    free: Tensor | None = None,
    directions: Tensor | None = None,
    known: Evaluation | None = None,
) -> ResidualProblem:
    """The quadratic model in some coordinates of the residual, (n_tasks, k).

    Args:
        loss: of theta.
        ridge: on each coordinate of the residual, (n_parameters,).
        theta: where the loss is expanded, (n_tasks, n_parameters).
        residual: the part of theta that is residual; zero outside `columns` and `free`.
        columns: the model's coordinates, (n_tasks, k).
        free: true for coordinates to eliminate, (n_parameters,).
        directions: further directions to eliminate, (n_tasks, m, n_parameters).
        known: the loss and its gradient at theta, if they were computed before.
    """
    n_kept = columns.shape[1]
    if free is not None:
        columns = torch.cat([columns, free.nonzero().flatten().expand(len(columns), -1)], dim=1)
    value, gradient = known or loss.evaluate(theta)
    value = value + 0.5 * (ridge * residual.square()).sum(dim=1)
    start = residual.gather(1, columns)
    slope = gradient.gather(1, columns) + ridge[columns] * start
    hessian = loss.hessian_among(theta, columns, directions)
    hessian[:, : columns.shape[1], : columns.shape[1]] += torch.diag_embed(ridge[columns])
    if directions is not None:
        start = torch.cat([start, start.new_zeros(len(start), directions.shape[1])], dim=1)
        slope = torch.cat([slope, (directions @ gradient.unsqueeze(-1)).squeeze(-1)], dim=1)
    # As 1/2 z'Hz - b'z + c in the coordinates themselves, not in their changes.
    bent = (hessian @ start.unsqueeze(-1)).squeeze(-1)
    linear = bent - slope
    constant = value - (slope * start).sum(dim=1) + 0.5 * (start * bent).sum(dim=1)
    statistics = _eliminate(SquaredStatistics(hessian, linear, constant), n_kept)
    return ResidualProblem(statistics, torch.zeros_like(start[:, :n_kept]))


def _eliminate(statistics: SquaredStatistics, n_kept: int) -> SquaredStatistics:
    """Minimise over all coordinates after the first `n_kept`."""
    hessian, linear = statistics.hessian, statistics.linear
    if hessian.shape[1] == n_kept:
        return statistics
    corner = hessian[:, n_kept:, n_kept:]
    cross = hessian[:, n_kept:, :n_kept]
    inside = corner.diagonal(dim1=1, dim2=2) > 0
    solved: Tensor = torch.linalg.solve(
        padded_hessian(corner, inside, 0.0), torch.cat([cross, linear[:, n_kept:, None]], dim=2)
    )
    return SquaredStatistics(
        hessian[:, :n_kept, :n_kept] - cross.mT @ solved[..., :-1],
        linear[:, :n_kept] - (cross.mT @ solved[..., -1:]).squeeze(-1),
        statistics.constant - 0.5 * (linear[:, n_kept:] * solved[..., -1]).sum(dim=1),
    )
