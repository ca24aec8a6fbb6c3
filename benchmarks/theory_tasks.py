"""Linear regression tasks whose excess risk is known in closed form, and means with intervals.

Features are X ~ N(0, I) and y = X theta* + sigma noise, so the excess population risk of any estimate is
|estimate - theta*|^2 / 2. Noise has sigma = 1 throughout.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from smatter.linear.alternate import solve_pair
from smatter.linear.loss import LinearLoss, SquaredStatistics
from smatter.linear.support import solve_on_support
from smatter.linear.task import LinearTask
from smatter.solve.pattern import Pattern

CHUNK = 20_000_000
"""The most feature values drawn at a time."""


def random_sources(n_sources: int, d: int, norm: float, generator: torch.Generator) -> Tensor:
    """Random directions of about the same norm, (1, n_sources, d)."""
    return norm * torch.randn(1, n_sources, d, generator=generator, dtype=torch.float64) / d**0.5


def spanning_sources(n_sources: int, d: int, norm: float, generator: torch.Generator) -> Tensor:
    """Random directions in R^d, in coordinates of their own span, (1, n_sources, n_sources).

    Without a residual no other coordinate matters, so drawing them would only cost time.
    """
    gram = random_sources(n_sources, d, norm, generator)[0]
    factor: Tensor = torch.linalg.cholesky(gram @ gram.mT)
    return factor.unsqueeze(0)


def sparse_residuals(n_tasks: int, d: int, k: int, amplitude: float, generator: torch.Generator) -> Tensor:
    """k coordinates of either sign at random places, (n_tasks, d)."""
    places = torch.rand(n_tasks, d, generator=generator).argsort(dim=1)[:, :k]
    signs = 2.0 * torch.randint(0, 2, (n_tasks, k), generator=generator) - 1
    return torch.zeros(n_tasks, d, dtype=torch.float64).scatter(1, places, amplitude * signs.double())


def block_residuals(n_tasks: int, n_blocks: int, width: int, k: int, norm: float, generator: torch.Generator) -> Tensor:
    """k blocks of a given norm in random directions, (n_tasks, n_blocks * width)."""
    chosen = torch.rand(n_tasks, n_blocks, generator=generator).argsort(dim=1) < k
    values = torch.randn(n_tasks, n_blocks, width, generator=generator, dtype=torch.float64)
    return (norm * values / values.norm(dim=2, keepdim=True) * chosen.unsqueeze(2)).flatten(1)


def threshold(d: int, k: int, n: int) -> float:
    """The amplitude at which a coordinate is as large as the noise's largest: sqrt(2 log(d / k) / n)."""
    return float(np.sqrt(2 * np.log(d / k) / n))


def draw_examples(theta: Tensor, n: int, generator: torch.Generator) -> LinearLoss:
    """n examples of each task, (n_tasks, d)."""
    features = torch.randn(len(theta), n, theta.shape[1], generator=generator, dtype=torch.float64)
    noise = torch.randn(len(theta), n, generator=generator, dtype=torch.float64)
    return LinearLoss(features, ((features @ theta.unsqueeze(-1)).squeeze(-1) + noise).unsqueeze(1))


def draw_loss(theta: Tensor, n: int, generator: torch.Generator) -> LinearLoss | SquaredStatistics:
    """The squared loss of n examples of each task, as X'X and X'y where that is smaller."""
    if n <= theta.shape[1]:
        return draw_examples(theta, n, generator)
    size = max(1, CHUNK // (n * theta.shape[1]))
    parts = [SquaredStatistics.of(draw_examples(some, n, generator)) for some in theta.split(size)]
    return SquaredStatistics(
        *(torch.cat([getattr(part, name) for part in parts]) for name in ("hessian", "linear", "constant"))
    )


def population_loss(theta: Tensor) -> SquaredStatistics:
    """|t - theta|^2 / 2: what infinitely many examples would say, less the noise."""
    n_tasks, d = theta.shape
    identity = torch.eye(d, dtype=theta.dtype).expand(n_tasks, -1, -1)
    return SquaredStatistics(identity, theta, 0.5 * theta.square().sum(dim=1))


def excess_risk(estimate: Tensor, theta: Tensor) -> Tensor:
    """|estimate - theta|^2 / 2, (n_tasks,)."""
    return 0.5 * (estimate - theta).square().sum(dim=1)


def estimator_risk(
    theta: Tensor,
    n: int,
    sources: Tensor,
    pattern: Pattern | None,
    generator: torch.Generator,
) -> Tensor:
    """Excess risk of the constrained estimator on fresh examples of each task, (n_tasks,)."""
    solution = solve_pair(LinearTask(draw_loss(theta, n, generator), sources, pattern))
    return excess_risk(solution.theta, theta)


@dataclass(frozen=True)
class Mean:
    """A mean over tasks with a 95 % normal interval; the tasks are kept for resampling."""

    sample: np.ndarray

    @classmethod
    def over(cls, parts: Sequence[Tensor]) -> "Mean":
        return cls(torch.cat(list(parts)).numpy())

    @property
    def value(self) -> float:
        return float(self.sample.mean())

    @property
    def half_width(self) -> float:
        return float(1.96 * self.sample.std(ddof=1) / self.sample.size**0.5)

    def row(self, name: str = "risk") -> dict[str, float]:
        return {
            name: self.value,
            f"{name}_low": self.value - self.half_width,
            f"{name}_high": self.value + self.half_width,
        }


@dataclass(frozen=True)
class Line:
    """A straight line through points, its R^2, and 95 % bootstrap intervals over tasks."""

    slope: float
    intercept: float
    r2: float
    slope_low: float
    slope_high: float
    r2_low: float


def fit_line(x: Sequence[float], means: Sequence[Mean], logarithmic: bool = False, n_resamples: int = 1000) -> Line:
    """Least squares of means, or of their logarithms on log x; every point counts the same."""
    generator = np.random.default_rng(0)
    across = np.log(np.asarray(x)) if logarithmic else np.asarray(x)
    draws = [mean.sample[generator.integers(mean.sample.size, size=(n_resamples, mean.sample.size))] for mean in means]
    heights = np.stack([np.append(draw.mean(axis=1), mean.value) for draw, mean in zip(draws, means, strict=True)])
    heights = np.log(heights) if logarithmic else heights
    slopes, intercepts = np.polyfit(across, heights, 1)
    errors = heights - across[:, None] * slopes - intercepts
    r2 = 1 - errors.var(axis=0) / heights.var(axis=0)
    low, high = np.quantile(slopes[:-1], [0.025, 0.975])
    return Line(
        float(slopes[-1]), float(intercepts[-1]), float(r2[-1]), float(low), float(high), float(np.quantile(r2, 0.025))
    )


def enumerate_pairs(task: LinearTask, k: int) -> tuple[Tensor, Tensor]:
    """The least objective over every support of k coordinates, (n_tasks,), and its theta: one convex problem each."""
    n_tasks, d, n_sources = task.n_tasks, task.loss.n_parameters, task.sources.shape[1]
    places = torch.tensor(list(combinations(range(d), k)))
    supports = torch.zeros(len(places), d, dtype=torch.bool).scatter(1, places, True)
    weights = torch.full((len(supports), 1, n_sources), 1 / n_sources, dtype=task.sources.dtype)
    residual = torch.zeros(len(supports), d, dtype=task.sources.dtype)
    values, thetas = [], []
    for index in range(n_tasks):
        alone = replace(task, loss=task.loss.select(torch.full((len(supports),), index)))
        found = solve_on_support(alone, supports, weights, residual)
        value, best = alone.value(*found).min(dim=0)
        values.append(value)
        thetas.append(alone.mixed(found[0])[best] + found[1][best])
    return torch.stack(values), torch.stack(thetas)
