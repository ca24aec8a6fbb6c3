"""Weights of six sources for a thousand tasks in prediction space, against loops over scipy's SLSQP and over cvxpy.

    python benchmarks/pool_speed.py [--quick]

Every case gets the same scores and labels and reaches the same objective; the largest difference is in the result. Ours
includes what it prepares from the scores. All run in one process on one thread, in a new order each round. They are
timed by the processor's clock, which other processes disturb less than the wall's. Cases that are slow for each task
are timed on the first tasks only, and their seconds are scaled to all of them.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from common import PLAIN_PROCESS, Rows, Timings, interleave, machine, show, stage, write_result

os.environ |= PLAIN_PROCESS

import cvxpy
import numpy as np
import torch
from scipy.optimize import minimize

from smatter.solve.frank_wolfe import uniform
from smatter.solve.loop import run
from smatter.solve.newton import Newton
from smatter.solve.pools import LinearPool, LogPool

NAME = "pool_speed"
N_SOURCES, N_ROWS, N_CLASSES, N_FEATURES, SCALE = 6, 100, 10, 64, 10.0
NOISE = (0.9, 1.0, 1.0, 1.5, 3.0, 5.0)
"""Of the sources' features: three are good, one is fair, two know next to nothing."""

TOLERANCE = 1e-8
SLSQP = {"ftol": 1e-8, "maxiter": 200}
"""The loosest power of ten at which SLSQP's objective is as good as ours; looser ones would save it a tenth."""

OURS, ALONE, SCIPY = "smatter", "smatter, a task at a time", "scipy, SLSQP"
COMPILED, EACH = "cvxpy, compiled once", "cvxpy, a problem per task"
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """A way to the weights of the first `n_tasks` tasks, (n_tasks, n_sources)."""

    n_tasks: int
    solve: Callable[[], np.ndarray]


def make_tasks(n_tasks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled cosines of rows with the classes' prototypes, as each source sees them; sources are shuffled by task."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    classes = normal(n_tasks, 1, N_CLASSES, N_FEATURES)
    labels = torch.randint(N_CLASSES, (n_tasks, N_ROWS), generator=generator)
    order = torch.rand(n_tasks, N_SOURCES, generator=generator).argsort(dim=1)
    noise = torch.tensor(NOISE, dtype=torch.float64)[order][:, :, None, None]
    prototypes = classes + 0.7 * noise * normal(n_tasks, N_SOURCES, N_CLASSES, N_FEATURES)
    rows = classes[torch.arange(n_tasks)[:, None], 0, labels][:, None]
    rows = rows + 2 * noise * normal(n_tasks, N_SOURCES, N_ROWS, N_FEATURES)
    unit = torch.nn.functional.normalize
    return SCALE * unit(rows, dim=-1) @ unit(prototypes, dim=-1).mT, labels


def log_objective(scores: np.ndarray, labels: np.ndarray) -> Objective:
    """Loss and gradient of a log-pool of one task, for SLSQP."""
    differences = scores - scores[:, np.arange(N_ROWS), labels][:, :, None]
    columns = np.ascontiguousarray(differences.transpose(2, 1, 0)).reshape(-1, N_SOURCES)

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = (columns @ weights).reshape(N_CLASSES, N_ROWS)
        top = mixed.max(axis=0)
        powers = np.exp(mixed - top)
        totals = powers.sum(axis=0)
        powers /= N_ROWS * totals
        return float((top + np.log(totals)).sum() / N_ROWS), powers.ravel() @ columns

    return objective


def linear_objective(scores: np.ndarray, labels: np.ndarray) -> Objective:
    """Loss and gradient of a linear pool of one task, for SLSQP."""
    columns = np.ascontiguousarray(chances(scores, labels).T)

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = columns @ weights
        return float(-np.log(mixed).sum() / N_ROWS), (-1 / N_ROWS / mixed) @ columns

    return objective


def chances(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Probability of the true class, (n_sources, n_rows)."""
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    return powers[:, np.arange(N_ROWS), labels] / powers.sum(axis=2)


def cvxpy_loss(pool: type, data: object, weights: cvxpy.Variable) -> cvxpy.Expression:
    """The loss on `cvxpy_data`, or on a parameter of its shape."""
    if pool is LogPool:
        return cvxpy.sum(cvxpy.log_sum_exp(cvxpy.reshape(data @ weights, (N_ROWS, N_CLASSES), "C"), axis=1)) / N_ROWS
    return -cvxpy.sum(cvxpy.log(data @ weights)) / N_ROWS


def cvxpy_data(pool: type, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What weights are multiplied by, (n_rows * n_classes or n_rows, n_sources)."""
    if pool is LogPool:
        return (scores - scores[:, np.arange(N_ROWS), labels][:, :, None]).reshape(N_SOURCES, -1).T
    return chances(scores, labels).T


def make_cases(pool: type, scores: torch.Tensor, labels: torch.Tensor, n_few: int) -> dict[str, Case]:
    """Ways to the least loss over the simplex."""
    arrays, true, make = scores.numpy(), labels.numpy(), log_objective if pool is LogPool else linear_objective

    def ours(some: slice = slice(None)) -> np.ndarray:
        problem = pool.of(scores[some], labels[some])
        return run(Newton(TOLERANCE), problem, uniform(len(scores[some]), 1, N_SOURCES, scores)).point[:, 0].numpy()

    start, bounds = np.full(N_SOURCES, 1 / N_SOURCES), [(0.0, 1.0)] * N_SOURCES
    sums = {"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": lambda _: np.ones(N_SOURCES)}

    def slsqp(task: int) -> np.ndarray:
        objective = make(arrays[task], true[task])
        return minimize(objective, start, jac=True, method="SLSQP", bounds=bounds, constraints=sums, options=SLSQP).x

    def cvxpy_each(task: int) -> np.ndarray:
        weights = cvxpy.Variable(N_SOURCES, nonneg=True)
        objective = cvxpy_loss(pool, cvxpy_data(pool, arrays[task], true[task]), weights)
        cvxpy.Problem(cvxpy.Minimize(objective), [cvxpy.sum(weights) == 1]).solve(solver=cvxpy.CLARABEL)
        return weights.value

    data = cvxpy.Parameter(cvxpy_data(pool, arrays[0], true[0]).shape)
    shared = cvxpy.Variable(N_SOURCES, nonneg=True)
    compiled = cvxpy.Problem(cvxpy.Minimize(cvxpy_loss(pool, data, shared)), [cvxpy.sum(shared) == 1])

    def cvxpy_compiled(task: int) -> np.ndarray:
        data.value = cvxpy_data(pool, arrays[task], true[task])
        compiled.solve(solver=cvxpy.CLARABEL)
        return shared.value

    def loop(n_tasks: int, solve: Callable[[int], np.ndarray]) -> Case:
        return Case(n_tasks, lambda: np.stack([solve(task) for task in range(n_tasks)]))

    return {
        OURS: Case(len(scores), ours),
        ALONE: loop(n_few, lambda task: ours(slice(task, task + 1))[0]),
        SCIPY: loop(len(scores), slsqp),
        COMPILED: loop(n_few, cvxpy_compiled),
        EACH: loop(n_few, cvxpy_each),
    }


def worst_difference(pool: type, scores: torch.Tensor, labels: torch.Tensor, cases: dict[str, Case]) -> float:
    """How far any way's objective is from ours, at most, relative to losses above one."""
    problem = pool.of(scores, labels)
    found = {name: torch.tensor(case.solve()).clamp(min=0)[:, None] for name, case in cases.items()}
    best = problem.value(found[OURS])
    values = [problem.select(slice(len(weights))).value(weights / weights.sum(-1, True)) for weights in found.values()]
    apart = [((value - best[: len(value)]).abs() / best[: len(value)].clamp(min=1)).max() for value in values]
    return float(torch.stack(apart).max())


def scaled(timings: Timings, cases: dict[str, Case], n_tasks: int) -> Timings:
    """Seconds for all tasks of cases that were timed on a few."""
    seconds = {
        name: [each * n_tasks / cases[name].n_tasks for each in timings.seconds[name]] for name in timings.seconds
    }
    return Timings(seconds, timings.faults)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks, about half a minute")
    quick = parser.parse_args().quick
    begin = time.perf_counter()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "Solution may be inaccurate")  # clarabel's word; the difference is in the result
    n_tasks, n_few, rounds = (100, 10, 2) if quick else (1000, 50, 5)
    scores, labels = make_tasks(n_tasks)
    tables: dict[str, Rows] = {}
    figures: dict[str, float] = {}
    for pool, name in ((LogPool, "log"), (LinearPool, "linear")):
        cases = make_cases(pool, scores, labels, n_few)
        figures[f"{name}_pool_worst_difference"] = worst_difference(pool, scores, labels, cases)
        with stage(f"{name} pool", (rounds + 1) * len(cases)) as tick:
            solves = {case: each.solve for case, each in cases.items()}
            timed = interleave(solves, rounds, tick=tick, clock=time.process_time)
        timings = scaled(timed, cases, n_tasks)
        figures[f"{name}_pool_times_faster_than_slsqp"] = timings.ratio(SCIPY, OURS).median
        figures[f"{name}_pool_times_faster_than_cvxpy"] = timings.ratio(timings.fastest("cvxpy"), OURS).median
        figures[f"{name}_pool_a_task_at_a_time_over_slsqp"] = timings.ratio(ALONE, SCIPY).median
        rows = timings.rows(SCIPY, tasks=n_tasks, sources=N_SOURCES, rows=N_ROWS, classes=N_CLASSES)
        tables[f"{name} pool"] = [row | {"tasks_timed": cases[row["case"]].n_tasks} for row in rows]
    for figure, pick in (("times_faster_than_slsqp", min), ("times_faster_than_cvxpy", min), ("worst_difference", max)):
        figures[f"pool_{figure}"] = pick(figures[f"log_pool_{figure}"], figures[f"linear_pool_{figure}"])
    for title, rows in tables.items():
        show(title, rows)
    print(figures)
    packages = ("torch", "numpy", "scipy", "cvxpy", "clarabel")
    write_result(NAME, figures, tables, machine(packages, 1), time.perf_counter() - begin, quick)


if __name__ == "__main__":
    main()
