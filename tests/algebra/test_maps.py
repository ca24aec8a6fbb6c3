"""Maps to the simplex against bisection, closed forms and finite differences."""

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from smatter.algebra.simplex import entmax, straight_through_top, to_simplex
from smatter.settings.training import WeightMap

scores_of = st.lists(st.floats(-20, 20), min_size=1, max_size=9).map(lambda v: torch.tensor(v, dtype=torch.float64))


def entmax_by_bisection(scores: Tensor) -> Tensor:
    halves = scores / 2
    low, high = halves.max() - 1, halves.max()
    for _ in range(100):
        middle = (low + high) / 2
        too_much = (halves - middle).clamp(min=0).square().sum() > 1
        low, high = (middle, high) if too_much else (low, middle)
    return (halves - low).clamp(min=0).square()


@given(scores_of)
def test_entmax_agrees_with_bisection(scores: Tensor) -> None:
    torch.testing.assert_close(entmax(scores), entmax_by_bisection(scores), atol=1e-7, rtol=0)


@pytest.mark.parametrize("kind", get_args(WeightMap))
@given(scores_of)
def test_weights_are_on_the_simplex_and_keep_the_order_of_scores(kind: WeightMap, scores: Tensor) -> None:
    weights = to_simplex(scores, kind)
    assert float(weights.sum()) == pytest.approx(1, abs=1e-9) and bool((weights >= 0).all())
    assert bool((weights[scores.argsort()].diff() >= -1e-12).all())
    torch.testing.assert_close(to_simplex(scores + 3.7, kind), weights, atol=1e-9, rtol=0)
    assert torch.equal(to_simplex(scores.flip(0), kind).flip(0), weights) or torch.allclose(
        to_simplex(scores.flip(0), kind).flip(0), weights, atol=1e-12
    )


@pytest.mark.parametrize("kind", get_args(WeightMap))
def test_gradients_agree_with_finite_differences(kind: WeightMap) -> None:
    scores = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: to_simplex(s, kind), scores)


def test_sparse_maps_give_zeros_where_softmax_gives_none() -> None:
    scores = torch.tensor([3.0, 0.0, -1.0])
    assert [int((to_simplex(scores, kind) == 0).sum()) for kind in ("softmax", "entmax", "sparsemax")] == [0, 2, 2]


def test_straight_through_keeps_the_top_and_the_gradient_of_all() -> None:
    scores = torch.tensor([1.0, 0.5, 0.0, -1.0], requires_grad=True)
    weights = scores.softmax(dim=0)
    kept = straight_through_top(weights, 2)
    torch.testing.assert_close(kept.detach()[:2], weights.detach()[:2] / weights.detach()[:2].sum())
    torch.testing.assert_close(kept.detach()[2:], torch.zeros(2))
    (slope,) = torch.autograd.grad(kept[0], scores, retain_graph=True)
    (plain,) = torch.autograd.grad(weights[0], scores)
    assert torch.equal(slope, plain)
    assert straight_through_top(weights, 4) is weights
