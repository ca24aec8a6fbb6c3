"""Thresholds and proximal maps for sparse and block-sparse vectors (multi-source paper, equations 7 and 8).

Blocks are given as a vector of block numbers, one per coordinate, so that they need not be contiguous.
"""

import torch
from torch import Tensor

from smatter.algebra.simplex import hard_mask


def hard_threshold(vectors: Tensor, n_kept: int) -> Tensor:
    """Keep the `n_kept` coordinates of largest magnitude: H_k of equation 7.

    >>> hard_threshold(torch.tensor([3.0, -4.0, 1.0]), 2)
    tensor([ 3., -4.,  0.])
    """
    return vectors * hard_mask(vectors.abs(), n_kept)


def block_norms(vectors: Tensor, blocks: Tensor, n_blocks: int) -> Tensor:
    """Euclidean norm of each block, (..., n_blocks) from (..., d)."""
    squares = torch.zeros(*vectors.shape[:-1], n_blocks, dtype=vectors.dtype, device=vectors.device)
    return squares.index_add(-1, blocks, vectors.square()).sqrt()


def block_hard_threshold(vectors: Tensor, blocks: Tensor, n_blocks: int, n_kept: int) -> Tensor:
    """Keep the `n_kept` blocks of largest norm.

    >>> block_hard_threshold(torch.tensor([1.0, 1.0, 5.0, 0.0]), torch.tensor([0, 0, 1, 1]), 2, 1)
    tensor([0., 0., 5., 0.])
    """
    return vectors * hard_mask(block_norms(vectors, blocks, n_blocks), n_kept)[..., blocks]


def soft_threshold(vectors: Tensor, threshold: Tensor | float) -> Tensor:
    """Proximal map of the absolute sum: shrink every coordinate towards zero.

    >>> soft_threshold(torch.tensor([3.0, -0.5]), 1.0)
    tensor([2., -0.])
    """
    return vectors.sign() * (vectors.abs() - threshold).clamp(min=0)


def block_soft_threshold(vectors: Tensor, blocks: Tensor, n_blocks: int, threshold: Tensor | float) -> Tensor:
    """Proximal map of the sum of block norms: shrink every block towards zero (equation 8).

    Args:
        vectors: (..., d).
        blocks: block number of each coordinate, (d,).
        n_blocks: how many blocks there are.
        threshold: of each vector, (..., 1), or of all.
    """
    norms = block_norms(vectors, blocks, n_blocks)
    safe = torch.where(norms > 0, norms, torch.ones_like(norms))
    return vectors * ((1 - threshold / safe).clamp(min=0))[..., blocks]
