"""Weights agree with cvxpy and clarabel to 1e-6 in objective, on 200 problems and more, degenerate ones among them."""

import pytest
import torch
from problems import KINDS, make_loss, make_task, reference

from smatter.linear.alternate import solve_pair
from smatter.linear.links import Logistic, Squared
from smatter.linear.loss import SquaredStatistics
from smatter.linear.mixing import mixture_problem, per_block
from smatter.linear.task import LinearTask
from smatter.solve.frank_wolfe import FrankWolfe, uniform
from smatter.solve.loop import run

N_TASKS = 16


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("kind", KINDS)
def test_squared_loss(kind: str, ridge: float) -> None:
    features, targets, sources = make_task(kind, N_TASKS, 12, 7, 5)
    loss = make_loss(features, targets, Squared(), ridge)
    zero = torch.zeros(N_TASKS, 7, dtype=torch.float64)
    problem = mixture_problem(loss, sources, zero)
    solution = run(FrankWolfe(1e-7), problem, uniform(N_TASKS, 1, sources.shape[1], zero), 20_000)
    assert solution.ok, solution.advice
    for task in range(N_TASKS):
        best = reference(loss, task, sources)
        assert float(solution.value[task]) == pytest.approx(best, abs=1e-6)
        assert float(solution.value[task] - solution.gap[task]) <= best + 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_logistic_loss(kind: str) -> None:
    n_tasks = 4
    features, targets, sources = make_task(kind, n_tasks, 12, 7, 5)
    loss = make_loss(features, targets, Logistic(), 0.01)
    zero = torch.zeros(n_tasks, 7, dtype=torch.float64)
    problem = mixture_problem(loss, sources, zero)
    by_steps = run(FrankWolfe(1e-7), problem, uniform(n_tasks, 1, sources.shape[1], zero), 20_000)
    by_newton = solve_pair(LinearTask(loss, sources), tolerance=1e-8)
    for task in range(n_tasks):
        best = reference(loss, task, sources)
        assert float(by_steps.value[task]) == pytest.approx(best, abs=1e-6)
        assert float(by_newton.value[task]) == pytest.approx(best, abs=1e-6)


def test_more_sources_than_examples_and_features() -> None:
    features, targets, sources = make_task("random", 8, 4, 3, 40)
    loss = make_loss(features, targets, Squared())
    pair = solve_pair(LinearTask(loss, sources), tolerance=1e-8)
    for task in range(8):
        assert float(pair.value[task]) == pytest.approx(reference(loss, task, sources), abs=1e-6)


@pytest.mark.parametrize("link", [Squared(), Logistic()])
def test_weights_per_block(link) -> None:
    """A product of simplices, against cvxpy on one long list of sources with a sum for every block."""
    import cvxpy

    features, targets, sources = make_task("random", 6, 15, 6, 3)
    loss = make_loss(features, targets, link)
    blocks = torch.tensor([0, 0, 1, 1, 1, 0])
    pair = solve_pair(LinearTask(loss, sources, weight_blocks=blocks), tolerance=1e-8)
    assert pair.weights.shape == (6, 2, 3)
    torch.testing.assert_close(pair.weights.sum(dim=2), torch.ones(6, 2, dtype=torch.float64))
    rows = per_block(sources, blocks)[0].numpy()
    for task in range(6):
        weights = cvxpy.Variable(6, nonneg=True)
        outputs = features[task].numpy() @ (rows.T @ weights)
        labels = loss.targets[task, 0].numpy()
        mean = (
            cvxpy.sum_squares(outputs - labels) / 30
            if isinstance(link, Squared)
            else cvxpy.sum(cvxpy.logistic(outputs) - cvxpy.multiply(labels, outputs)) / 15
        )
        limits = [cvxpy.sum(weights[:3]) == 1, cvxpy.sum(weights[3:]) == 1]
        best = cvxpy.Problem(cvxpy.Minimize(mean), limits).solve(solver=cvxpy.CLARABEL)
        assert float(pair.value[task]) == pytest.approx(best, abs=1e-6)


def test_sufficient_statistics_are_the_same_problem() -> None:
    features, targets, sources = make_task("random", N_TASKS, 12, 7, 5)
    loss = make_loss(features, targets, Squared(), 0.1)
    scanned = solve_pair(LinearTask(loss, sources), tolerance=1e-9)
    remembered = solve_pair(LinearTask(SquaredStatistics.of(loss), sources), tolerance=1e-9)
    torch.testing.assert_close(remembered.value, scanned.value)
    torch.testing.assert_close(remembered.weights, scanned.weights, atol=1e-4, rtol=0)
