"""Residual experts: what a mask lets through, how many it may, what the multipliers do."""

import pytest
import torch

from smatter.budget.multipliers import Multipliers
from smatter.route.experts import Experts
from smatter.units.layouts import Masked


def make_experts(n_experts: int = 3) -> Experts:
    unit_of = torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 3, 4])
    experts = Experts(Masked(unit_of), n_experts, torch.Generator().manual_seed(0))
    with torch.no_grad():
        experts.values.copy_(torch.arange(1.0, 11.0))
    return experts


def test_the_residual_is_the_sum_of_masked_deltas() -> None:
    experts = make_experts()
    gates = torch.rand(3, 5, generator=torch.Generator().manual_seed(1))
    alpha = torch.tensor([0.5, 0.0, 0.2])
    expected = sum(a * g[experts.layout.unit_of] * experts.values for a, g in zip(alpha, gates, strict=True))
    torch.testing.assert_close(experts.residual(alpha, gates), expected)
    assert not experts.residual(torch.zeros(3), gates).any()  # all weight on the null expert


def test_hard_masks_keep_the_share_and_the_most_open_units() -> None:
    experts = make_experts()
    with torch.no_grad():
        experts.logits.copy_(torch.tensor([[9.0, -9, -9, 9, 9], [-9, 9, -9, -9, -9], [-9, -9, -9, -9, -9]]))
    _, masks = experts.fixed(0.4)
    assert masks[0].tolist() == [1, 0, 0, 1, 1]
    assert masks[1, 1] == 1
    for share in (0.0, 0.1, 0.35, 1.0):
        assert bool((experts.fixed(share)[1] @ experts.sizes.numpy() <= share * 10 + 1e-6).all())


def test_shares_count_each_expert_and_their_union() -> None:
    experts = make_experts(2)
    with torch.no_grad():
        experts.logits.copy_(torch.tensor([[40.0, -40, -40, -40, -40], [-40, 40, -40, -40, -40]]))
    torch.testing.assert_close(experts.open_shares(), torch.tensor([0.2, 0.4, 0.6]), atol=1e-4, rtol=0)


def test_multipliers_bring_the_share_down_and_forget_at_once() -> None:
    experts = make_experts(1)
    multipliers = Multipliers(torch.zeros(1))
    optimizer = torch.optim.Adam([experts.logits], lr=0.05)
    paid = 0.0
    for _ in range(400):
        shares = experts.open_shares()[:-1]
        loss = multipliers.penalty(shares, 0.3) - 0.1 * experts.gates().sum()  # the task would open every gate
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        multipliers.update(shares, 0.3)
        paid = max(paid, float(multipliers.values[0]))
    assert paid > 0 and float(experts.open_shares()[0].detach()) < 0.4
    multipliers.update(torch.tensor([0.2]), 0.3)
    assert float(multipliers.values[0]) == 0


def test_experts_begin_apart_and_their_gates_and_delta_learn() -> None:
    experts = make_experts()
    assert not torch.equal(experts.logits[0], experts.logits[1])
    generator = torch.Generator().manual_seed(2)
    experts.residual(torch.tensor([0.3, 0.3, 0.3]), experts.gates(generator)).sum().backward()
    assert experts.logits.grad is not None and experts.values.grad is not None
    assert bool(experts.logits.grad.any()) and bool(experts.values.grad.any())
    assert torch.equal(experts.gates(), experts.gates())
    with pytest.raises(RuntimeError):
        experts.residual(torch.ones(2), experts.gates())
