"""Risk on the tasks that a rule accepts, with the share of tasks that it accepts.

A task is accepted where its uncertainty score is at most a threshold. Accepted tasks of an independent sample are an
independent sample of accepted tasks, so any bound of a mean serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from smatter.certify.bound import Floats, UpperBound, check_delta, unit_losses
from smatter.certify.mean import MeanBound, mean_bound, mean_bound_betting
from smatter.errors import InvalidCertificate


@dataclass(frozen=True)
class CertifiedSelection:
    """What is known of a threshold.

    Args:
        threshold: tasks with a score up to this are accepted.
        risk: mean loss on accepted tasks.
        coverage: share of the calibration tasks that it accepts.
        coverage_low: the share of all tasks is lower with probability at most delta.
    """

    threshold: float
    risk: UpperBound
    coverage: float
    coverage_low: float


def binomial_upper(n_errors: int, n: int, delta: float) -> float:
    """Clopper and Pearson (1934): the largest error rate at which so few errors are not rarer than delta."""
    return 1.0 if n_errors >= n else float(betaincinv(n_errors + 1, n - n_errors, 1 - delta))


def binomial_lower(n_errors: int, n: int, delta: float) -> float:
    """The same from below."""
    return 0.0 if n_errors <= 0 else float(betaincinv(n_errors, n - n_errors + 1, delta))


def mean_bound_binomial(losses: ArrayLike, delta: float) -> UpperBound:
    """The binomial tail (Clopper and Pearson, 1934), for losses that are 0 or 1: the exact bound of an error rate."""
    check_delta(delta)
    found = unit_losses(losses)
    if not np.isin(found, (0.0, 1.0)).all():
        raise InvalidCertificate("the binomial tail is for losses that are 0 or 1: bound others by betting")
    return mean_bound("binomial tail", found, binomial_upper(int(found.sum()), len(found), delta), delta)


def selective_bound(
    losses: ArrayLike, scores: ArrayLike, threshold: float, delta: float, bound: MeanBound = mean_bound_betting
) -> CertifiedSelection:
    """Risk and coverage at a threshold that was fixed beforehand; each of the two holds with probability 1 - delta.

    Args:
        losses: of each task, (n,).
        scores: uncertainty of each task, (n,).
        threshold: accepts scores up to it.
        delta: how often the risk may be higher, and how often the coverage lower.
        bound: of a mean; `mean_bound_binomial` for errors that are 0 or 1.
    """
    check_delta(delta)
    found, accepted = _accepted(losses, scores, threshold)
    n_accepted = int(accepted.sum())
    if not n_accepted:
        raise InvalidCertificate(f"no task has a score of at most {threshold:g}: raise the threshold")
    risk = replace(bound(found[accepted], delta), about="mean loss of accepted tasks")
    return CertifiedSelection(threshold, risk, n_accepted / len(found), binomial_lower(n_accepted, len(found), delta))


def learn_then_test(
    losses: ArrayLike,
    scores: ArrayLike,
    thresholds: Sequence[float],
    wish: float,
    delta: float,
    *,
    bound: MeanBound = mean_bound_betting,
    in_sequence: bool = False,
) -> CertifiedSelection | None:
    """The threshold that accepts most, among those whose risk is proven to be at most `wish`; None if there is none.

    Learn then test (Angelopoulos and others, 2021). The risk of the chosen threshold is above the wish with probability
    at most delta, although it was chosen on these tasks. Thresholds must have been fixed without them.

    Args:
        losses: of each task, (n,).
        scores: uncertainty of each task, (n,).
        thresholds: to choose from.
        wish: largest allowed mean loss of accepted tasks.
        delta: how often it may be exceeded.
        bound: of a mean.
        in_sequence: test thresholds in the given order, each at delta, until the first that fails; otherwise all of
            them, each at delta / k. Better where the order begins with one that will pass.
    """
    scores = np.asarray(scores, np.float64)
    proven: list[CertifiedSelection] = []
    for threshold in thresholds:
        _, accepted = _accepted(losses, scores, threshold)
        level = delta if in_sequence else delta / len(thresholds)
        tested = selective_bound(losses, scores, threshold, level, bound) if accepted.any() else None
        if tested and tested.risk.value <= wish:
            # A sequence of tests proves the wish and no more; coverage is bounded for all thresholds at once.
            risk = replace(tested.risk, delta=delta, value=wish if in_sequence else tested.risk.value)
            coverage_low = binomial_lower(risk.n, len(scores), delta / len(thresholds))
            proven.append(replace(tested, risk=risk, coverage_low=coverage_low))
        elif in_sequence:
            break
    return max(proven, key=lambda each: each.threshold, default=None)


def _accepted(losses: ArrayLike, scores: ArrayLike, threshold: float) -> tuple[Floats, np.ndarray]:
    found, uncertainty = unit_losses(losses), np.asarray(scores, np.float64)
    if uncertainty.shape != found.shape:
        raise InvalidCertificate(
            f"{len(found)} losses and scores of shape {uncertainty.shape}: give both for each task"
        )
    return found, uncertainty <= threshold
