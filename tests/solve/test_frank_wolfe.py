"""Frank-Wolfe against enumeration of all supports, and what its steps must never do."""

from itertools import combinations, product

import pytest
import torch

from smatter.algebra.simplex import truncate
from smatter.solve.frank_wolfe import FrankWolfe, duality_gap
from smatter.solve.loop import run
from smatter.solve.quadratic import QuadraticMixture
from smatter.solve.solution import Status

torch.set_num_threads(1)
N_TASKS = 30


def problem(n_sources: int, n_blocks: int = 1, kind: str = "random", seed: int = 0) -> QuadraticMixture:
    """Least squares of n examples on source predictions, in float64."""
    generator = torch.Generator().manual_seed(seed)
    size = n_blocks * n_sources
    n_examples = 2 if kind == "few examples" else 3 * size
    predictions = torch.randn(N_TASKS, n_examples, size, generator=generator, dtype=torch.float64)
    if kind == "identical":
        predictions[..., 1] = predictions[..., 0]
    if kind == "collinear":
        predictions[..., 2] = 0.5 * (predictions[..., 0] + predictions[..., 1]) + 1e-5 * predictions[..., 2]
    if kind == "zero":
        predictions[:] = 0
    targets = torch.randn(N_TASKS, n_examples, generator=generator, dtype=torch.float64)
    return QuadraticMixture(
        predictions.mT @ predictions / n_examples,
        (targets.unsqueeze(1) @ predictions).squeeze(1) / n_examples,
        0.5 * targets.square().mean(dim=1),
        n_blocks,
    )


def enumerate_minimum(quadratic: torch.Tensor, linear: torch.Tensor, n_blocks: int) -> float:
    """The minimum over products of simplices by solving for every support (conditions of optimality, one task)."""
    size = len(linear)
    n_sources = size // n_blocks
    supports = [s for k in range(1, n_sources + 1) for s in combinations(range(n_sources), k)]
    best = float("inf")
    for choice in product(supports, repeat=n_blocks):
        active = [block * n_sources + source for block, support in enumerate(choice) for source in support]
        sums = torch.zeros(n_blocks, len(active), dtype=quadratic.dtype)
        for column, index in enumerate(active):
            sums[index // n_sources, column] = 1
        top = torch.cat([quadratic[active][:, active], sums.T], dim=1)
        bottom = torch.cat([sums, torch.zeros(n_blocks, n_blocks, dtype=quadratic.dtype)], dim=1)
        right = torch.cat([linear[active], torch.ones(n_blocks, dtype=quadratic.dtype)])
        weights = torch.linalg.lstsq(torch.cat([top, bottom]), right.unsqueeze(1), driver="gelsd").solution[
            : len(active), 0
        ]
        if (weights >= -1e-9).all() and torch.allclose(sums @ weights, torch.ones(n_blocks, dtype=quadratic.dtype)):
            value = 0.5 * weights @ quadratic[active][:, active] @ weights - linear[active] @ weights
            best = min(best, float(value))
    return best


def uniform(task_problem: QuadraticMixture, n_sources: int) -> torch.Tensor:
    n_tasks = len(task_problem.constant)
    return torch.full((n_tasks, task_problem.n_blocks, n_sources), 1 / n_sources, dtype=torch.float64)


@pytest.mark.parametrize("variant", ["away", "pairwise"])
@pytest.mark.parametrize("kind", ["random", "identical", "collinear", "few examples", "zero"])
def test_agrees_with_enumeration(variant, kind: str) -> None:
    task_problem = problem(4, kind=kind)
    solution = run(FrankWolfe(1e-9, variant), task_problem, uniform(task_problem, 4), max_steps=20_000)
    for task in range(N_TASKS):
        minimum = enumerate_minimum(task_problem.quadratic[task], task_problem.linear[task], 1)
        assert float(solution.value[task] - task_problem.constant[task]) == pytest.approx(minimum, abs=1e-6)


def test_products_of_simplices_agree_with_enumeration() -> None:
    task_problem = problem(3, n_blocks=2)
    solution = run(FrankWolfe(1e-8), task_problem, uniform(task_problem, 3), max_steps=20_000)
    torch.testing.assert_close(solution.point.sum(dim=-1), torch.ones(N_TASKS, 2, dtype=torch.float64))
    for task in range(N_TASKS):
        minimum = enumerate_minimum(task_problem.quadratic[task], task_problem.linear[task], 2)
        assert float(solution.value[task] - task_problem.constant[task]) == pytest.approx(minimum, abs=1e-6)


@pytest.mark.parametrize("variant", ["vanilla", "away", "pairwise"])
def test_the_gap_bounds_the_distance_and_the_loss_never_rises(variant) -> None:
    task_problem = problem(5)
    algorithm = FrankWolfe(0.0, variant)
    best = run(FrankWolfe(1e-10), task_problem, uniform(task_problem, 5), max_steps=20_000).value
    state = algorithm.start(task_problem, uniform(task_problem, 5))
    for index in range(40):
        new = algorithm.step(task_problem, state, index)
        assert (new.value <= state.value + 1e-12).all()
        assert (new.value - best <= new.gap + 1e-9).all()
        torch.testing.assert_close(new.point.sum(dim=-1), torch.ones(N_TASKS, 1, dtype=torch.float64))
        assert (new.point >= 0).all()
        state = new


def test_vanilla_steps_from_a_vertex_add_one_source_each() -> None:
    task_problem = problem(12)
    vertex = torch.zeros(N_TASKS, 1, 12, dtype=torch.float64)
    vertex[..., 3] = 1
    for steps in range(6):
        solution = run(
            FrankWolfe(0.0, "vanilla", "open loop" if steps % 2 else "line search"), task_problem, vertex, steps
        )
        assert ((solution.point > 0).sum(dim=-1) <= steps + 1).all()


def test_open_loop_steps_close_the_gap_at_their_rate() -> None:
    task_problem = problem(8)
    best = run(FrankWolfe(1e-10), task_problem, uniform(task_problem, 8), max_steps=20_000).value
    # The curvature of 1/2 w'Qw over the simplex is at most twice the largest diagonal entry of Q, times two.
    bound = 4 * task_problem.quadratic.diagonal(dim1=1, dim2=2).amax(dim=1)
    for steps in (10, 40, 160, 640):
        value = run(FrankWolfe(0.0, "vanilla", "open loop"), task_problem, uniform(task_problem, 8), steps).value
        assert (value - best <= 2 * bound / (steps + 2)).all()


def test_the_order_of_sources_and_of_tasks_does_not_matter() -> None:
    task_problem = problem(6)
    order, tasks = torch.randperm(6, generator=torch.Generator().manual_seed(1)), torch.arange(N_TASKS).flip(0)
    permuted = QuadraticMixture(
        task_problem.quadratic[tasks][:, order][:, :, order],
        task_problem.linear[tasks][:, order],
        task_problem.constant[tasks],
    )
    first = run(FrankWolfe(1e-10), task_problem, uniform(task_problem, 6), 20_000)
    second = run(FrankWolfe(1e-10), permuted, uniform(permuted, 6), 20_000)
    torch.testing.assert_close(second.point, first.point[tasks][..., order], atol=1e-4, rtol=0)


def test_endings_are_told_apart() -> None:
    task_problem = problem(6)
    short = run(FrankWolfe(1e-12, "vanilla"), task_problem, uniform(task_problem, 6), max_steps=2)
    assert set(short.status) == {Status.OUT_OF_STEPS} and "more steps" in short.advice
    assert run(FrankWolfe(1e-6), task_problem, uniform(task_problem, 6), 20_000).ok
    broken = QuadraticMixture(task_problem.quadratic * torch.nan, task_problem.linear, task_problem.constant)
    assert set(run(FrankWolfe(1e-6), broken, uniform(broken, 6), 5).status) == {Status.DIVERGED}


def test_one_source_is_solved_at_once() -> None:
    task_problem = problem(1)
    solution = run(FrankWolfe(), task_problem, uniform(task_problem, 1))
    assert solution.ok and solution.gradient_evaluations == 1
    assert float(duality_gap(solution.point, task_problem.evaluate(solution.point).gradient).max()) == 0


def test_only_allowed_sources_carry_weight_as_tasks_leave_the_batch() -> None:
    task_problem = problem(6)
    allowed = torch.rand(N_TASKS, 1, 6, generator=torch.Generator().manual_seed(2)) < 0.5
    allowed[..., 0] |= ~allowed.any(dim=-1)
    start = allowed / allowed.sum(dim=-1, keepdim=True).double()
    solution = run(FrankWolfe(1e-9, allowed=allowed), task_problem, start, 20_000)
    assert solution.ok and not (solution.point[~allowed] > 0).any()
    for task in range(5):
        kept = allowed[task, 0]
        minimum = enumerate_minimum(task_problem.quadratic[task][kept][:, kept], task_problem.linear[task][kept], 1)
        assert float(solution.value[task] - task_problem.constant[task]) == pytest.approx(minimum, abs=1e-6)


def test_a_warm_start_needs_fewer_steps() -> None:
    task_problem = problem(8)
    cold = run(FrankWolfe(1e-8), task_problem, uniform(task_problem, 8), 20_000)
    warm = run(FrankWolfe(1e-8), task_problem, cold.point, 20_000)
    assert warm.steps.max() <= 1 < cold.steps.max()
    limited = truncate(cold.point, 2)
    assert ((limited > 0).sum(dim=-1) <= 2).all()
    torch.testing.assert_close(limited.sum(dim=-1), torch.ones(N_TASKS, 1, dtype=torch.float64))


def test_the_clock_and_the_watch_are_told() -> None:
    task_problem = problem(4)
    ticks, seen = iter(range(10)), []
    solution = run(
        FrankWolfe(1e-8), task_problem, uniform(task_problem, 4), 50, lambda: float(next(ticks)), seen.append
    )
    assert solution.seconds == 1.0
    assert len(seen) == solution.gradient_evaluations
