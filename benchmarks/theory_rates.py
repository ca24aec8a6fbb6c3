"""The rates of the multi-source paper, measured: equations 11, 12 and 14, and where they are not what happens."""

from dataclasses import dataclass, replace
from math import log, sqrt

import torch
from common import Rows, stage
from theory_bounds import best_spike_bayes, mixture_fano, mixture_van_trees, sparse_fano
from theory_tasks import (
    Line,
    Mean,
    block_residuals,
    draw_loss,
    enumerate_pairs,
    estimator_risk,
    excess_risk,
    fit_line,
    random_sources,
    spanning_sources,
    sparse_residuals,
    threshold,
)
from torch import Tensor

from smatter.linear.alternate import solve_pair
from smatter.linear.task import LinearTask
from smatter.solve.pattern import Pattern

Outcome = tuple[dict[str, float], dict[str, Rows]]


@dataclass(frozen=True)
class Size:
    """How much to measure: seeds draw sources anew, tasks are drawn within a seed."""

    n_seeds: int = 2
    n_tasks: int = 100
    quick: bool = False

    @property
    def half(self) -> "Size":
        """As many seeds with half the tasks, where a task costs more or varies less."""
        return replace(self, n_tasks=max(10, self.n_tasks // 2))

    def some(self, values: tuple) -> tuple:
        """All values, or every other one of a quick run."""
        return values[::2] if self.quick else values

    def generators(self, *key: int) -> list[torch.Generator]:
        """One generator a seed; the key keeps experiments apart."""
        number = 0
        for part in key:
            number = 1009 * number + part
        return [torch.Generator().manual_seed(100_003 * seed + number) for seed in range(self.n_seeds)]


def even(n_sources: int) -> Tensor:
    return torch.full((n_sources,), 1 / n_sources, dtype=torch.float64)


def pair_risk(
    size: Size, key: int, n: int, d: int, n_sources: int, k: int, amplitude: float, norm: float = 2.0
) -> Mean:
    """Risk of mixture and residual; the mixture's truth is the middle of the hull."""
    parts = []
    for generator in size.generators(key, n, d, n_sources, k):
        sources = random_sources(n_sources, d, norm, generator)
        theta = even(n_sources) @ sources[0] + sparse_residuals(size.n_tasks, d, k, amplitude, generator)
        parts.append(estimator_risk(theta, n, sources, Pattern(k) if k else None, generator))
    return Mean.over(parts)


def in_examples(size: Size) -> Outcome:
    """Risk against n at d = 64, R = 4, k = 4."""
    d, n_sources, k = 64, 4, 4
    counts = size.some((128, 256, 512, 1024, 2048, 4096))
    rows: Rows = []
    means: list[Mean] = []
    with stage("risk against n", len(counts)) as tick:
        for n in counts:
            hard = pair_risk(size, 1, n, d, n_sources, k, threshold(d, k, n))
            fixed = pair_risk(size.half, 2, n, d, n_sources, k, threshold(d, k, 512))
            plain = pair_risk(size, 3, n, d, n_sources, 0, 0.0)
            means.append(hard)
            rows.append({"n": n, **hard.row(), **fixed.row("fixed_amplitude"), **plain.row("no_residual")})
            tick()
    line = fit_line(counts, means, logarithmic=True)
    figures = {"slope_in_n": line.slope, "slope_in_n_low": line.slope_low, "slope_in_n_high": line.slope_high}
    return figures, {"in_examples": rows}


def in_sources(size: Size) -> Outcome:
    """Risk against R without residual: truth in the middle of the hull, at a corner; R up to four times sqrt(n)."""
    n, norm = 2500, 1.0
    inside, beyond = (2, 3, 4, 6, 8, 10, 12), (16, 25, 50) if size.quick else (16, 25, 50, 100, 200)
    rows: Rows = []
    means: list[Mean] = []
    with stage("risk against R", len(inside + beyond)) as tick:
        for n_sources in (*inside, *beyond):
            parts: dict[str, list[Tensor]] = {"risk": [], "at_corner": [], "bound": []}
            few = n_sources in inside  # and cheap
            n_tasks = 4 * size.n_tasks if few else size.n_tasks
            for generator in size.generators(4, n_sources):
                sources = spanning_sources(n_sources, 1024, norm, generator)
                theta = (even(n_sources) @ sources[0]).expand(n_tasks, -1)
                found = solve_pair(LinearTask(draw_loss(theta, n, generator), sources))
                parts["risk"].append(excess_risk(found.theta, theta))
                parts["bound"].append((found.weights <= 1e-6).any(dim=2).double().flatten())
                corner = sources[0, 0].expand(n_tasks, -1)
                parts["at_corner"].append(estimator_risk(corner, n, sources, None, generator))
            middle = Mean.over(parts["risk"])
            if few:
                means.append(middle)
            rows.append(
                {
                    "sources": n_sources, "x": (n_sources - 1) / n, "in_regime": few, **middle.row(),
                    "rate": (n_sources - 1) / (2 * n), **Mean.over(parts["at_corner"]).row("at_corner"),
                    "share_with_a_zero_weight": Mean.over(parts["bound"]).value,
                    "fano": mixture_fano(n_sources, n, norm), "van_trees": mixture_van_trees(n_sources, n, norm),
                }
            )  # fmt: skip
            tick()
    line = fit_line([(r - 1) / n for r in inside], means)
    figures = {
        "r2_in_sources": line.r2,
        "r2_in_sources_low": line.r2_low,
        "slope_in_sources": line.slope,
        "sources_above_van_trees": min(row["risk"] / row["van_trees"] for row in rows if row["in_regime"]),
        "risk_share_of_rate_at_most_sources": rows[-1]["risk"] / rows[-1]["rate"],
    }
    return figures, {"in_sources": rows}


def in_sparsity(size: Size) -> Outcome:
    """Risk against k log(d / k), amplitudes at the detection threshold; and at other amplitudes."""
    n = 400
    cells = [(d, k) for d in size.some((64, 128, 256, 512)) for k in size.some((1, 2, 4, 8))]
    shares = size.some((0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0))
    rows: Rows = []
    means: list[Mean] = []
    clear: list[Mean] = []
    generator = torch.Generator().manual_seed(5)
    with stage("risk against k log(d/k)", len(cells) + len(shares)) as tick:
        for d, k in cells:
            means.append(pair_risk(size, 5, n, d, 1, k, threshold(d, k, n)))
            clear.append(pair_risk(size.half, 6, n, d, 1, k, 4 * threshold(d, k, n)))
            bayes = best_spike_bayes(d, k, n, 50 if size.quick else 400, generator)
            rows.append(
                {
                    "d": d, "k": k, "x": k * log(d / k) / n, **means[-1].row(), **clear[-1].row("large_amplitude"),
                    "fano": sparse_fano(d, k, n), "bayes": bayes,
                }
            )  # fmt: skip
            tick()
        d, k = 256, 4
        sweep: Rows = []
        for share in shares:
            mean = pair_risk(size.half, 7, n, d, 1, k, share * threshold(d, k, n))
            silent = k * (share * threshold(d, k, n)) ** 2 / 2
            sweep.append({"amplitude": share, **mean.row(), "no_residual": silent, "known_support": k / (2 * n)})
            tick()
    x = [row["x"] for row in rows]
    line, by_k, other = fit_line(x, means), fit_line([row["k"] / n for row in rows], means), fit_line(x, clear)
    widest = max(k for _, k in cells)
    at_k = [index for index, (_, k) in enumerate(cells) if k == widest]
    alone = fit_line([x[index] for index in at_k], [means[index] for index in at_k])
    figures = {
        "r2_in_sparsity": line.r2,
        "r2_in_sparsity_low": line.r2_low,
        "slope_in_sparsity": line.slope,
        "r2_in_k_without_log": by_k.r2,
        "r2_in_log_at_largest_k": alone.r2,
        "slope_in_log_at_largest_k": alone.slope,
        "slope_in_sparsity_large_amplitude": other.slope,
        "large_amplitude_over_k_by_2n": sum(r["large_amplitude"] * 2 * n / r["k"] for r in rows) / len(rows),
        "sparsity_above_bayes": min(row["risk"] / row["bayes"] for row in rows),
    }
    return figures, {"in_sparsity": rows, "in_amplitude": sweep}


def exactness(size: Size) -> Outcome:
    """How often the solver finds the best of all supports, at the threshold, and what missing it costs in risk."""
    rows: Rows = []
    cases = ((1, 64, 2, 400), (4, 32, 2, 400), (1, 20, 3, 60), (4, 14, 3, 30), (3, 12, 2, 40), (1, 24, 3, 20))
    with stage("against enumeration", len(cases)) as tick:
        for n_sources, d, k, n in cases:
            generator = torch.Generator().manual_seed(n + d)
            sources = random_sources(n_sources, d, 2.0, generator)
            residuals = sparse_residuals(5 if size.quick else 30, d, k, threshold(d, k, n), generator)
            theta = even(n_sources) @ sources[0] + residuals
            task = LinearTask(draw_loss(theta, n, generator), sources, Pattern(k))
            found, (least, best) = solve_pair(task), enumerate_pairs(task, k)
            worse = found.value - least
            rows.append(
                {
                    "sources": n_sources, "d": d, "k": k, "n": n, "tasks": len(theta),
                    "share_exact": float((worse <= 1e-6).double().mean()), "largest_excess_loss": float(worse.max()),
                    "risk": float(excess_risk(found.theta, theta).mean()),
                    "risk_of_enumeration": float(excess_risk(best, theta).mean()),
                }
            )  # fmt: skip
            tick()
    total = sum(row["tasks"] for row in rows)
    exact = sum(row["share_exact"] * row["tasks"] for row in rows) / total
    return {"share_exact": exact, "tasks_enumerated": total}, {"exactness": rows}


def additivity(size: Size) -> Outcome:
    """risk(R, k) beside risk(R, 0) + risk(1, k)."""
    n, d = 1000, 128
    n_sources, kept = (2, 4, 8), (2, 4, 8)
    cells = [(r, k) for r in size.some(n_sources) for k in size.some(kept)]
    alone: dict[tuple[int, int], Mean] = {}
    rows: Rows = []
    with stage("additivity", len(cells)) as tick:
        for r, k in cells:
            for cell in ((r, 0), (1, k)):
                if cell not in alone:
                    alone[cell] = pair_risk(size, 8, n, d, *cell, threshold(d, max(cell[1], 1), n))
            both = pair_risk(size, 8, n, d, r, k, threshold(d, k, n))
            total = alone[r, 0].value + alone[1, k].value
            error = sqrt(alone[r, 0].half_width ** 2 + alone[1, k].half_width ** 2)
            width = (both.half_width / both.value + error / total) * both.value / total
            ratio = both.value / total
            rows.append(
                {
                    "sources": r, "k": k, **both.row(), "mixture_alone": alone[r, 0].value,
                    "residual_alone": alone[1, k].value, "sum": total,
                    "ratio": ratio, "ratio_low": ratio - width, "ratio_high": ratio + width,
                }
            )  # fmt: skip
            tick()
    ratios = [row["ratio"] for row in rows]
    return {"additivity_least": min(ratios), "additivity_most": max(ratios)}, {"additivity": rows}


def in_blocks(size: Size) -> Outcome:
    """Risk against k log(L / k) + k d_block, blocks at their detection threshold (equation 12)."""
    n = 600
    shapes = size.some(((8, 2), (16, 2), (32, 2), (64, 2), (8, 4), (32, 4), (8, 8), (16, 8), (8, 16)))
    cells = [(count, width, k) for count, width in shapes for k in (1, 2)]
    rows: Rows = []
    means: list[Mean] = []
    with stage("risk against blocks", len(cells)) as tick:
        for count, width, k in cells:
            # Where the largest of L noise blocks ends: chi-square with `width` degrees of freedom.
            norm = sqrt((2 * sqrt(width * log(count / k)) + 2 * log(count / k)) / n)
            blocks = torch.arange(count).repeat_interleave(width)
            zero = torch.zeros(1, 1, count * width, dtype=torch.float64)
            parts = []
            for generator in size.half.generators(9, count, width, k):
                theta = block_residuals(size.half.n_tasks, count, width, k, norm, generator)
                parts.append(estimator_risk(theta, n, zero, Pattern(k, blocks), generator))
            means.append(Mean.over(parts))
            choice, inner = k * log(count / k), k * width
            rows.append(
                {"blocks": count, "width": width, "k": k, "choice": choice, "inner": inner,
                 "x": (choice + inner) / n, **means[-1].row()}
            )  # fmt: skip
            tick()
    line = fit_line([row["x"] for row in rows], means)
    terms = torch.tensor([[row["choice"] / n, row["inner"] / n] for row in rows], dtype=torch.float64)
    heights = torch.tensor([row["risk"] for row in rows], dtype=torch.float64)
    solved = torch.linalg.lstsq(terms, heights.unsqueeze(1)).solution.squeeze(1)
    two = 1 - (heights - terms @ solved).square().sum() / (heights - heights.mean()).square().sum()
    figures = {
        "r2_in_blocks": line.r2,
        "r2_in_blocks_low": line.r2_low,
        "slope_in_blocks": line.slope,
        "r2_in_blocks_two_terms": float(two),
        "block_choice_constant": float(solved[0]),
        "block_inner_constant": float(solved[1]),
    }
    return figures, {"in_blocks": rows}


def in_weight_blocks(size: Size) -> Outcome:
    """Risk against L (R - 1) for weights per block; the truth has the same weights in every block."""
    n, d, n_sources = 4000, 128, 4
    counts = (1, 2, 4, 8, 16)
    parts: dict[int, list[Tensor]] = {count: [] for count in counts}
    with stage("risk against blocks of weights", size.n_seeds) as tick:
        for generator in size.generators(10):
            sources = random_sources(n_sources, d, 8.0, generator)
            theta = (even(n_sources) @ sources[0]).expand(size.n_tasks, -1)
            loss = draw_loss(theta, n, generator)
            for count in counts:
                blocks = torch.arange(count).repeat_interleave(d // count)
                solution = solve_pair(LinearTask(loss, sources, weight_blocks=blocks))
                parts[count].append(excess_risk(solution.theta, theta))
            tick()
    means = [Mean.over(parts[count]) for count in counts]
    x = [count * (n_sources - 1) / n for count in counts]
    rows: Rows = [
        {"blocks": count, "x": at, **mean.row(), "rate": at / 2}
        for count, at, mean in zip(counts, x, means, strict=True)
    ]
    line: Line = fit_line(x, means)
    figures = {"r2_in_weight_blocks": line.r2, "slope_in_weight_blocks": line.slope}
    return figures, {"in_weight_blocks": rows}
