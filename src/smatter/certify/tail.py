"""Upper bounds of CVaR, the mean over the worst share of tasks; independent tasks, losses in [0, 1].

    CVaR_rho(X) = min over t of  t + E[(X - t)_+] / rho

The excess (X - t)_+ / rho has a variance of at most 1 / rho, so about 1 / (rho gap^2) tasks are needed, and not the
1 / (rho gap)^2 of the Bayes paper's theorem 6.2. `cvar_bound_betting` is the sharpest.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from smatter.certify.betting import bets_for_all, refuted_from
from smatter.certify.bound import Floats, UpperBound, check_delta, check_fraction, tasks_needed, unit_losses
from smatter.certify.mean import kl_upper
from smatter.certify.pac_bayes import relative_entropy
from smatter.errors import InvalidCertificate

CvarBound = Callable[[ArrayLike, float, float], UpperBound]


def dkw_radius(n: int, delta: float) -> float:
    """How far a distribution function may lie below the measured one: sqrt(log(1/delta) / 2n), delta up to 1/2."""
    if delta > 0.5:
        raise InvalidCertificate(f"delta {delta} is above 1/2, for which the DKW inequality is not stated: lower it")
    return float(np.sqrt(np.log(1 / delta) / (2 * n)))


def brown_radius(n: int, share: float, delta: float) -> float:
    """Brown (2007): sqrt(5 log(3/delta) / (rho n))."""
    return float(np.sqrt(5 * np.log(3 / delta) / (share * n)))


def cvar_bound_dkw(losses: ArrayLike, share: float, delta: float) -> UpperBound:
    """Thomas and Learned-Miller (2019), theorem 3: CVaR of the largest distribution inside the DKW band.

    A mass of sqrt(log(1/delta) / 2n) is taken from the smallest losses and put at 1.
    """
    found = _checked(losses, share, delta)
    ordered = np.append(np.sort(found), 1.0)
    below = np.arange(1, len(found) + 1) / len(found) - dkw_radius(len(found), delta)
    value = 1 - float(np.diff(ordered) @ np.maximum(below - (1 - share), 0)) / share
    return _cvar_bound("DKW band", found, share, value, delta)


def cvar_bound_brown(losses: ArrayLike, share: float, delta: float) -> UpperBound:
    """Brown (2007): the measured CVaR + sqrt(5 log(3/delta) / (rho n)); the rate is right, the constant large."""
    found = _checked(losses, share, delta)
    value = _worst_mean(found, share) + brown_radius(len(found), share, delta)
    return _cvar_bound("Brown", found, share, value, delta)


def cvar_bound_betting(losses: ArrayLike, share: float, delta: float) -> UpperBound:
    """Betting against t_i + (x_i - t_i)_+ / rho, where t_i is the (1 - rho)-quantile of the losses before task i.

    Whatever t_i is, the mean of that value is at least CVaR, so who refutes m for its mean refutes m for CVaR. The
    threshold follows the losses and costs nothing, where a grid of thresholds would pay for its size.
    """
    found = _checked(losses, share, delta)
    thresholds = _running_quantiles(found, 1 - share)
    values = thresholds + np.maximum(found - thresholds, 0) / share
    tops = thresholds + (1 - thresholds) / share
    bets = bets_for_all(values, delta, scale=1 / share)
    return _cvar_bound("betting", found, share, refuted_from(values, bets, tops, delta), delta)


CVAR_BOUNDS: dict[str, CvarBound] = {
    "dkw": cvar_bound_dkw,
    "brown": cvar_bound_brown,
    "betting": cvar_bound_betting,
}


def cvar_bound_pac_bayes(
    losses: ArrayLike, posterior: ArrayLike, prior: ArrayLike, share: float, delta: float, n_thresholds: int = 20
) -> UpperBound:
    """CVaR of the q-average loss, where q over a finite set of routers was chosen on the same tasks.

    As Mhammedi and others (2020) do, CVaR is reduced to a mean, for which PAC-Bayes holds. Here the reduction is a grid
    of G thresholds t = 0, 1/G, ..., and each mean is bounded in the kl form:

        CVaR <= min over t of  t + (1 - t) / rho  kl_upper(E_q mean((x - t)_+ / (1 - t)),
                                                           (KL(q || p) + log(2 sqrt(n) G / delta)) / n)

    Args:
        losses: of each router on each task, (k, n).
        posterior: q over routers, (k,).
        prior: p over routers, fixed before the tasks were drawn, (k,).
        share: rho.
        delta: how often the bound may fail.
        n_thresholds: G.
    """
    weights, rows = np.asarray(posterior, np.float64), np.atleast_2d(np.asarray(losses, np.float64))
    if weights.shape != rows.shape[:1] or abs(weights.sum() - 1) > 1e-6 or (weights < 0).any():
        raise InvalidCertificate(
            f"a posterior of shape {weights.shape} over {len(rows)} routers: give weights of sum 1"
        )
    found = np.stack([_checked(row, share, delta) for row in rows])
    n = found.shape[1]
    divergence = float(relative_entropy(weights, prior))
    allowed = (divergence + np.log(2 * np.sqrt(n) * n_thresholds / delta)) / n
    value = 1.0
    for t in np.arange(n_thresholds) / n_thresholds:
        excess = float(weights @ (np.maximum(found - t, 0) / (1 - t)).mean(axis=1))
        value = min(value, t + (1 - t) / share * kl_upper(min(excess, 1.0), allowed))
    return _cvar_bound("PAC-Bayes", np.clip(weights @ found, 0, 1), share, value, delta)


def tasks_for_cvar(gap: float, share: float, delta: float, method: str, quantile: float = 0.0) -> int:
    """How many tasks a bound of CVaR needs to be at most `gap` above the measured one.

    Args:
        gap: wished for.
        share: rho.
        delta: how often the bound may fail.
        method: "dkw" or "brown"; betting has no formula, and needs fewer than either in all that was tried.
        quantile: the (1 - rho)-quantile of the losses, used by dkw: mass moves from there to 1.
    """
    check_delta(delta)
    check_fraction(share, "the share of the tail")
    radii: dict[str, Callable[[int], float]] = {
        "dkw": lambda n: min(dkw_radius(n, delta) / share, 1.0) * (1 - quantile),
        "brown": lambda n: brown_radius(n, share, delta),
    }
    if method not in radii:
        raise InvalidCertificate(f"{method!r} has no formula for a number of tasks: ask for one of {', '.join(radii)}")
    return tasks_needed(radii[method], gap)


def _checked(losses: ArrayLike, share: float, delta: float) -> Floats:
    check_delta(delta)
    check_fraction(share, "the share of the tail")
    return unit_losses(losses)


def _cvar_bound(method: str, losses: Floats, share: float, value: float, delta: float) -> UpperBound:
    estimate = _worst_mean(losses, share)
    return UpperBound(f"CVaR {share:g} of the loss", method, min(1.0, value), estimate, delta=delta, n=len(losses))


def _worst_mean(losses: Floats, share: float) -> float:
    """The measured CVaR: of n losses the rho n largest count, the last of them in part."""
    n_worst = share * len(losses)
    weights = np.clip(n_worst - np.arange(len(losses)), 0, 1)
    return float(weights @ np.sort(losses)[::-1] / n_worst)


def _running_quantiles(losses: Floats, level: float) -> Floats:
    """A quantile of the losses before each one; a half before the first."""
    before: list[float] = []
    found = np.empty(len(losses))
    for index, loss in enumerate(losses.tolist()):
        found[index] = before[min(int(level * index), index - 1)] if before else 0.5
        insort(before, loss)
    return found
