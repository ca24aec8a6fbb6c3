"""A thousand linear tasks at once, against a loop over cvxpy (weights) and over skglm (residuals).

    python benchmarks/solver_speed.py [--quick]

Every case gets the same features, targets and sources, and reaches the same objective; the largest difference is in the
result. All run in one process on one thread, in a new order each round.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable

from common import PLAIN_PROCESS, Rows, interleave, machine, show, stage, write_result

os.environ |= PLAIN_PROCESS

import clarabel
import cvxpy
import numpy as np
import skglm
import sklearn.linear_model
import torch
from scipy import sparse

from smatter.linear.loss import LinearLoss, SquaredStatistics
from smatter.linear.mixing import mixture_problem
from smatter.linear.residual import ResidualProblem
from smatter.linear.working_set import solve_lasso
from smatter.solve.frank_wolfe import FrankWolfe, uniform
from smatter.solve.loop import run
from smatter.solve.pattern import Pattern
from smatter.solve.thresholding import HardThresholding

NAME = "solver_speed"
N_SOURCES, N_FEATURES, N_EXAMPLES, N_NONZERO = 16, 512, 32, 8
SHARE = 0.4
"""Strength of the lasso over the least that keeps all at zero: leaves about N_NONZERO coordinates."""

TOLERANCE = 1e-7
OURS = "smatter"
Solve = Callable[[], np.ndarray]


def make_tasks(n_tasks: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, targets and sources of tasks that are a sparse mixture plus a sparse residual plus noise."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    features = normal(n_tasks, N_EXAMPLES, N_FEATURES)
    sources = normal(N_SOURCES, N_FEATURES) / N_FEATURES**0.5
    weights = normal(n_tasks, N_SOURCES).square().pow(2)
    weights = weights / weights.sum(dim=1, keepdim=True)
    places = torch.rand(n_tasks, N_FEATURES, generator=generator).topk(N_NONZERO, dim=1).indices
    residual = torch.zeros(n_tasks, N_FEATURES, dtype=torch.float64).scatter(1, places, normal(n_tasks, N_NONZERO))
    theta = weights @ sources + residual
    targets = (features @ theta.unsqueeze(-1)).squeeze(-1) + 0.3 * normal(n_tasks, N_EXAMPLES)
    return features, targets, sources


def mixture_cases(features: torch.Tensor, targets: torch.Tensor, sources: torch.Tensor) -> dict[str, Solve]:
    """Ways to the least 1/2n |X T'w - y|^2 over the simplex, for every task; each returns the weights."""
    n_tasks = len(features)
    arrays, labels, rows = features.numpy(), targets.numpy(), sources.numpy()

    def ours() -> np.ndarray:
        loss, zero = LinearLoss(features, targets[:, None]), torch.zeros(n_tasks, N_FEATURES, dtype=torch.float64)
        start = uniform(n_tasks, 1, N_SOURCES, zero)
        return run(FrankWolfe(TOLERANCE), mixture_problem(loss, sources[None], zero), start).point[:, 0].numpy()

    def cvxpy_problem_each() -> np.ndarray:
        found = []
        for task in range(n_tasks):
            weights = cvxpy.Variable(N_SOURCES, nonneg=True)
            errors = (arrays[task] @ rows.T) @ weights - labels[task]
            objective = cvxpy.Minimize(cvxpy.sum_squares(errors) / (2 * N_EXAMPLES))
            cvxpy.Problem(objective, [cvxpy.sum(weights) == 1]).solve(solver=cvxpy.CLARABEL)
            found.append(weights.value)
        return np.stack(found)

    predictions, wanted = cvxpy.Parameter((N_EXAMPLES, N_SOURCES)), cvxpy.Parameter(N_EXAMPLES)
    shared = cvxpy.Variable(N_SOURCES, nonneg=True)
    objective = cvxpy.sum_squares(predictions @ shared - wanted) / (2 * N_EXAMPLES)
    compiled = cvxpy.Problem(cvxpy.Minimize(objective), [cvxpy.sum(shared) == 1])

    def cvxpy_compiled_once() -> np.ndarray:
        found = []
        for task in range(n_tasks):
            predictions.value, wanted.value = arrays[task] @ rows.T, labels[task]
            compiled.solve(solver=cvxpy.CLARABEL)
            found.append(shared.value)
        return np.stack(found)

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    limits = sparse.csc_matrix(np.vstack([np.ones((1, N_SOURCES)), -np.eye(N_SOURCES)]))
    bounds = np.concatenate([[1.0], np.zeros(N_SOURCES)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(N_SOURCES)]

    def clarabel_alone() -> np.ndarray:
        found = []
        for task in range(n_tasks):
            predicted = arrays[task] @ rows.T
            quadratic = sparse.csc_matrix(np.triu(predicted.T @ predicted / N_EXAMPLES))
            linear = -predicted.T @ labels[task] / N_EXAMPLES
            solver = clarabel.DefaultSolver(quadratic, linear, limits, bounds, cones, settings)
            found.append(np.asarray(solver.solve().x))
        return np.stack(found)

    return {
        OURS: ours,
        "cvxpy, compiled once": cvxpy_compiled_once,
        "cvxpy, a problem per task": cvxpy_problem_each,
        "clarabel without cvxpy": clarabel_alone,
    }


def residual_cases(features: torch.Tensor, targets: torch.Tensor, strength: torch.Tensor) -> dict[str, Solve]:
    """Ways to the least 1/2n |X D - y|^2 + lambda |D|_1 for every task; each returns the residuals."""
    arrays, labels = [np.asfortranarray(task) for task in features.numpy()], targets.numpy()
    problem = ResidualProblem(LinearLoss(features, targets[:, None]), torch.zeros_like(features[:, 0]))

    def ours() -> np.ndarray:
        return solve_lasso(problem, strength, TOLERANCE).point.numpy()

    def loop(make: Callable[[float], object]) -> Solve:
        def solve() -> np.ndarray:
            models = (make(float(alpha)) for alpha in strength)
            return np.stack([model.fit(x, y).coef_ for model, x, y in zip(models, arrays, labels, strict=True)])

        return solve

    return {
        OURS: ours,
        "skglm": loop(lambda alpha: skglm.Lasso(alpha, fit_intercept=False, tol=1e-6)),
        "scikit-learn": loop(lambda alpha: sklearn.linear_model.Lasso(alpha, fit_intercept=False, tol=1e-6)),
    }


def spread(objective: Callable[[torch.Tensor], torch.Tensor], cases: dict[str, Solve]) -> float:
    """How far apart the objectives of the ways are, at most, relative to losses above one."""
    values = torch.stack([objective(torch.tensor(solve())) for solve in cases.values()])
    return float(((values.amax(dim=0) - values.amin(dim=0)) / values.amin(dim=0).clamp(min=1)).max())


def statistics_rows(quick: bool) -> Rows:
    """Hard thresholding on examples and on X'X, X'y, as n grows: when does forgetting the examples pay?"""
    rows: Rows = []
    n_tasks, n_features, n_steps = 20, 128, 50
    for n_examples in (32, 128, 512) if quick else (32, 128, 512, 2048, 8192):
        generator = torch.Generator().manual_seed(n_examples)
        features = torch.randn(n_tasks, n_examples, n_features, generator=generator, dtype=torch.float64)
        targets = torch.randn(n_tasks, 1, n_examples, generator=generator, dtype=torch.float64)
        loss, zero = LinearLoss(features, targets), torch.zeros(n_tasks, n_features, dtype=torch.float64)
        algorithm = HardThresholding(Pattern(N_NONZERO).project, 0.0)

        def on_examples(loss=loss, zero=zero, algorithm=algorithm) -> object:
            return run(algorithm, ResidualProblem(loss, zero), zero, n_steps)

        def on_statistics(loss=loss, zero=zero, algorithm=algorithm) -> object:
            return run(algorithm, ResidualProblem(SquaredStatistics.of(loss), zero), zero, n_steps)

        timings = interleave({"examples": on_examples, "statistics": on_statistics}, 2 if quick else 5)
        ratio = timings.ratio("examples", "statistics")
        rows.append(
            {
                "n_examples": n_examples, "n_features": n_features, "examples_seconds": timings.median("examples"),
                "statistics_seconds": timings.median("statistics"), "times_faster": ratio.median,
                "times_faster_low": ratio.low, "times_faster_high": ratio.high,
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the tasks, about a minute")
    quick = parser.parse_args().quick
    begin = time.perf_counter()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="sklearn")
    n_tasks, rounds = (100, 2) if quick else (1000, 5)
    features, targets, sources = make_tasks(n_tasks)

    mixtures = mixture_cases(features, targets, sources)
    mixture = mixture_problem(LinearLoss(features, targets[:, None]), sources[None], torch.zeros_like(features[:, 0]))
    apart = spread(lambda weights: mixture.value(weights.clamp(min=0)[:, None]), mixtures)
    with stage("weights", (rounds + 1) * len(mixtures)) as tick:
        weight_times = interleave(mixtures, rounds, tick=tick)

    largest = (targets.unsqueeze(1) @ features).squeeze(1).abs().amax(dim=1) / N_EXAMPLES
    strength = SHARE * largest
    residuals = residual_cases(features, targets, strength)
    problem = ResidualProblem(LinearLoss(features, targets[:, None]), torch.zeros_like(features[:, 0]))
    residual_apart = spread(lambda point: problem.value(point) + strength * point.abs().sum(dim=1), residuals)
    n_active = float((torch.tensor(residuals[OURS]()) != 0).sum(dim=1).double().mean())
    with stage("residuals", (rounds + 1) * len(residuals)) as tick:
        residual_times = interleave(residuals, rounds, tick=tick)

    labels = {"tasks": n_tasks, "sources": N_SOURCES, "features": N_FEATURES, "examples": N_EXAMPLES}
    tables: dict[str, Rows] = {
        "weights": weight_times.rows("cvxpy, compiled once", **labels),
        "residuals": residual_times.rows("skglm", **labels),
        "statistics": statistics_rows(quick),
    }
    figures = {
        "mixture_speedup_vs_cvxpy": weight_times.ratio(weight_times.fastest("cvxpy"), OURS).median,
        "mixture_speedup_vs_cvxpy_problem_per_task": weight_times.ratio("cvxpy, a problem per task", OURS).median,
        "mixture_speedup_vs_clarabel_alone": weight_times.ratio("clarabel without cvxpy", OURS).median,
        "mixture_objective_difference": apart,
        "residual_speedup_vs_skglm": residual_times.ratio("skglm", OURS).median,
        "residual_speedup_vs_scikit_learn": residual_times.ratio("scikit-learn", OURS).median,
        "residual_objective_difference": residual_apart,
        "residual_mean_active": n_active,
    }
    for title, rows in tables.items():
        show(title, rows)
    print(figures)
    packages = ("torch", "numpy", "cvxpy", "clarabel", "skglm", "scikit-learn", "numba")
    write_result(NAME, figures, tables, machine(packages, 1), time.perf_counter() - begin, quick)


if __name__ == "__main__":
    main()
