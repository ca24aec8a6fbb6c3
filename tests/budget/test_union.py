"""Several experts: a device pays for the union of what they open."""

import numpy as np
import pytest
import torch

from smatter.budget.latency import LatencyModel, ModuleCost
from smatter.budget.union import union_counts, union_open
from smatter.errors import InvalidSettings


def test_two_disjoint_experts_cost_twice_what_the_weighted_mean_says() -> None:
    masks = torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    alpha = torch.tensor([0.5, 0.5])
    model = LatencyModel({"mlp": ModuleCost(0.0, (0.05, 0.05, 0.1, 0.2))})
    paid = model.relative({"mlp": float(union_open(masks, alpha).mean())}) - 1
    weighted = model.relative({"mlp": float((alpha @ masks).mean())}) - 1
    assert paid == pytest.approx(0.4) and weighted == pytest.approx(0.2)
    alone = torch.tensor([1.0, 0.0])  # an expert without weight costs nothing
    assert union_open(masks, alone).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("seed", range(10))
def test_the_union_of_hard_gates_is_that_of_sets_and_soft_ones_are_nowhere_below_an_expert(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    alpha = torch.rand(4, generator=generator) * (torch.rand(4, generator=generator) < 0.7)
    masks = (torch.rand(4, 9, generator=generator) < 0.4).float()
    assert union_open(masks, alpha).bool().tolist() == masks.bool()[alpha > 0].any(dim=0).tolist()
    soft = torch.rand(4, 9, generator=generator, requires_grad=True)
    union = union_open(soft, alpha)
    assert bool((union >= soft * (alpha > 0)[:, None] - 1e-6).all()) and bool((union <= 1).all())
    (gradient,) = torch.autograd.grad(union.sum(), soft)
    assert bool((gradient[alpha > 0] > 0).all()) and not bool(gradient[alpha == 0].any())


@pytest.mark.parametrize("seed", range(10))
def test_counts_of_nested_levels_are_sizes_of_unions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    orders = np.stack([generator.permutation(7) for _ in range(3)])
    alpha = np.array([0.5, 0.0, 0.5])
    sets = [set(orders[0, :n]) | set(orders[2, :n]) for n in range(8)]
    assert union_counts(orders, alpha).tolist() == [len(each) for each in sets]
    assert union_counts(orders, np.zeros(3)).tolist() == [0] * 8


def test_experts_must_rank_all_units() -> None:
    with pytest.raises(InvalidSettings, match="all of the module's 3 units"):
        union_counts(np.array([[0, 1, 1]]), np.ones(1))
