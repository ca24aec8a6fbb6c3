"""The probability simplex: projection, truncation, entropy."""

import torch
from torch import Tensor


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


def hard_mask(magnitudes: Tensor, n_kept: int) -> Tensor:
    """One where a coordinate is among the `n_kept` largest of its vector, else zero; the first wins a tie."""
    order = magnitudes.sort(dim=-1, descending=True, stable=True).indices[..., :n_kept]
    return torch.zeros_like(magnitudes).scatter(-1, order, 1.0)


def effective_number(weights: Tensor) -> Tensor:
    """How many sources a mixture really uses: the exponential of its entropy, (...,) from (..., n)."""
    entropy: Tensor = torch.special.entr(weights).sum(dim=-1)
    return entropy.exp()
