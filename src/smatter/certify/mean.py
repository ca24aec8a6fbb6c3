"""Upper bounds of the mean loss over tasks, from independent tasks that nothing was fitted on; losses in [0, 1].

`mean_bound_betting` is the sharpest in most cases; `mean_bound_kl` is close to it for errors that are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from smatter.certify.betting import bets_for_all, refuted_from
from smatter.certify.bound import Floats, UpperBound, check_delta, tasks_needed, unit_losses
from smatter.errors import InvalidCertificate

MeanBound = Callable[[ArrayLike, float], UpperBound]


def binary_kl(first: float, second: float) -> float:
    """Relative entropy between two coins: a log(a/b) + (1 - a) log((1 - a)/(1 - b))."""
    return float(rel_entr(first, second) + rel_entr(1 - first, 1 - second))


def kl_upper(estimate: float, allowed: float) -> float:
    """The largest m with kl(estimate || m) <= allowed.

    >>> round(kl_upper(0.0, 0.5), 4)  # 1 - exp(-allowed)
    0.3935
    """
    from scipy.optimize import brentq  # a quarter of a second, which adapting does not need

    highest = 1 - 1e-15
    if estimate >= highest or binary_kl(estimate, highest) <= allowed:
        return 1.0
    return float(brentq(lambda m: binary_kl(estimate, m) - allowed, estimate, highest, xtol=1e-15))


def hoeffding_radius(n: int, delta: float) -> float:
    """Half of what Hoeffding's inequality leaves open: sqrt(log(1/delta) / 2n)."""
    return float(np.sqrt(np.log(1 / delta) / (2 * n)))


def bernstein_radius(variance: float, n: int, delta: float) -> float:
    """Maurer and Pontil (2009), theorem 4: sqrt(2 V log(2/delta) / n) + 7 log(2/delta) / 3(n - 1)."""
    if n < 2:
        return float("inf")
    return float(np.sqrt(2 * variance * np.log(2 / delta) / n) + 7 * np.log(2 / delta) / (3 * (n - 1)))


def mean_bound_hoeffding(losses: ArrayLike, delta: float) -> UpperBound:
    """Hoeffding (1963): mean + sqrt(log(1/delta) / 2n); it does not see how the losses vary."""
    check_delta(delta)
    found = unit_losses(losses)
    return mean_bound("Hoeffding", found, float(found.mean()) + hoeffding_radius(len(found), delta), delta)


def mean_bound_kl(losses: ArrayLike, delta: float) -> UpperBound:
    """Chernoff's bound inverted: the largest m with n kl(mean || m) <= log(1/delta); sharp for errors."""
    check_delta(delta)
    found = unit_losses(losses)
    return mean_bound("kl", found, kl_upper(float(found.mean()), np.log(1 / delta) / len(found)), delta)


def mean_bound_bernstein(losses: ArrayLike, delta: float) -> UpperBound:
    """Empirical Bernstein (Maurer and Pontil, 2009): narrow where the losses vary little."""
    check_delta(delta)
    found = unit_losses(losses, least=2)
    radius = bernstein_radius(float(found.var(ddof=1)), len(found), delta)
    return mean_bound("empirical Bernstein", found, float(found.mean()) + radius, delta)


def mean_bound_betting(losses: ArrayLike, delta: float) -> UpperBound:
    """Betting (Waudby-Smith and Ramdas, 2024), the side of their hedged capital that bounds from above.

    It depends on the order of the losses, which must not have been chosen by looking at them.
    """
    check_delta(delta)
    found = unit_losses(losses)
    bets, tops = bets_for_all(found, delta), np.ones(len(found))
    return mean_bound("betting", found, refuted_from(found, bets, tops, delta), delta)


def mean_bound(method: str, losses: Floats, value: float, delta: float) -> UpperBound:
    """The record of a bound of a mean in [0, 1]."""
    estimate = float(losses.mean())
    return UpperBound("mean loss", method, min(1.0, value), estimate, delta=delta, n=len(losses))


MEAN_BOUNDS: dict[str, MeanBound] = {
    "hoeffding": mean_bound_hoeffding,
    "kl": mean_bound_kl,
    "bernstein": mean_bound_bernstein,
    "betting": mean_bound_betting,
}


def mean_bounds_of_choices(
    losses: ArrayLike, delta: float, bound: MeanBound = mean_bound_betting
) -> tuple[UpperBound, ...]:
    """Bounds of k candidates that hold all at once, so that one may be chosen by looking at the same tasks.

    Each is computed at delta / k: the choice costs log k beside log(1/delta).

    Args:
        losses: of each candidate on the same tasks, (k, n).
        delta: how often any of them may fail.
        bound: of one candidate.
    """
    check_delta(delta)
    rows = np.asarray(losses, np.float64)
    if rows.ndim != 2 or not len(rows):
        raise InvalidCertificate(f"losses of shape {rows.shape}: give a row of losses for each candidate")
    found = [bound(row, delta / len(rows)) for row in rows]
    return tuple(replace(each, method=f"{each.method}, one of {len(rows)}", delta=delta) for each in found)


def tasks_for_mean(gap: float, delta: float, method: str, *, mean: float = 0.5, variance: float | None = None) -> int:
    """How many tasks a bound needs to be at most `gap` above the measured mean.

    Args:
        gap: wished for.
        delta: how often the bound may fail.
        method: "hoeffding", "kl" or "bernstein"; betting has no formula, and needs about as many as the better of the
            last two.
        mean: that will be measured; used by kl.
        variance: of the losses, used by empirical Bernstein; unless given the largest that the mean allows.
    """
    check_delta(delta)
    spread = mean * (1 - mean) if variance is None else variance
    radii: dict[str, Callable[[int], float]] = {
        "hoeffding": lambda n: hoeffding_radius(n, delta),
        "kl": lambda n: kl_upper(mean, np.log(1 / delta) / n) - mean,
        "bernstein": lambda n: bernstein_radius(spread, n, delta),
    }
    if method not in radii:
        raise InvalidCertificate(f"{method!r} has no formula for a number of tasks: ask for one of {', '.join(radii)}")
    return tasks_needed(radii[method], gap)
