"""Openness of units: nested, within a unit of the share, soft becomes hard, gradients flow."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smatter.budget.openness import (
    hard_openness,
    ranks_within,
    soft_openness,
    straight_through_openness,
    temperature_at,
)
from smatter.errors import InvalidSettings

SIZES = (1, 4, 12)
MODULE_OF = torch.arange(3).repeat_interleave(torch.tensor(SIZES))
RANKS = ranks_within(torch.randn(17, generator=torch.Generator().manual_seed(0)), MODULE_OF)


def sums(openness: torch.Tensor) -> torch.Tensor:
    return torch.zeros(3, dtype=openness.dtype).index_add(0, MODULE_OF, openness)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=6, max_size=6), st.floats(0.02, 4))
def test_a_larger_share_closes_no_unit(shares: list[float], tau: float) -> None:
    pairs = torch.tensor(shares, dtype=torch.float64).view(2, 3)
    low, high = pairs.amin(dim=0), pairs.amax(dim=0)
    assert bool((hard_openness(low, RANKS, MODULE_OF) <= hard_openness(high, RANKS, MODULE_OF)).all())
    soft = [soft_openness(each, RANKS, MODULE_OF, tau) for each in (low, high)]
    assert bool((soft[0] <= soft[1] + 1e-12).all())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_rounding_never_exceeds_one_unit_and_opens_the_best_first(shares: list[float]) -> None:
    wished = torch.tensor(shares, dtype=torch.float64)
    opened = hard_openness(wished, RANKS, MODULE_OF)
    reach = wished * torch.tensor(SIZES)
    assert bool((sums(opened) <= reach + 2e-4).all()) and bool((sums(opened) > reach - 1).all())
    for module in range(3):
        own = (module == MODULE_OF).nonzero().flatten()
        best_first = opened[own[RANKS[own].argsort()]]
        assert bool((best_first.diff() <= 0).all())
    for tau in (0.02, 0.1, 0.5):  # what is soft is never more than a unit from what is hard, but for its tails
        gap = (sums(soft_openness(wished, RANKS, MODULE_OF, tau)) - sums(opened)).abs()
        assert float(gap.max()) <= 1 + 2 * tau


def test_soft_openness_becomes_the_hard_one_and_full_shares_open_the_last_unit() -> None:
    shares = torch.tensor([1.0, 0.6, 0.3], dtype=torch.float64)
    hard = hard_openness(shares, RANKS, MODULE_OF)
    assert sums(hard).tolist() == [1, 2, 3]
    torch.testing.assert_close(soft_openness(shares, RANKS, MODULE_OF, 1e-4), hard, atol=0.05, rtol=0)
    assert bool((soft_openness(torch.ones(3), RANKS, MODULE_OF, 0.1) > 0.95).all())


def test_soft_openness_adds_up_to_the_share_while_it_is_learnt() -> None:
    for share in np.linspace(0.2, 0.8, 13).tolist():
        opened = soft_openness(torch.full((3,), share), RANKS, MODULE_OF, 0.5)
        assert float(sums(opened)[2]) == pytest.approx(12 * share, abs=0.05)


def test_gradients_flow_through_soft_and_straight_through_openness() -> None:
    shares = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
    for openness in (soft_openness, straight_through_openness):
        (gradient,) = torch.autograd.grad(openness(shares, RANKS, MODULE_OF, 0.5).sum(), shares)
        assert bool((gradient > 0).all())
    hard = hard_openness(shares, RANKS, MODULE_OF)
    torch.testing.assert_close(straight_through_openness(shares, RANKS, MODULE_OF, 0.5), hard)


def test_ranks_are_positions_in_sorted_modules() -> None:
    generator = torch.Generator().manual_seed(1)
    module_of = torch.randint(0, 4, (50,), generator=generator)
    values = torch.randint(0, 9, (50,), generator=generator).float()
    ranks = ranks_within(values, module_of)
    for module in range(4):
        own = [unit for unit in range(50) if module_of[unit] == module]
        by_value = sorted(own, key=lambda unit: -float(values[unit]))
        assert [int(ranks[unit]) for unit in by_value] == list(range(len(own)))


def test_temperatures_end_where_they_should() -> None:
    assert temperature_at(0, 100) == 2 and temperature_at(99, 100) == pytest.approx(0.1)
    assert temperature_at(500, 100) == pytest.approx(0.1) and temperature_at(0, 1) == 2
    with pytest.raises(InvalidSettings):
        temperature_at(0, 10, last=0.0)
