"""Losses of pools against their definition, what must not change them, and what must not break them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_tasks import POOLS, grid, make_scores, plain_loss, random_weights

import smatter.solve.pools
from smatter.solve.frank_wolfe import FrankWolfe, uniform
from smatter.solve.loop import run
from smatter.solve.newton import Newton
from smatter.solve.padding import pad_tasks
from smatter.solve.pools import LinearPool, LogPool
from smatter.solve.solution import Status

torch.set_num_threads(1)
CENTER = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=torch.float64)
both_pools = pytest.mark.parametrize("pool", POOLS)
sizes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 6), st.integers(2, 5))


@both_pools
@pytest.mark.parametrize("n_classes", [2, 5])
def test_loss_gradient_and_hessian_agree_with_autograd(pool, n_classes: int) -> None:
    scores, labels = make_scores(3, 4, 7, n_classes)
    point = random_weights(3, 4)
    problem = pool.of(scores, labels, pull=1.5, center=CENTER)
    value, gradient, hessian = problem.expand(point)
    for task in range(3):

        def loss(weights: torch.Tensor, task: int = task) -> torch.Tensor:
            return plain_loss(pool, scores[task], labels[task], weights, 1.5, CENTER)

        weights = point[task, 0]
        torch.testing.assert_close(value[task], loss(weights))
        torch.testing.assert_close(gradient[task, 0], torch.autograd.functional.jacobian(loss, weights))
        torch.testing.assert_close(hessian[task], torch.autograd.functional.hessian(loss, weights))
    torch.testing.assert_close(problem.value(point), value)
    torch.testing.assert_close(problem.evaluate(point), (value, gradient))


@both_pools
@given(sizes, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_losses_are_convex(pool, shape: tuple[int, int, int, int], seed: int) -> None:
    scores, labels = make_scores(*shape, scale=5.0, seed=seed)
    problem = pool.of(scores, labels)
    first, second = random_weights(*shape[:2], seed), random_weights(*shape[:2], seed + 1)
    assert (problem.value((first + second) / 2) <= (problem.value(first) + problem.value(second)) / 2 + 1e-12).all()
    hessian = problem.expand(first).hessian
    assert (torch.linalg.eigvalsh(hessian) >= -1e-10 * hessian.abs().amax(dim=(1, 2))[:, None]).all()


@given(sizes, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_pools_of_a_single_source_are_that_source(shape: tuple[int, int, int, int], seed: int) -> None:
    scores, labels = make_scores(*shape, seed=seed)
    for source, vertex in enumerate(torch.eye(shape[1], dtype=torch.float64)):
        expected = [
            plain_loss(LogPool, task[source][None], true, torch.ones(1).double())
            for task, true in zip(scores, labels, strict=True)
        ]
        for pool in POOLS:
            value = pool.of(scores, labels).value(vertex.expand(shape[0], 1, -1))
            torch.testing.assert_close(value, torch.stack(expected))


@both_pools
@given(sizes, st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_order_of_things_and_constants_do_not_matter(pool, shape: tuple[int, int, int, int], seed: int) -> None:
    scores, labels = make_scores(*shape, seed=seed)
    n_tasks, n_sources, n_rows, n_classes = shape
    generator = torch.Generator().manual_seed(seed)
    point = random_weights(n_tasks, n_sources, seed)
    plain = pool.of(scores, labels, pull=1.0).expand(point)

    rows = torch.randperm(n_rows, generator=generator)
    torch.testing.assert_close(pool.of(scores[:, :, rows], labels[:, rows], pull=1.0).expand(point), plain)

    classes = torch.randperm(n_classes, generator=generator)
    renamed = pool.of(scores[..., classes], classes.argsort()[labels], pull=1.0)
    torch.testing.assert_close(renamed.expand(point), plain)

    constants = 10 * torch.randn(n_tasks, n_sources, n_rows, 1, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(pool.of(scores + constants, labels, pull=1.0).expand(point), plain)

    sources = torch.randperm(n_sources, generator=generator)
    value, gradient, hessian = pool.of(scores[:, sources], labels, pull=1.0).expand(point[..., sources])
    expected = (plain.value, plain.gradient[..., sources], plain.hessian[:, sources][:, :, sources])
    torch.testing.assert_close((value, gradient, hessian), expected)


@both_pools
@pytest.mark.parametrize("masked", [-torch.inf, -1e9])
def test_padding_changes_nothing(pool, masked: float) -> None:
    tasks = [make_scores(1, 4, n_rows, n_classes, seed=n_rows) for n_rows, n_classes in ((3, 2), (8, 5), (1, 3))]
    padded = pad_tasks([scores[0] for scores, _ in tasks], [labels[0] for _, labels in tasks])
    scores = padded.scores.clamp(min=masked)
    scores[0, :, 3:], scores[2, 1:, 1:] = torch.nan, torch.inf  # rows that do not count
    for point in (random_weights(3, 4), torch.eye(4, dtype=torch.float64)[:3, None]):
        batch = pool.of(scores, padded.labels, padded.row_weights, pull=2.0).expand(point)
        for index, (alone, labels) in enumerate(tasks):
            one = pool.of(alone, labels, pull=2.0).expand(point[index : index + 1])
            torch.testing.assert_close([part[index : index + 1] for part in batch], list(one))


@both_pools
def test_a_row_that_counts_twice_is_a_row_that_stands_twice(pool) -> None:
    scores, labels = make_scores(2, 3, 5, 4)
    rows, point = torch.tensor([0, 1, 1, 2, 4]), random_weights(2, 3)
    counts = torch.tensor([[1.0, 2.0, 1.0, 0.0, 1.0]]).expand(2, -1)
    weighted = pool.of(scores, labels, counts, pull=1.0)
    torch.testing.assert_close(
        weighted.expand(point), pool.of(scores[:, :, rows], labels[:, rows], pull=1.0).expand(point)
    )


@both_pools
def test_work_in_pieces_and_selected_tasks_are_the_same_problem(pool, monkeypatch) -> None:
    scores, labels = make_scores(5, 3, 4, 3)
    problem, point = pool.of(scores, labels, pull=1.0, center=random_weights(5, 3, seed=4)[:, 0]), random_weights(5, 3)
    whole = problem.expand(point)
    tasks = torch.tensor([3, 0])
    some = problem.select(tasks).expand(point[tasks])
    torch.testing.assert_close(list(some), [part[tasks] for part in whole])
    monkeypatch.setattr(smatter.solve.pools, "PIECE", 1)
    again = pool.of(scores, labels, pull=1.0, center=random_weights(5, 3, seed=4)[:, 0])
    torch.testing.assert_close(again.expand(point), whole)


@both_pools
def test_extreme_scores_do_not_overflow(pool) -> None:
    scores, labels = make_scores(20, 4, 6, 5, scale=1e4)
    problem = pool.of(scores, labels)
    for point in (random_weights(20, 4), *torch.eye(4, dtype=torch.float64)[:, None, None].expand(-1, 20, -1, -1)):
        assert all(part.isfinite().all() for part in problem.expand(point))
    solution = run(Newton(1e-6), problem, uniform(20, 1, 4, scores), 200)
    assert solution.ok
    for point in (*random_weights(200, 4, seed=5), *torch.eye(4, dtype=torch.float64)[:, None]):
        value = problem.value(point.expand(20, 1, -1))
        assert (solution.value <= value + 1e-6 * value.clamp(min=1)).all()


@both_pools
def test_extreme_scores_have_their_loss(pool) -> None:
    scores, labels = make_scores(5, 3, 6, 5, scale=1e4)
    point = random_weights(5, 3)
    expected = [plain_loss(pool, *task) for task in zip(scores, labels, point[:, 0], strict=True)]
    torch.testing.assert_close(pool.of(scores, labels).value(point), torch.stack(expected))


def test_a_source_that_rules_out_a_true_class_is_ruled_out_of_a_log_pool_alone() -> None:
    scores, labels = make_scores(1, 3, 40, 4, seed=1)
    scores[0, 2, 0, labels[0, 0]] = -torch.inf  # the most skilful source, wrong for once
    logs, linear = (run(Newton(), pool.of(scores, labels), uniform(1, 1, 3, scores), 200) for pool in POOLS)
    assert logs.ok and float(logs.point[0, 0, 2]) < 1e-5
    assert linear.ok and float(linear.point[0, 0, 2]) > 0.1


@both_pools
def test_a_source_of_nan_ends_its_own_task_only(pool) -> None:
    scores, labels = make_scores(4, 3, 6, 4)
    start = uniform(4, 1, 3, scores)
    healthy = run(Newton(), pool.of(scores, labels), start)
    scores[2, 1, 3, 0] = torch.nan
    broken = run(Newton(), pool.of(scores, labels), start)
    assert broken.status[2] is Status.DIVERGED
    others = torch.tensor([0, 1, 3])
    torch.testing.assert_close(broken.point[others], healthy.point[others])
    assert all(broken.status[task] is Status.SOLVED for task in others.tolist())


@both_pools
@pytest.mark.parametrize("n_sources", [2, 3])
def test_frank_wolfe_finds_the_best_of_a_grid(pool, n_sources: int) -> None:
    scores, labels = make_scores(6, n_sources, 12, 4)
    problem, points = pool.of(scores, labels, pull=0.5), grid(n_sources)
    solution = run(FrankWolfe(1e-6), problem, uniform(6, 1, n_sources, scores))
    assert (solution.gap <= 1e-5).all()
    for task in range(6):
        values = problem.select(torch.full((len(points),), task)).value(points)
        assert float(values.min()) - 1e-3 <= float(solution.value[task]) <= float(values.min()) + 1e-6


@both_pools
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_rows", [1, 3])
def test_scores_are_left_as_they_are(pool, dtype: torch.dtype, n_rows: int) -> None:
    scores, labels = make_scores(2, 3, n_rows, 4)
    given_scores = scores.to(dtype)
    kept = given_scores.clone()
    problem = pool.of(given_scores, labels)
    assert torch.equal(given_scores, kept)
    assert problem.value(random_weights(2, 3)).dtype == torch.float64


def test_impossible_requests_say_the_remedy() -> None:
    scores, labels = make_scores(2, 3, 4, 5)
    with pytest.raises(ValueError, match="two classes"):
        LogPool.of(scores[..., :1], torch.zeros_like(labels))
    with pytest.raises(ValueError, match="one that counts"):
        LinearPool.of(scores, labels, torch.tensor([[1.0] * 4, [0.0] * 4]))
    with pytest.raises(ValueError, match="zero times or more"):
        LinearPool.of(scores, labels, torch.tensor([[1.0, 1.0, 1.0, -1.0]] * 2))
    with pytest.raises(ValueError, match="zero or more"):
        LogPool.of(scores, labels, pull=-1.0)
