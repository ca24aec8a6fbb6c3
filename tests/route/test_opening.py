"""Experts weighed by evidence: the formula, what no order changes, and what a loss tells that a gate does not."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from smatter.route.opening import TRUST, weigh_experts

SCORES = torch.tensor([0.5, -1.0, 2.0, 1.0])


def losses(seed: int = 0, n_examples: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1 + 0.3 * torch.randn(4, n_examples, generator=generator, dtype=torch.float64)


def test_weights_are_the_prior_to_a_power_times_the_likelihood() -> None:
    given = losses().numpy()
    prior = np.exp(SCORES.numpy()) / np.exp(SCORES.numpy()).sum()
    means = given.mean(axis=1)
    differences = given - given[means.argmin()]
    errors = np.delete(differences, means.argmin(), axis=0).std(axis=1) / math.sqrt(given.shape[1] - 1)
    expected = prior**TRUST * np.exp(-(means - means.min()) / sorted(errors)[1])
    expected /= expected.sum()
    np.testing.assert_allclose(weigh_experts(SCORES, losses()), expected[:-1], rtol=1e-5)


def test_where_losses_are_alike_the_gate_decides() -> None:
    found = weigh_experts(SCORES, torch.ones(4, 6))
    expected = (TRUST * SCORES).softmax(dim=0)[:-1]
    torch.testing.assert_close(found, expected)


def test_order_of_examples_and_of_experts_does_not_matter() -> None:
    given, order = losses(1), [2, 0, 1]
    shuffled = given[:, torch.randperm(12, generator=torch.Generator().manual_seed(3))]
    torch.testing.assert_close(weigh_experts(SCORES, given), weigh_experts(SCORES, shuffled))
    moved = weigh_experts(SCORES[[*order, 3]], given[[*order, 3]])
    torch.testing.assert_close(moved, weigh_experts(SCORES, given)[order])


def test_an_expert_that_a_gate_closes_opens_where_it_explains_far_better() -> None:
    given = losses(2)
    given[1] -= 5
    closed = torch.tensor([0.0, -20.0, 0.0, 20.0])
    assert float(weigh_experts(closed, given)[1]) > 0.9


def test_an_expert_that_harms_stays_closed_whatever_the_gate_says() -> None:
    given = losses(2)
    given[:3] += 5
    assert not weigh_experts(torch.tensor([20.0, 0.0, 0.0, 0.0]), given).any()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_expert_that_gives_no_number_gets_no_weight(bad: float) -> None:
    given = losses()
    given[0, 3] = bad
    found = weigh_experts(SCORES, given)
    assert found[0] == 0 and bool(found.isfinite().all()) and float(found.sum()) <= 1 + 1e-6
    torch.testing.assert_close(weigh_experts(SCORES, torch.full_like(given, bad)), (TRUST * SCORES).softmax(dim=0)[:-1])
