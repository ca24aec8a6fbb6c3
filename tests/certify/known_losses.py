"""Losses whose mean and CVaR are known."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import integrate, stats

Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class Shape:
    name: str
    draw: Draw
    mean: float
    cvar: Callable[[float], float]


def beta_shape(a: float, b: float) -> Shape:
    law = stats.beta(a, b)

    def cvar(share: float) -> float:
        return integrate.quad(law.isf, 0, share)[0] / share

    return Shape(f"beta {a:g} {b:g}", lambda g, n: g.beta(a, b, n), a / (a + b), cvar)


def coin_shape(p: float) -> Shape:
    return Shape(f"coin {p:g}", lambda g, n: (g.random(n) < p).astype(float), p, lambda share: min(1.0, p / share))


def rare_shape(p: float, bad: float, good: float) -> Shape:
    def cvar(share: float) -> float:
        return bad if p >= share else (p * bad + (share - p) * good) / share

    return Shape(
        f"rare {p:g}", lambda g, n: np.where(g.random(n) < p, bad, good), p * bad + (1 - p) * good, cvar
    )  # fmt: skip


SHAPES = (beta_shape(2, 5), beta_shape(0.5, 2), coin_shape(0.1), coin_shape(0.5), rare_shape(0.05, 0.9, 0.1))


def failures(bound_of: Callable[[np.ndarray], float], truth: float, shape: Shape, n: int, n_draws: int) -> float:
    """How often a bound of n losses is below the truth."""
    generator = np.random.default_rng(0)
    return float(np.mean([bound_of(shape.draw(generator, n)) < truth - 1e-12 for _ in range(n_draws)]))


def most_failures(delta: float, n_draws: int) -> float:
    """A rate that a bound which fails with probability delta exceeds once in a thousand tests."""
    return float(stats.binom.ppf(0.999, n_draws, delta)) / n_draws
