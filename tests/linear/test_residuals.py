"""Sparse residuals against skglm, brute force and each other."""

from itertools import combinations

import numpy as np
import pytest
import torch
from problems import generator, make_loss, make_task, normal
from sklearn.linear_model import Lasso

from smatter.linear.exchange import exchange, grow
from smatter.linear.gates import solve_with_gates
from smatter.linear.group_lasso import ProximalGradient, largest_strength, relax_and_refit
from smatter.linear.links import Logistic, Squared
from smatter.linear.loss import LinearLoss, SquaredStatistics
from smatter.linear.residual import ResidualProblem
from smatter.linear.sparse import best_residual
from smatter.linear.working_set import solve_lasso
from smatter.solve.loop import run
from smatter.solve.pattern import Pattern
from smatter.solve.thresholding import HardThresholding

LINKS = [Squared(), Logistic()]
BLOCKS = torch.tensor([0, 1, 1, 2, 2, 2, 3, 3, 0, 4])


def residual_problem(link, kind: str = "random", n_tasks: int = 40, n_examples: int = 12, alpha: float = 0.01):
    features, targets, _ = make_task(kind, n_tasks, n_examples, 10, 3)
    return ResidualProblem(make_loss(features, targets, link), torch.zeros(n_tasks, 10, dtype=torch.float64), alpha)


def brute_force(problem: ResidualProblem, pattern: Pattern) -> torch.Tensor:
    """The least loss over all supports."""
    n_units = pattern.n_units(problem.base.shape[1])
    best = torch.full((len(problem.base),), torch.inf, dtype=torch.float64)
    for chosen in combinations(range(n_units), pattern.n_kept):
        units = torch.zeros(len(problem.base), n_units, dtype=torch.bool)
        units[:, list(chosen)] = True
        best = torch.minimum(best, problem.value(problem.refit(pattern.spread(units))))
    return best


@pytest.mark.parametrize("share", [0.9, 0.3, 0.05])
def test_lasso_agrees_with_scikit_learn(share: float) -> None:
    problem = residual_problem(Squared(), "sparse truth", n_tasks=6, n_examples=25, alpha=0.0)
    zero = torch.zeros_like(problem.base)
    strength = share * largest_strength(problem, Pattern(0), zero)
    ours = solve_lasso(problem, strength, 1e-9)
    for task in range(6):
        theirs = Lasso(float(strength[task]), fit_intercept=False, tol=1e-10)
        theirs.fit(problem.loss.features[task].numpy(), problem.loss.targets[task, 0].numpy())
        np.testing.assert_allclose(ours.point[task], theirs.coef_, atol=1e-6)


@pytest.mark.slow  # skglm compiles for a minute
@pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["coordinates", "blocks"])
@pytest.mark.parametrize("share", [0.9, 0.3, 0.05])
def test_lasso_and_group_lasso_agree_with_skglm(blocks, share: float) -> None:
    import skglm

    problem = residual_problem(Squared(), "sparse truth", n_tasks=6, n_examples=25, alpha=0.0)
    pattern = Pattern(0, blocks)
    zero = torch.zeros_like(problem.base)
    strength = share * largest_strength(problem, pattern, zero)
    ours = run(ProximalGradient(strength, pattern, 1e-9), problem, zero, 20_000)
    by_signs = solve_lasso(problem, strength, 1e-9)
    assert ours.ok and by_signs.ok
    for task in range(6):
        alpha = float(strength[task])
        if blocks is None:
            theirs = skglm.Lasso(alpha, fit_intercept=False, tol=1e-10)
        else:
            groups = [np.flatnonzero(blocks.numpy() == block).tolist() for block in range(5)]
            theirs = skglm.GroupLasso(groups, alpha, weights=np.ones(5), fit_intercept=False, tol=1e-10)
        theirs.fit(problem.loss.features[task].numpy(), problem.loss.targets[task, 0].numpy())
        point = torch.tensor(theirs.coef_)[None]
        one = problem.select(torch.tensor([task]))
        value = one.value(point) + alpha * pattern.sums(point.square()).sqrt().sum()
        assert float(ours.value[task]) == pytest.approx(float(value), abs=1e-7)
        if blocks is None:
            assert float(by_signs.value[task]) == pytest.approx(float(value), abs=1e-7)
        assert float(ours.value[task] - ours.gap[task]) <= float(value) + 1e-9


@pytest.mark.parametrize("link", LINKS, ids=["squared", "logistic"])
@pytest.mark.parametrize("kind", ["random", "sparse truth"])
@pytest.mark.parametrize("blocks", [None, BLOCKS], ids=["coordinates", "blocks"])
def test_within_one_percent_of_brute_force_nineteen_times_in_twenty(link, kind: str, blocks) -> None:
    problem = residual_problem(link, kind, n_tasks=100)
    pattern = Pattern(3 if blocks is None else 2, blocks)
    found = best_residual(problem, pattern)
    assert pattern.holds(found).all()
    best = brute_force(problem, pattern)
    value = problem.value(found)
    assert (value >= best - 1e-9).all()
    assert float((value <= 1.01 * best + 1e-9).double().mean()) >= 0.95


@pytest.mark.parametrize("link", LINKS, ids=["squared", "logistic"])
def test_thresholding_never_raises_the_loss_and_keeps_the_pattern(link) -> None:
    problem, pattern = residual_problem(link), Pattern(3, BLOCKS)
    algorithm = HardThresholding(pattern.project)
    state = algorithm.start(problem, torch.zeros_like(problem.base))
    for index in range(30):
        new = algorithm.step(problem, state, index)
        assert (new.value <= state.value + 1e-12).all()
        assert pattern.holds(new.point).all()
        state = new


@pytest.mark.parametrize("link", LINKS, ids=["squared", "logistic"])
def test_a_refit_has_no_slope_on_its_support(link) -> None:
    problem = residual_problem(link)
    support = torch.rand(40, 10, generator=generator(3)) < 0.3
    point = problem.refit(support)
    assert not point[~support].any()
    assert float(problem.evaluate(point).gradient[support].abs().max()) < 1e-5


@pytest.mark.parametrize("link", LINKS, ids=["squared", "logistic"])
def test_every_way_obeys_the_pattern_and_exchange_improves(link) -> None:
    problem, pattern = residual_problem(link), Pattern(2)
    zero = torch.zeros_like(problem.base)
    relaxed = relax_and_refit(problem, pattern)
    greedy = grow(problem, pattern, zero)
    gated = solve_with_gates(problem, pattern, generator(0), 100)
    for start in (relaxed, greedy, gated.point):
        improved = exchange(problem, pattern, start)
        assert pattern.holds(start).all() and pattern.holds(improved).all()
        assert (problem.value(improved) <= problem.value(start) + 1e-12).all()


def test_gates_find_a_clear_support() -> None:
    problem = residual_problem(Squared(), "sparse truth", n_tasks=20, n_examples=60)
    truth = torch.zeros(20, 10, dtype=torch.float64)
    truth[:, :3] = 2.0
    targets = (problem.loss.features @ truth.unsqueeze(-1)).mT + 0.1 * normal(20, 1, 60, seed=9)
    problem = ResidualProblem(LinearLoss(problem.loss.features, targets), problem.base)
    solution = solve_with_gates(problem, Pattern(3), generator(0), 300, clock=lambda: 0.0)
    assert (solution.point[:, :3] != 0).all() and not solution.point[:, 3:].any()
    assert solution.ok and not solution.is_convex and solution.gradient_evaluations > 300
    again = solve_with_gates(problem, Pattern(3), generator(0), 300)
    assert torch.equal(again.point, solution.point)


def test_free_coordinates_are_not_counted() -> None:
    problem = residual_problem(Squared())
    free = torch.zeros(10, dtype=torch.bool)
    free[4] = True
    pattern = Pattern(2, None, free)
    found = best_residual(problem, pattern)
    assert (found[:, 4] != 0).all() and ((found != 0).sum(dim=1) <= 3).all()
    none = best_residual(problem, Pattern(0, None, free))
    assert (none[:, 4] != 0).all() and not none[:, ~free].any()


def test_statistics_are_the_same_function() -> None:
    features, targets, _ = make_task("random", 5, 12, 10, 3)
    loss = make_loss(features, targets, Squared(), 0.2)
    statistics, theta = SquaredStatistics.of(loss), normal(5, 10, seed=4)
    columns, directions = torch.tensor([[0, 3, 7]] * 5), normal(5, 2, 10, seed=5)
    for ours, theirs in zip(statistics.evaluate(theta), loss.evaluate(theta), strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(statistics.hessian_product(theta), loss.hessian_product(theta))
    torch.testing.assert_close(statistics.hessian_diagonal(theta), loss.hessian_diagonal(theta))
    for extra in (None, directions, directions[:1]):
        among = loss.hessian_among(theta, columns, extra)
        torch.testing.assert_close(statistics.hessian_among(theta, columns, extra), among)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("link", LINKS, ids=["squared", "logistic"])
def test_derivatives_are_those_of_autograd(link, n_outputs: int) -> None:
    features = normal(2, 9, 4, seed=1)
    targets = torch.nn.functional.one_hot(torch.arange(18).reshape(2, 9) % max(n_outputs, 2)).mT[:, :n_outputs].double()
    loss = LinearLoss(features, targets, link, 0.3, torch.rand(2, 9, generator=generator(2), dtype=torch.float64))
    theta = normal(2, 4 * n_outputs, seed=3)
    value, gradient = loss.evaluate(theta)
    leaf = theta.clone().requires_grad_()
    loss.value(leaf).sum().backward()
    torch.testing.assert_close(gradient, leaf.grad)
    torch.testing.assert_close(value, loss.value(theta))
    columns = torch.arange(4 * n_outputs).expand(2, -1)
    directions = normal(2, 2, 4 * n_outputs, seed=4)
    among = loss.hessian_among(theta, columns, directions)
    for task in range(2):
        one = loss.select(torch.tensor([task]))
        basis = torch.cat([torch.eye(4 * n_outputs, dtype=torch.float64), directions[task]])
        hessian = torch.autograd.functional.hessian(lambda t, one=one: one.value(t[None]).sum(), theta[task])
        torch.testing.assert_close(among[task], basis @ hessian @ basis.T)
        torch.testing.assert_close(loss.hessian_diagonal(theta)[task], hessian.diagonal())


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_a_working_set_gives_the_lasso_of_all_coordinates(alpha: float) -> None:
    features, targets, _ = make_task("sparse truth", 20, 15, 200, 3)
    problem = ResidualProblem(make_loss(features, targets, Squared()), normal(20, 200, seed=6) / 20, alpha)
    zero = torch.zeros_like(problem.base)
    strength = 0.2 * largest_strength(problem, Pattern(0), zero)
    by_signs = solve_lasso(problem, strength, 1e-8, clock=lambda: 0.0)
    by_steps = run(ProximalGradient(strength, Pattern(0), 1e-8), problem, zero, 20_000)
    assert by_signs.ok and by_steps.ok
    torch.testing.assert_close(by_signs.value, by_steps.value, atol=1e-6, rtol=0)
    assert (by_signs.value <= by_steps.value + 1e-7).all()


def test_signs_need_a_squared_loss() -> None:
    problem = residual_problem(Logistic())
    with pytest.raises(TypeError, match="use ProximalGradient"):
        solve_lasso(problem, torch.full((40,), 0.01, dtype=torch.float64))
