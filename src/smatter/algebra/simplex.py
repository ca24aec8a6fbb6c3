"""The probability simplex: projection, truncation, entropy, and maps from scores to weights on it."""

import torch
from torch import Tensor

from smatter.algebra.threshold import hard_mask
from smatter.settings.training import WeightMap


def project_to_simplex(points: Tensor) -> Tensor:
    """Nearest point of the simplex, by sorting.

    The projection of v is max(v - t, 0) with t such that it sums to one; t follows from the largest prefix of the
    sorted coordinates that stays positive.

    Args:
        points: any vectors, (..., n).

    >>> project_to_simplex(torch.tensor([0.5, 0.5, 2.0]))
    tensor([0., 0., 1.])
    """
    ordered = points.sort(dim=-1, descending=True).values
    excess = ordered.cumsum(dim=-1) - 1
    count = torch.arange(1, points.shape[-1] + 1, dtype=points.dtype, device=points.device)
    support = (ordered * count > excess).sum(dim=-1, keepdim=True)
    threshold = excess.gather(-1, support - 1) / support
    return (points - threshold).clamp(min=0)


def truncate(weights: Tensor, n_active: int) -> Tensor:
    """Keep the largest weights of points on the simplex, and renormalise.

    Args:
        weights: points on the simplex, (..., n).
        n_active: how many weights may stay; at least one.

    >>> truncate(torch.tensor([0.5, 0.25, 0.25, 0.0]), 1)
    tensor([1., 0., 0., 0.])
    """
    if n_active >= weights.shape[-1]:
        return weights
    kept = hard_mask(weights, n_active) * weights
    return kept / kept.sum(dim=-1, keepdim=True)


def truncate_alike(weights: Tensor, n_active: int | None) -> Tensor:
    """Keep the sources of most weight over all rows, the same in each, and renormalise.

    Args:
        weights: points on the simplex, (n_rows, n).
        n_active: how many sources may stay; all without a number.

    >>> truncate_alike(torch.tensor([[0.5, 0.25, 0.25], [0.75, 0.0, 0.25]]), 2)
    tensor([[0.6667, 0.0000, 0.3333],
            [0.7500, 0.0000, 0.2500]])
    """
    if n_active is None or n_active >= weights.shape[1]:
        return weights / weights.sum(dim=1, keepdim=True)
    kept = weights * hard_mask(weights.mean(dim=0), n_active)
    empty = kept.sum(dim=1, keepdim=True) == 0  # a row with all its weight on sources that are left out
    kept = torch.where(empty, kept.mean(dim=0), kept)
    return kept / kept.sum(dim=1, keepdim=True)


def to_simplex(scores: Tensor, kind: WeightMap) -> Tensor:
    """Weights of scores, (..., n); all three maps are monotone and do not change when a number is added to all scores.

    >>> to_simplex(torch.tensor([2.0, 0.0, 0.0]), "sparsemax")
    tensor([1., 0., 0.])
    """
    if kind == "softmax":
        return scores.softmax(dim=-1)
    return project_to_simplex(scores) if kind == "sparsemax" else entmax(scores)


def entmax(scores: Tensor) -> Tensor:
    """The 1.5-entmax of Peters, Niculae and Martins (2019): between softmax and sparsemax.

    Weights are max(s / 2 - t, 0)^2 with t such that they sum to one; t follows from the mean and the variance of the
    largest prefix of the sorted scores that stays positive.

    >>> entmax(torch.tensor([1.0, 0.0, -1.0]))
    tensor([0.8307, 0.1693, 0.0000])
    """
    halves = scores / 2
    halves = halves - halves.amax(dim=-1, keepdim=True)
    ordered = halves.sort(dim=-1, descending=True).values
    count = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)
    mean = ordered.cumsum(dim=-1) / count
    variance = ordered.square().cumsum(dim=-1) / count - mean.square()
    room = (1 / count - variance).clamp(min=torch.finfo(scores.dtype).tiny)
    threshold = mean - room.sqrt()
    support = (threshold <= ordered).sum(dim=-1, keepdim=True)
    return (halves - threshold.gather(-1, support - 1)).clamp(min=0).square()


def straight_through_top(weights: Tensor, n_active: int) -> Tensor:
    """The largest weights, renormalised; the gradient is that of the weights as they were."""
    if n_active >= weights.shape[-1]:
        return weights
    kept = hard_mask(weights, n_active) * weights
    return weights + (kept / kept.sum(dim=-1, keepdim=True) - weights).detach()
