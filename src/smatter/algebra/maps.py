"""From scores to weights on the simplex: softmax, and maps whose weights can be exactly zero."""

from typing import Literal

import torch
from torch import Tensor

from smatter.algebra.simplex import hard_mask, project_to_simplex

WeightMap = Literal["softmax", "sparsemax", "entmax"]


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
