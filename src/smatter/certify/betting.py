"""Bets against a mean (Waudby-Smith and Ramdas, 2024): who wins much against a claim has refuted it.

A gambler bets on each value, before seeing it, that it will be below the claimed mean m:

    wealth_t(m) = product over i <= t of  1 + bet_i (m - x_i),      0 <= bet_i <= MOST / (top_i - m)

If the mean is m or more, given the past, wealth is not expected to grow, and it ever reaches 1 / delta with probability
at most delta (Ville). So the smallest m at which it does is an upper bound of the mean. Wealth rises with m, which
makes that m easy to find. Bets may depend on the past in any way; good ones are about 1 / standard deviation.
"""

from __future__ import annotations

import numpy as np

from smatter.certify.bound import Floats

MOST = 0.75
"""No bet loses more than this part of the wealth."""

STEPS = 50
"""Halvings of the interval in which the bound lies: the last is narrower than 1e-15."""


def running_spread(values: Floats, scale: float = 1.0) -> tuple[Floats, Floats]:
    """Mean and variance of the values before each one, as they were known then; (n,) each.

    Before any value the mean is half of the scale and the variance a quarter of its square, the largest possible.
    """
    seen = np.arange(1, len(values) + 1) + 1
    means = (scale / 2 + np.cumsum(values)) / seen
    variances = (scale**2 / 4 + np.cumsum((values - means) ** 2)) / seen
    return np.concatenate([[scale / 2], means[:-1]]), np.concatenate([[scale**2 / 4], variances[:-1]])


def bets_for_all(values: Floats, delta: float, scale: float = 1.0) -> Floats:
    """Bets that are best after all n values; (n,)."""
    _, variances = running_spread(values, scale)
    return np.asarray(np.sqrt(2 * np.log(1 / delta) / (len(values) * variances)))


def bets_at_any_time(values: Floats, delta: float, scale: float = 1.0) -> Floats:
    """Bets that are good after any number of values, for streams without an end; (n,)."""
    _, variances = running_spread(values, scale)
    count = np.arange(1, len(values) + 1)
    return np.asarray(np.sqrt(2 * np.log(1 / delta) / (variances * count * np.log1p(count))))


def log_wealth(values: Floats, bets: Floats, tops: Floats, mean: float) -> Floats:
    """Logarithm of the wealth after each value, of a gambler who bets against `mean`; (n,).

    Args:
        values: at most `tops`, (n,).
        bets: before they are limited, (n,).
        tops: the largest possible value at each time, none below `mean`; (n,).
        mean: the claim.
    """
    limited = np.minimum(bets, MOST / np.maximum(tops - mean, 1e-300))
    return np.cumsum(np.log1p(limited * (mean - values)))


def refuted_from(values: Floats, bets: Floats, tops: Floats, delta: float, largest: float = 1.0) -> float:
    """The smallest mean that the bets refute at some time, or `largest`: an upper bound of the mean."""
    enough = np.log(1 / delta)
    low, high = min(float(values.min()), largest), largest
    for _ in range(STEPS):
        middle = (low + high) / 2
        refuted = log_wealth(values, bets, tops, middle).max() >= enough
        low, high = (low, middle) if refuted else (middle, high)
    return high
