"""The one hard threshold: which coordinates are among the largest (H_k of the multi-source paper, equation 7)."""

import torch
from torch import Tensor


def hard_mask(magnitudes: Tensor, n_kept: int) -> Tensor:
    """One where a coordinate is among the `n_kept` largest of its vector, else zero; the first wins a tie.

    >>> hard_mask(torch.tensor([3.0, 1.0, 2.0, 2.0]), 2)
    tensor([1., 0., 1., 0.])
    """
    if n_kept >= magnitudes.shape[-1]:
        return torch.ones_like(magnitudes)
    if n_kept < 1:
        return torch.zeros_like(magnitudes)
    least = magnitudes.topk(n_kept, dim=-1).values[..., -1:]  # a sort of all would take ten times as long
    above, equal = magnitudes > least, magnitudes == least
    room = n_kept - above.sum(dim=-1, keepdim=True)
    return (above | (equal & (equal.cumsum(dim=-1) <= room))).to(magnitudes)
