"""Newton's method against cvxpy and grids, and what its steps must never do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_tasks import POOLS, grid, make_scores, random_weights, reference

from smatter.solve.frank_wolfe import FrankWolfe, duality_gap, uniform
from smatter.solve.loop import run
from smatter.solve.newton import Newton
from smatter.solve.problem import Expansion
from smatter.solve.quadratic import QuadraticMixture

torch.set_num_threads(1)
SHAPES = [(2, 10, 2), (5, 20, 4), (8, 6, 10)]
"""Sources, rows, classes."""

both_pools = pytest.mark.parametrize("pool", POOLS)


class CurvedQuadratic(QuadraticMixture):
    """A quadratic that tells its Hessian, for weights in several blocks."""

    def expand(self, point: torch.Tensor) -> Expansion:
        return Expansion(*self.evaluate(point), self.quadratic)

    def select(self, tasks: torch.Tensor) -> "CurvedQuadratic":
        few = super().select(tasks)
        return CurvedQuadratic(few.quadratic, few.linear, few.constant, few.n_blocks)


@both_pools
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_objective_and_weights_agree_with_cvxpy(pool, shape: tuple[int, int, int], scale: float) -> None:
    scores, labels = make_scores(4, *shape, scale=scale)
    center = random_weights(4, shape[0], seed=2)[:, 0]
    solution = run(Newton(1e-11), pool.of(scores, labels, pull=2.0, center=center), uniform(4, 1, shape[0], scores))
    assert solution.ok
    for task in range(4):
        value, weights = reference(pool, scores[task], labels[task], 2.0, center[task])
        assert float(solution.value[task]) == pytest.approx(value, abs=1e-6)
        assert solution.point[task, 0].numpy() == pytest.approx(weights, abs=1e-6)


@both_pools
@pytest.mark.parametrize("kind", ["random", "identical sources", "one row", "harsh"])
def test_objectives_without_a_pull_agree_with_cvxpy(pool, kind: str) -> None:
    scores, labels = make_scores(4, 5, 1 if kind == "one row" else 15, 4, scale=40.0 if kind == "harsh" else 3.0)
    if kind == "identical sources":
        scores[:, 3] = scores[:, 4]
    solution = run(Newton(1e-9), pool.of(scores, labels), uniform(4, 1, 5, scores))
    assert solution.ok
    for task in range(4):
        value, _ = reference(pool, scores[task], labels[task])
        assert float(solution.value[task]) == pytest.approx(value, abs=1e-6)


@both_pools
@pytest.mark.parametrize("n_sources", [2, 3])
def test_nothing_on_a_grid_is_better(pool, n_sources: int) -> None:
    scores, labels = make_scores(6, n_sources, 12, 4)
    problem, points = pool.of(scores, labels), grid(n_sources)
    solution = run(Newton(), problem, uniform(6, 1, n_sources, scores))
    for task in range(6):
        values = problem.select(torch.full((len(points),), task)).value(points)
        assert float(values.min()) - 1e-3 <= float(solution.value[task]) <= float(values.min()) + 1e-8
        if n_sources == 2:
            assert float((solution.point[task] - points[values.argmin()]).abs().max()) <= 0.01


@both_pools
@given(st.integers(1, 6), st.integers(1, 8), st.integers(2, 4), st.integers(0, 1000), st.sampled_from([1.0, 30.0, 1e3]))
@settings(max_examples=40, deadline=None)
def test_the_gap_bounds_the_distance_and_the_loss_never_rises(
    pool, n_sources: int, n_rows: int, n_classes: int, seed: int, scale: float
) -> None:
    scores, labels = make_scores(3, n_sources, n_rows, n_classes, scale=scale, seed=seed)
    problem = pool.of(scores, labels)
    start = random_weights(3, n_sources, seed)
    best = run(Newton(1e-10), problem, start, 200).value
    algorithm = Newton()
    state = algorithm.start(problem, start)
    for index in range(6):
        new = algorithm.step(problem, state, index)
        slack = 1e-9 * state.value.clamp(min=1)
        assert (new.value <= state.value + 0.01 * slack).all()
        assert (new.value - best <= new.gap + slack).all()
        assert (new.point >= 0).all()
        torch.testing.assert_close(new.point.sum(dim=-1), torch.ones(3, 1, dtype=torch.float64))
        torch.testing.assert_close(new.gap, duality_gap(new.point, problem.evaluate(new.point).gradient))
        state = new


@both_pools
def test_a_batch_is_its_tasks_one_by_one(pool) -> None:
    scores, labels = make_scores(12, 5, 20, 4, scale=5.0)
    batch = run(Newton(1e-10), pool.of(scores, labels, pull=0.5), uniform(12, 1, 5, scores))
    assert len(set(batch.steps.tolist())) > 1, "tasks should leave the batch at different steps"
    for task in range(12):
        problem = pool.of(scores[task : task + 1], labels[task : task + 1], pull=0.5)
        alone = run(Newton(1e-10), problem, uniform(1, 1, 5, scores))
        torch.testing.assert_close(alone.point[0], batch.point[task], atol=1e-7, rtol=0)
        torch.testing.assert_close(alone.value[0], batch.value[task])


@both_pools
def test_the_order_of_sources_does_not_matter(pool) -> None:
    scores, labels = make_scores(5, 6, 20, 4)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    start = uniform(5, 1, 6, scores)
    first = run(Newton(1e-10), pool.of(scores, labels, pull=1.0), start)
    second = run(Newton(1e-10), pool.of(scores[:, order], labels, pull=1.0), start)
    torch.testing.assert_close(second.point, first.point[..., order], atol=1e-6, rtol=0)


@both_pools
def test_only_allowed_sources_carry_weight(pool) -> None:
    scores, labels = make_scores(12, 6, 20, 4, scale=5.0)
    allowed = torch.rand(12, 1, 6, generator=torch.Generator().manual_seed(2)) < 0.5
    allowed[..., 0] |= ~allowed.any(dim=-1)
    start = allowed / allowed.sum(dim=-1, keepdim=True).double()
    solution = run(Newton(1e-9, allowed), pool.of(scores, labels), start)
    assert solution.ok and not (solution.point[~allowed] > 0).any()
    for task in range(12):
        kept = allowed[task, 0]
        problem = pool.of(scores[task : task + 1, kept], labels[task : task + 1])
        alone = run(Newton(1e-9), problem, uniform(1, 1, int(kept.sum()), scores))
        assert float(solution.value[task]) == pytest.approx(float(alone.value), abs=1e-8)


@both_pools
def test_it_agrees_with_frank_wolfe_in_fewer_steps(pool) -> None:
    scores, labels = make_scores(10, 6, 40, 5)
    problem, start = pool.of(scores, labels), uniform(10, 1, 6, scores)
    newton, plain = run(Newton(1e-6), problem, start), run(FrankWolfe(1e-6), problem, start)
    assert newton.ok and plain.ok
    torch.testing.assert_close(newton.value, plain.value, atol=2e-6, rtol=0)
    assert newton.steps.max() <= 6 < plain.steps.max()


@both_pools
def test_it_begins_anywhere(pool) -> None:
    scores, labels = make_scores(4, 4, 20, 3)
    problem = pool.of(scores, labels, pull=1.0)
    expected = run(Newton(1e-10), problem, uniform(4, 1, 4, scores))
    for vertex in torch.eye(4, dtype=torch.float64):
        solution = run(Newton(1e-10), problem, vertex.expand(4, 1, -1).clone())
        torch.testing.assert_close(solution.point, expected.point, atol=1e-6, rtol=0)
    assert run(Newton(1e-8), problem, expected.point).gradient_evaluations == 1


def test_blocks_have_their_own_simplices() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(8, 20, 6, generator=generator, dtype=torch.float64)
    linear = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    problem = CurvedQuadratic(rows.mT @ rows / 20, linear, torch.zeros(8, dtype=torch.float64), n_blocks=2)
    newton = run(Newton(1e-9), problem, uniform(8, 2, 3, linear))
    plain = run(FrankWolfe(1e-9), problem, uniform(8, 2, 3, linear), 20_000)
    assert newton.ok
    torch.testing.assert_close(newton.value, plain.value, atol=1e-8, rtol=0)
    torch.testing.assert_close(newton.point.sum(dim=-1), torch.ones(8, 2, dtype=torch.float64))


def test_one_source_is_solved_at_once() -> None:
    scores, labels = make_scores(3, 1, 5, 4)
    for pool in POOLS:
        solution = run(Newton(), pool.of(scores, labels), uniform(3, 1, 1, scores))
        assert solution.ok and solution.gradient_evaluations == 1


def test_a_problem_without_a_hessian_is_refused() -> None:
    zeros = torch.zeros(1, 2, 2, dtype=torch.float64)
    problem = QuadraticMixture(zeros, zeros[:, 0], zeros[:, 0, 0])
    with pytest.raises(TypeError, match="use FrankWolfe"):
        run(Newton(), problem, uniform(1, 1, 2, zeros))
