from itertools import combinations

import torch
from hypothesis import given
from hypothesis import strategies as st

from smatter.algebra.thresholds import (
    block_hard_threshold,
    block_norms,
    block_soft_threshold,
    hard_threshold,
    soft_threshold,
)

vectors = st.lists(st.floats(-5, 5), min_size=6, max_size=6).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)
BLOCKS = torch.tensor([0, 1, 0, 2, 2, 1])


@given(vectors, st.integers(1, 6))
def test_hard_thresholding_is_the_best_sparse_approximation(vector: torch.Tensor, n_kept: int) -> None:
    distance = (vector - hard_threshold(vector, n_kept)).square().sum()
    others = (vector.square().sum() - vector[list(kept)].square().sum() for kept in combinations(range(6), n_kept))
    assert distance <= min(others) + 1e-9


@given(vectors, st.integers(1, 3))
def test_block_thresholding_is_the_best_block_sparse_approximation(vector: torch.Tensor, n_kept: int) -> None:
    kept = block_hard_threshold(vector, BLOCKS, 3, n_kept)
    distance = (vector - kept).square().sum()
    squares = block_norms(vector, BLOCKS, 3).square()
    others = (squares.sum() - squares[list(blocks)].sum() for blocks in combinations(range(3), n_kept))
    assert distance <= min(others) + 1e-9


@given(vectors, st.floats(0.01, 3))
def test_proximal_maps_minimise_what_they_stand_for(vector: torch.Tensor, threshold: float) -> None:
    def single(point: torch.Tensor) -> torch.Tensor:
        return 0.5 * (point - vector).square().sum() + threshold * point.abs().sum()

    def grouped(point: torch.Tensor) -> torch.Tensor:
        return 0.5 * (point - vector).square().sum() + threshold * block_norms(point, BLOCKS, 3).sum()

    generator = torch.Generator().manual_seed(0)
    for loss, point in (
        (single, soft_threshold(vector, threshold)),
        (grouped, block_soft_threshold(vector, BLOCKS, 3, threshold)),
    ):
        for scale in (1e-3, 0.1, 1.0):
            moved = point + scale * torch.randn(6, generator=generator, dtype=torch.float64)
            assert loss(point) <= loss(moved) + 1e-9
