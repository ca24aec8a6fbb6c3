"""Weights and residual together: against brute force, bounds that hold, limits that hold, invariances."""

from itertools import combinations

import pytest
import torch
from problems import make_loss, make_task, normal, reference

from smatter.errors import BudgetInfeasible
from smatter.linear.alternate import solve_pair
from smatter.linear.bounds import lower_bound
from smatter.linear.choose import choose
from smatter.linear.cost import Costs, solve_within
from smatter.linear.links import Logistic, Squared
from smatter.linear.loss import LinearLoss, SquaredStatistics
from smatter.linear.mixing import mixture_problem
from smatter.linear.source_limit import enumerate_sources, limit_sources
from smatter.linear.support import solve_on_support
from smatter.linear.task import LinearTask
from smatter.solve.frank_wolfe import FrankWolfe, uniform
from smatter.solve.loop import run
from smatter.solve.pattern import Pattern
from smatter.solve.solution import Status

LINKS = [Squared(), Logistic()]


def make(link=None, kind: str = "sparse truth", n_tasks: int = 30, n_kept: int = 2, alpha: float = 0.05, **more):
    features, targets, sources = make_task(kind, n_tasks, 16, 8, 4)
    return LinearTask(make_loss(features, targets, link or Squared()), sources, Pattern(n_kept), alpha, **more)


def brute_force(task: LinearTask) -> torch.Tensor:
    n_tasks = task.n_tasks
    best = torch.full((n_tasks,), torch.inf, dtype=torch.float64)
    start = uniform(n_tasks, task.n_blocks, task.sources.shape[1], best)
    for columns in combinations(range(8), task.pattern.n_kept):
        support = torch.zeros(n_tasks, 8, dtype=torch.bool)
        support[:, list(columns)] = True
        weights, residual = solve_on_support(task, support, start, torch.zeros_like(support).double(), None, 1e-8)
        best = torch.minimum(best, task.value(weights, residual))
    return best


@pytest.mark.parametrize("link", LINKS, ids=["squared", "logistic"])
def test_a_fixed_support_agrees_with_cvxpy(link) -> None:
    task = make(link, n_tasks=5)
    support = torch.zeros(5, 8, dtype=torch.bool)
    support[:, [1, 4]] = True
    start = uniform(5, 1, 4, task.sources)
    weights, residual = solve_on_support(task, support, start, torch.zeros(5, 8, dtype=torch.float64), None, 1e-8)
    for number in range(5):
        best = reference(task.loss, number, task.sources, task.alpha, (1, 4))
        assert float(task.value(weights, residual)[number]) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("link", LINKS, ids=["squared", "logistic"])
@pytest.mark.parametrize("kind", ["random", "sparse truth"])
def test_within_one_percent_of_brute_force_nineteen_times_in_twenty(link, kind: str) -> None:
    task = make(link, kind, n_tasks=40)
    pair = solve_pair(task)
    assert task.pattern.holds(pair.residual).all()
    best = brute_force(task)
    assert (pair.value >= best - 1e-6).all()
    assert float((pair.value <= 1.01 * best + 1e-9).double().mean()) >= 0.95


def test_epsilon_bounds_the_distance_to_the_best_pair_or_is_unknown() -> None:
    for alpha in (0.05, 0.5, 5.0):
        task = make(alpha=alpha)
        pair = solve_pair(task)
        assert (pair.value - pair.epsilon <= brute_force(task) + 1e-9).all()
    assert float((pair.epsilon / pair.value).median()) < 0.05, "with much ridge the bound is nearly tight"
    assert solve_pair(make(alpha=0.0)).epsilon is None
    assert solve_pair(make(Logistic())).epsilon is None
    no_residual = LinearTask(task.loss, task.sources)
    free = solve_pair(no_residual)
    torch.testing.assert_close(free.epsilon, free.gap)


def test_the_bound_holds_with_free_coordinates_and_any_point() -> None:
    free = torch.zeros(8, dtype=torch.bool)
    free[7] = True
    task = make()
    task = LinearTask(task.loss, task.sources, Pattern(2, None, free), 0.5)
    pair = solve_pair(task)
    bound = lower_bound(task, uniform(30, 1, 4, task.sources), 0 * pair.residual)
    assert (bound <= pair.value + 1e-9).all()
    assert (pair.value - pair.epsilon <= pair.value).all() and pair.epsilon.isfinite().all()


def test_order_of_examples_sources_features_and_tasks_does_not_matter() -> None:
    task = make(n_tasks=10)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    sources = torch.tensor([2, 0, 3, 1])
    columns = torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])
    tasks = torch.arange(10).flip(0)
    loss = LinearLoss(task.loss.features[tasks][:, order][:, :, columns], task.loss.targets[tasks][:, :, order])
    moved = LinearTask(loss, task.sources[:, sources][:, :, columns], task.pattern, task.alpha)
    first, second = solve_pair(task, tolerance=1e-9), solve_pair(moved, tolerance=1e-9)
    torch.testing.assert_close(second.value, first.value[tasks], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(second.theta, first.theta[tasks][:, columns], rtol=0, atol=1e-3)


def test_statistics_give_the_same_pair() -> None:
    task = make()
    first = solve_pair(task)
    second = solve_pair(LinearTask(SquaredStatistics.of(task.loss), task.sources, task.pattern, task.alpha))
    torch.testing.assert_close(second.value, first.value)
    assert second.epsilon is None, "the bound needs the examples"


def test_examples_without_a_share_do_not_count() -> None:
    task = make(n_tasks=6)
    shares = torch.zeros(6, 16, dtype=torch.float64)
    shares[:, :9] = 1 / 9
    masked = LinearLoss(task.loss.features, task.loss.targets, shares=shares)
    cut = LinearLoss(task.loss.features[:, :9], task.loss.targets[..., :9])
    pairs = [solve_pair(LinearTask(loss, task.sources, task.pattern, task.alpha)) for loss in (masked, cut)]
    torch.testing.assert_close(pairs[0].value, pairs[1].value)
    torch.testing.assert_close(pairs[0].epsilon, pairs[1].epsilon)


def test_budgets_of_rounds_and_gradients_are_told() -> None:
    task = make(Logistic())
    assert set(solve_pair(task, max_gradients=1).status) == {Status.OUT_OF_GRADIENTS}
    assert set(solve_pair(task, max_rounds=0).status) == {Status.OUT_OF_STEPS}
    whole = solve_pair(task, clock=iter([0.0, 2.5]).__next__)
    assert set(whole.status) == {Status.SOLVED} and whole.seconds == 2.5 and whole.gradient_evaluations > 1


@pytest.mark.parametrize("max_sources", [1, 2, 3])
def test_a_limit_on_sources_holds_and_is_near_the_best(max_sources: int) -> None:
    features, targets, sources = make_task("random", 40, 12, 7, 7)
    loss, zero = make_loss(features, targets, Squared()), torch.zeros(40, 7, dtype=torch.float64)
    problem = mixture_problem(loss, sources, zero)
    free = run(FrankWolfe(1e-8), problem, uniform(40, 1, 7, zero), 10_000).point
    limited = limit_sources(problem, free, max_sources)
    exact = enumerate_sources(problem, free, max_sources)
    for weights in (limited, exact):
        assert ((weights > 0).sum(dim=-1) <= max_sources).all()
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(40, 1, dtype=torch.float64))
    assert (problem.value(exact) <= problem.value(limited) + 1e-6).all()
    near = problem.value(limited) <= 1.01 * problem.value(exact) + 1e-6
    assert float(near.double().mean()) >= 0.9
    pair = solve_pair(LinearTask(loss, sources, Pattern(1), 0.1), max_sources)
    assert ((pair.weights > 0).sum(dim=-1) <= max_sources).all()


@pytest.mark.parametrize("method", ["projection", "lagrangian"])
@pytest.mark.parametrize("per_element", [False, True])
@pytest.mark.parametrize("link", LINKS, ids=["squared", "logistic"])
def test_cost_limits_are_never_violated(method, per_element: bool, link) -> None:
    modules = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    task = make(link, n_tasks=8, n_kept=4, weight_blocks=modules)
    costs = Costs(torch.tensor([1.0, 2.0, 0.5]), torch.tensor([3.0, 1.0, 2.0]), modules, per_element)
    free = solve_pair(task)
    worst = None
    for limit in (3.5, 5.0, 8.0, 12.0, 100.0):
        pair = solve_within(task, costs, limit, method)
        assert (costs.of(pair.weights, pair.residual) <= limit + 1e-9).all()
        assert (pair.value >= free.value - 1e-3).all()
        torch.testing.assert_close(pair.weights.sum(dim=2), torch.ones(8, 3, dtype=torch.float64))
        worst = pair.value if worst is None else worst
    assert float(pair.value.mean()) <= float(worst.mean())
    torch.testing.assert_close(pair.value, free.value, rtol=1e-4, atol=1e-4)
    with pytest.raises(BudgetInfeasible, match="raise the limit"):
        solve_within(task, costs, 3.4, method)


def test_a_unit_too_dear_does_not_cost_the_others_their_place() -> None:
    """Worth most for its price, but beyond the limit alone: what is cheaper stays."""
    features = torch.eye(8, dtype=torch.float64)[None]
    targets = torch.tensor([[[100.0] * 2 + [1.0] * 6]], dtype=torch.float64)
    sources = torch.zeros(1, 1, 8, dtype=torch.float64)
    task = LinearTask(make_loss(features, targets, Squared()), sources, Pattern(8), 0.01)
    costs = Costs(torch.zeros(1), torch.tensor([12.0, 1.0, 1.0, 1.0]), torch.arange(4).repeat_interleave(2))
    pair = solve_within(task, costs, 5.0)
    assert (pair.residual[0] != 0).tolist() == [False] * 2 + [True] * 6


def test_costs_count_sources_and_blocks() -> None:
    costs = Costs(torch.tensor([1.0, 10.0]), torch.tensor([100.0, 1000.0]), torch.tensor([0, 0, 1]))
    weights = torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]])
    residual = torch.tensor([[0.1, 0.2, 0.0]])
    assert costs.of(weights, residual).tolist() == [2 + 10 + 100]
    by_element = Costs(costs.mix, costs.residual, costs.blocks, per_element=True)
    assert by_element.of(weights, residual).tolist() == [2 + 10 + 200]


def test_settings_follow_the_truth_and_shrink_at_tiny_n() -> None:
    chosen = {}
    for n_examples in (6, 80):
        features = normal(1, n_examples, 20, seed=1)
        sources = normal(1, 3, 20, seed=2)
        theta = sources[0, 0].clone()
        theta[:3] += 2.0
        targets = (features[0] @ theta + 0.3 * normal(n_examples, seed=3)).reshape(1, 1, -1)
        chosen[n_examples] = choose(LinearTask(LinearLoss(features, targets), sources, Pattern(0)))
    assert 3 <= chosen[80].n_kept <= 8
    assert chosen[6].n_kept < chosen[80].n_kept and chosen[6].alpha >= chosen[80].alpha
    assert "6 examples tell little" in chosen[6].message and "leave-one-out" in chosen[6].message
    assert "folds" in chosen[80].message
