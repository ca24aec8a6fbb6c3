"""Beyond the rates: mismatch (equation 13), Frank-Wolfe's steps (theorem 3), and the failure modes of section 5."""

from dataclasses import dataclass
from math import log

import numpy as np
import torch
from common import Rows, stage
from theory_rates import Outcome, Size, even
from theory_tasks import (
    Mean,
    draw_examples,
    draw_loss,
    estimator_risk,
    excess_risk,
    population_loss,
    random_sources,
    sparse_residuals,
)
from torch import Tensor

from smatter.linear.alternate import solve_pair
from smatter.linear.loss import LinearLoss, SquaredStatistics
from smatter.linear.mixing import mixture_problem
from smatter.linear.task import LinearTask, PairSolution
from smatter.solve.frank_wolfe import FrankWolfe
from smatter.solve.loop import State, run
from smatter.solve.pattern import Pattern
from smatter.solve.problem import Evaluation, Problem
from smatter.solve.quadratic import QuadraticMixture


def mismatch(size: Size) -> Outcome:
    """Risk when the truth is delta away from hull plus sparse residual, in a dense direction."""
    size, d, n_sources, k, amplitude = size.half, 64, 4, 4, 0.5
    deltas, counts = size.some((0.0, 0.25, 0.5, 1.0)), size.some((128, 512, 2048, 8192))
    risks: dict[tuple[float, int], list[Tensor]] = {(delta, n): [] for delta in deltas for n in counts}
    apart: dict[float, list[Tensor]] = {delta: [] for delta in deltas}
    with stage("mismatch", len(risks) * size.n_seeds) as tick:
        for generator in size.generators(11):
            sources = random_sources(n_sources, d, 2.0, generator)
            inside = even(n_sources) @ sources[0] + sparse_residuals(size.n_tasks, d, k, amplitude, generator)
            off = torch.randn(size.n_tasks, d, generator=generator, dtype=torch.float64)
            for delta in deltas:
                theta = inside + delta * off / off.norm(dim=1, keepdim=True)
                # What even infinitely many examples leave: the nearest member of the class.
                apart[delta].append(solve_pair(LinearTask(population_loss(theta), sources, Pattern(k))).value)
                for n in counts:
                    risks[delta, n].append(estimator_risk(theta, n, sources, Pattern(k), generator))
                    tick()
    rows: Rows = [
        {"delta": delta, "n": n, **Mean.over(parts).row(), "approximation": Mean.over(apart[delta]).value,
         "delta_term": delta**2 / 2}
        for (delta, n), parts in risks.items()
    ]  # fmt: skip
    last = [row for row in rows if row["n"] == counts[-1] and row["delta"]]
    estimation = next(row["risk"] for row in rows if row["n"] == counts[-1] and not row["delta"])
    figures = {
        "plateau_over_approximation": max((row["risk"] - estimation) / row["approximation"] for row in last),
        "approximation_over_delta_term": max(row["approximation"] / row["delta_term"] for row in last),
    }
    return figures, {"mismatch": rows}


def trace(algorithm: FrankWolfe, problem: Problem, start: Tensor, n_steps: int) -> list[State]:
    """Every state of a fixed number of steps; `run` would end tasks that stop improving."""
    states = [algorithm.start(problem, start)]
    for index in range(n_steps):
        states.append(algorithm.step(problem, states[-1], index))
    return states


@dataclass(frozen=True)
class Plain:
    """A quadratic problem that does not say it is a mixture, so that no step is a corrective one."""

    problem: QuadraticMixture
    is_convex = True
    is_quadratic = True

    def evaluate(self, point: Tensor) -> Evaluation:
        return self.problem.evaluate(point)

    def value(self, point: Tensor) -> Tensor:
        return self.problem.value(point)

    def hessian_product(self, direction: Tensor) -> Tensor:
        return self.problem.hessian_product(direction)

    def select(self, tasks: Tensor) -> "Plain":
        return Plain(self.problem.select(tasks))


CORRECTIVE = "pairwise, corrective"
VARIANTS = {
    "vanilla, open loop": FrankWolfe(0.0, "vanilla", "open loop"),
    "vanilla, line search": FrankWolfe(0.0, "vanilla"),
    "away": FrankWolfe(0.0, "away"),
    "pairwise": FrankWolfe(0.0, "pairwise"),
    CORRECTIVE: FrankWolfe(0.0, "pairwise"),
}


def frank_wolfe(size: Size) -> Outcome:
    """Distance from the minimum and active sources after t steps from a corner; 30 sources, truth on a face of 6."""
    n_sources, d, n, n_steps = 30, 60, 200, 1000
    generator = torch.Generator().manual_seed(12)
    n_tasks = 10 if size.quick else 40
    sources = random_sources(n_sources, d, 3.0, generator)
    chosen = torch.rand(n_tasks, n_sources, generator=generator).argsort(dim=1) < 6
    loss = draw_loss(chosen.double() / 6 @ sources[0], n, generator)
    problem = mixture_problem(loss, sources, torch.zeros(n_tasks, d, dtype=torch.float64))
    assert isinstance(problem, QuadraticMixture)
    corner = torch.zeros(n_tasks, 1, n_sources, dtype=torch.float64)
    corner[:, :, 0] = 1
    best = run(FrankWolfe(1e-15), problem, corner, 20_000).value
    # L diam^2 in the norm of the loss: the longest edge of the simplex.
    quadratic = loss.hessian_among(corner.flatten(1), torch.empty(n_tasks, 0, dtype=torch.int64), sources)
    diagonal = quadratic.diagonal(dim1=1, dim2=2)
    edge = (diagonal[:, :, None] + diagonal[:, None] - 2 * quadratic).amax(dim=(1, 2))
    shown = sorted({round(10 ** (share / 8)) for share in range(25)} | {0})
    rows: Rows = [{"step": step, "bound": float((2 * edge / (step + 2)).median())} for step in shown]
    figures: dict[str, float] = {}
    with stage("Frank-Wolfe", len(VARIANTS)) as tick:
        for name, algorithm in VARIANTS.items():
            states = trace(algorithm, problem if name == CORRECTIVE else Plain(problem), corner, n_steps)
            above = torch.stack([state.value for state in states]) - best
            active = torch.stack([(state.point > 0).sum(dim=2).flatten() for state in states])
            steps = torch.arange(n_steps + 1)
            for row in rows:
                row[name] = max(float(above[row["step"]].median()), 0.0)
                row[f"{name}: active"] = float(active[row["step"]].double().mean())
            slug = name.replace(", ", "_").replace(" ", "_")
            if "vanilla" in name:
                shares = above[1:] / (2 * edge / (steps[1:, None] + 2))
                figures[f"{slug}_share_of_bound"] = float(shares.max())
                figures[f"{slug}_slope"] = slope_in_steps(above)
                figures[f"{slug}_active_beyond_t_plus_1"] = int((active - (steps[:, None] + 1)).max())
            else:
                small = (above <= 1e-10).double().argmax(dim=0)
                figures[f"{slug}_steps_to_1e-10"] = float(small.double().median())
            if name in ("away", "pairwise"):
                figures |= {f"{slug}_{key}": value for key, value in linear_rate(above).items()}
            tick()
    return figures, {"frank_wolfe": rows}


def slope_in_steps(above: Tensor) -> float:
    """Log-log slope of the median distance from the minimum over steps 10 to 1000."""
    steps = np.arange(10, len(above))
    heights = above[10:].median(dim=1).values.clamp(min=1e-300).log().numpy()
    return float(np.polyfit(np.log(steps), heights, 1)[0])


def linear_rate(above: Tensor) -> dict[str, float]:
    """The factor by which a step shrinks the median distance, and R^2 of its logarithm on t, from 0.01 to 1e-12."""
    heights = above.median(dim=1).values.numpy()
    steps = np.flatnonzero((heights < 1e-2) & (heights > 1e-12))
    fitted = np.polyfit(steps, np.log(heights[steps]), 1)
    errors = np.log(heights[steps]) - np.polyval(fitted, steps)
    return {"factor": float(np.exp(fitted[0])), "r2": float(1 - errors.var() / np.log(heights[steps]).var())}


def predicted_weight_error(loss: LinearLoss, sources: Tensor, theta: Tensor) -> Tensor:
    """Standard error of the least certain weight, from the support set alone, (n_tasks,).

    The support's Gram matrix of the sources, within the plane of weights that sum to one, is inverted; sigma^2 is
    estimated from the errors.
    """
    n, n_sources = loss.features.shape[1], sources.shape[1]
    plane = torch.eye(n_sources, dtype=theta.dtype) - 1 / n_sources
    predictions = loss.features @ (plane @ sources[0]).mT
    noise = 2 * loss.value(theta) * n / (n - n_sources)
    spread = torch.linalg.pinv(predictions.mT @ predictions, hermitian=True).diagonal(dim1=1, dim2=2).amax(dim=1)
    return (noise * spread).sqrt()


def collinear(size: Size) -> Outcome:
    """Failure mode (i): two of four sources are epsilon apart; supports of one task are drawn again and again."""
    n, d, n_tasks = 100, 32, size.n_tasks * size.n_seeds
    rows: Rows = []
    truth = torch.tensor([0.3, 0.3, 0.2, 0.2], dtype=torch.float64)
    gaps = (2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
    with stage("collinear sources", len(gaps)) as tick:
        for gap in gaps:
            generator = torch.Generator().manual_seed(13)
            sources = random_sources(4, d, 2.0, generator)
            sources[:, 1] = sources[:, 0] + gap * sources[:, 1] / sources[:, 1].norm()
            theta = (truth @ sources[0]).expand(n_tasks, -1)
            loss = draw_examples(theta, n, generator)
            found = solve_pair(LinearTask(loss, sources))
            weights = found.weights[:, 0]
            rows.append(
                {
                    "gap": gap, "weight_sd": float(weights[:, 0].std()),
                    "sum_of_two_sd": float((weights[:, 0] + weights[:, 1]).std()),
                    "prediction_sd": float((found.theta - found.theta.mean(dim=0)).square().sum(dim=1).mean().sqrt()),
                    **Mean(excess_risk(found.theta, theta).numpy()).row(),
                    "predicted_weight_error": float(predicted_weight_error(loss, sources, found.theta).median()),
                }
            )  # fmt: skip
            tick()
    figures = {
        "collinear_weight_sd_growth": rows[-1]["weight_sd"] / rows[0]["weight_sd"],
        "collinear_risk_growth": rows[-1]["risk"] / rows[0]["risk"],
    }
    return figures, {"collinear": rows}


def promise_ratio(task: LinearTask, found: PairSolution, n: int, k: int) -> Tensor:
    """What the k best coordinates outside a full residual promise, over what noise alone would, (n_tasks,).

    A coordinate promises g^2 / 2H; the k luckiest of d useless ones promise about sigma^2 k log(d / k) / n together.
    A sparse truth gives a ratio below about 1.4 whatever n is; a dense one gives a ratio that grows with n.
    """
    d, n_sources = found.theta.shape[1], found.weights.shape[2]
    promises = 0.5 * task.loss.evaluate(found.theta).gradient.square() / task.loss.hessian_diagonal(found.theta)
    outside = torch.where(found.residual != 0, 0.0, promises).topk(k, dim=1).values.sum(dim=1)
    noise = 2 * found.value * n / (n - n_sources + 1 - k)
    return outside * n / (noise * k * log(d / k))


def dense_truth(size: Size) -> Outcome:
    """Failure mode (ii): the residual's norm is one; it is either sparse or spread over all coordinates."""
    size, d, n_sources, k = size.half, 64, 4, 4
    counts = size.some((128, 512, 2048, 8192))
    rows: Rows = []
    with stage("dense truth", len(counts)) as tick:
        for n in counts:
            row: dict[str, float] = {"n": n}
            for kind in ("sparse", "dense"):
                risks, ratios = [], []
                for generator in size.generators(14, n):
                    sources = random_sources(n_sources, d, 2.0, generator)
                    kept = k if kind == "sparse" else d
                    residual = sparse_residuals(size.n_tasks, d, kept, kept**-0.5, generator)
                    theta = even(n_sources) @ sources[0] + residual
                    loss = draw_loss(theta, n, generator)
                    task = LinearTask(loss, sources, Pattern(k))
                    found = solve_pair(task)
                    risks.append(excess_risk(found.theta, theta))
                    ratios.append(promise_ratio(task, found, n, k))
                ratio = torch.cat(ratios)
                row |= Mean.over(risks).row(kind) | Mean.over(ratios).row(f"{kind}_promise_ratio")
                row[f"{kind}_promise_ratio_above_1.4"] = float((ratio > 1.4).double().mean())
            rows.append(row)
            tick()
    figures = {
        "dense_plateau": rows[-1]["dense"],
        "dense_last_over_first": rows[-1]["dense"] / rows[0]["dense"],
        "sparse_last_over_first": rows[-1]["sparse"] / rows[0]["sparse"],
        "dense_promise_ratio": rows[-1]["dense_promise_ratio"],
        "sparse_promise_ratio": max(row["sparse_promise_ratio"] for row in rows),
    }
    return figures, {"dense_truth": rows}


def held_out_loss(loss: LinearLoss, sources: Tensor, k: int, n_folds: int = 4) -> Tensor:
    """Mean squared error / 2 on each fold of the support after fitting the others, (n_tasks,)."""
    n = loss.features.shape[1]
    total = torch.zeros(len(loss.features), dtype=torch.float64)
    for fold in range(n_folds):
        out = torch.arange(n) % n_folds == fold
        kept = LinearLoss(loss.features[:, ~out], loss.targets[..., ~out])
        found = solve_pair(LinearTask(SquaredStatistics.of(kept), sources, Pattern(k) if k else None))
        total += LinearLoss(loss.features[:, out], loss.targets[..., out]).value(found.theta) / n_folds
    return total


def tiny_support(size: Size) -> Outcome:
    """Failure mode (iii): 16 examples, d = 32, a true residual of two coordinates; k grows."""
    size, n, d, n_sources = size.half, 16, 32, 3
    kept = (0, 2, 4) if size.quick else (0, 1, 2, 4, 8)
    rows: Rows = []
    with stage("tiny supports", len(kept)) as tick:
        for k in kept:
            support, risks, outside = [], [], []
            for generator in size.generators(15):  # the same tasks for every k
                sources = random_sources(n_sources, d, 2.0, generator)
                theta = even(n_sources) @ sources[0] + sparse_residuals(size.n_tasks, d, 2, 0.5, generator)
                loss = draw_examples(theta, n, generator)
                found = solve_pair(LinearTask(SquaredStatistics.of(loss), sources, Pattern(k) if k else None))
                support.append(found.value)
                risks.append(excess_risk(found.theta, theta))
                outside.append(held_out_loss(loss, sources, k))
            effective = n_sources - 1 + (k * log(d / k) if k else 0)
            rows.append(
                {"k": k, **Mean.over(support).row("support_loss"), **Mean.over(risks).row(),
                 **Mean.over(outside).row("held_out_loss"), "effective_dimension_by_n": effective / n}
            )  # fmt: skip
            tick()
    figures = {
        "tiny_support_loss_ratio": rows[-1]["support_loss"] / rows[0]["support_loss"],
        "tiny_risk_ratio": rows[-1]["risk"] / rows[0]["risk"],
    }
    return figures, {"tiny_support": rows}
