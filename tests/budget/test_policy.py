"""Budget policies: never fall as the budget grows, do not mind the order of modules, can learn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from small_budgets import everything, random_ranked

from smatter.budget.knapsack import allocate
from smatter.budget.monotone import interpolation_weights, isotonic
from smatter.budget.policy import BudgetPolicy, CalibratedPolicy, module_features
from smatter.budget.ranked import Ranked, RankedModule
from smatter.errors import InvalidSettings

KINDS = ("positive", "spline", "isotonic")
BUDGETS = torch.tensor([0.01, 0.05, 0.1, 0.17, 0.25, 0.5, 0.9, 1.0, 1.5]).log()


def make_policy(kind: str, seed: int = 0, scale: float = 1.0) -> BudgetPolicy:
    policy = BudgetPolicy(5, kind, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(scale)
    return policy


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 8))
def test_no_module_gets_less_of_a_larger_budget(kind: str, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    features, summary = torch.randn(7, 6, generator=generator), torch.randn(5, generator=generator)
    budgets = (5 * torch.rand(20, generator=generator) - 4.5).sort().values
    shares = make_policy(kind, seed, scale)(budgets, summary, features)
    assert shares.shape == (20, 7)
    assert bool((shares.diff(dim=0) >= -1e-6).all())
    assert bool((shares >= 0).all()) and bool((shares <= 1 + 1e-6).all())


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_modules_does_not_matter(kind: str) -> None:
    ranked = random_ranked(np.random.default_rng(0), (3, 1, 5, 2))
    names = list(ranked.modules)[::-1]
    turned = Ranked({name: ranked.modules[name] for name in names})
    policy, summary = make_policy(kind), torch.randn(5, generator=torch.Generator().manual_seed(1))
    shares = policy(BUDGETS, summary, module_features(ranked))
    torch.testing.assert_close(policy(BUDGETS, summary, module_features(turned)), shares.flip(1))
    more = random_ranked(np.random.default_rng(1), (3,) * 9)  # another network, another profile: no training
    assert policy(BUDGETS, summary, module_features(more)).shape == (9, 9)


@pytest.mark.parametrize("kind", KINDS)
def test_policies_begin_even(kind: str) -> None:
    ranked = random_ranked(np.random.default_rng(0), (3, 1, 5, 2))
    shares = make_policy(kind)(BUDGETS[1:8], torch.zeros(5), module_features(ranked))
    wanted = BUDGETS[1:8].exp()[:, None].expand_as(shares)
    assert float((shares - wanted).detach().abs().mean()) < 0.2


def two_kinds(costs: np.ndarray, wanted: int) -> Ranked:
    """Six modules of four units, of which a task wants the first three or the last three."""
    modules = {}
    for index, cost in enumerate(costs.tolist()):
        worth = cost if index // 3 == wanted else 0.1 * cost
        modules[str(index)] = RankedModule((0, 1, 2, 3), np.full(4, worth), np.full(4, cost), 0.01)
    return Ranked(modules)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_learns_what_exact_allocation_gives_a_task_on_a_profile(kind: str) -> None:
    generator = np.random.default_rng(0)
    policy = make_policy(kind)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    budgets, losses, blind = (0.25, 0.6), [], []
    for step in range(120):
        ranked = two_kinds(generator.uniform(0.5, 2.0, 6), step % 2)
        full = float(ranked.cost(everything(ranked))[0])
        rows = [list(ranked.shares(allocate(ranked, share * full, 200).levels).values()) for share in budgets]
        target, features = torch.tensor(rows), module_features(ranked)
        features[:, 4:] = (torch.arange(6) < 3).float()[:, None]  # which kind a module is, not what the task wants
        shares = policy(torch.tensor(budgets).log(), torch.full((5,), 2.0 * (step % 2) - 1), features)
        loss = (shares - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        blind.append(float((target - target.mean(dim=1, keepdim=True)).square().mean()))
    assert all(parameter.grad is not None for parameter in policy.parameters())
    assert np.mean(losses[-30:]) < 0.5 * np.mean(blind[-30:])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_isotonic_regression_agrees_with_scipy(values: list[float]) -> None:
    found = isotonic(torch.tensor(values, dtype=torch.float64))
    assert found.numpy() == pytest.approx(isotonic_regression(values).x, abs=1e-9)


def test_isotonic_regression_is_the_nearest_and_its_gradient_is_right() -> None:
    values = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    assert bool((isotonic(values).diff(dim=1) >= -1e-12).all())
    assert torch.autograd.gradcheck(isotonic, values)


def test_interpolation_agrees_with_numpy_inside_and_outside() -> None:
    knots, heights = torch.tensor([-4.0, -2.5, -1.0, 0.0]), torch.tensor([1.0, 5.0, 2.0, 7.0])
    points = torch.linspace(-6, 2, 41)
    found = interpolation_weights(points, knots) @ heights
    assert found.numpy() == pytest.approx(np.interp(points.numpy(), knots.numpy(), heights.numpy()), abs=1e-5)


def test_calibrated_policies_never_fall_and_pass_through_what_was_found() -> None:
    budgets, shares = torch.tensor([0.1, 0.2, 0.5, 1.0]), torch.tensor([[0.0, 1], [0.5, 0], [0.5, 0.25], [1, 1]])
    policy = CalibratedPolicy(budgets, shares)
    found = policy(torch.linspace(-4, 1, 50))
    assert bool((found.diff(dim=0) >= -1e-6).all())
    torch.testing.assert_close(policy(budgets.log())[:, 0], shares[:, 0])
    torch.testing.assert_close(policy(budgets.log())[:3, 1], torch.full((3,), 1.25 / 3))


def test_shares_reach_zero_and_one_and_can_come_back() -> None:
    policy = make_policy("spline", scale=30.0)
    features = torch.randn(9, 6, generator=torch.Generator().manual_seed(3))
    shares = policy(BUDGETS, torch.zeros(5), features)
    assert bool((shares == 0).any()) and bool((shares == 1).any())
    policy = make_policy("isotonic")
    with torch.no_grad():
        policy.head.heights.bias.fill_(3.0)  # all open at every budget
    shares = policy(BUDGETS, torch.zeros(5), features)
    assert bool((shares == 1).all())
    shares.sum().backward()
    assert bool((policy.head.heights.bias.grad > 0).any())


def test_what_is_no_policy_is_refused() -> None:
    generator = torch.Generator()
    with pytest.raises(InvalidSettings, match="unknown kind of policy"):
        BudgetPolicy(5, "best", generator)
    with pytest.raises(InvalidSettings, match="each larger"):
        BudgetPolicy(5, "spline", generator, knots=(0.5, 0.2))
    with pytest.raises(InvalidSettings, match="two or more budgets"):
        CalibratedPolicy(torch.tensor([0.5]), torch.zeros(1, 3))
