"""Split conformal prediction: limits that a new score keeps with probability 1 - delta, whatever its distribution.

The promise is about a new score that is exchangeable with those of calibration, on average over calibration sets and
over scores. It is not a promise for each class or domain, unless each has a limit of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, ndtri

from smatter.algebra.conformal import conformal_quantile
from smatter.certify.bound import Floats, check_delta
from smatter.errors import InvalidCertificate

Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class ConformalLimit:
    """A limit that the next score exceeds with probability at most delta; infinite, and vacuous, with too few scores.

    Args:
        value: the limit.
        delta: how often a new score may exceed it.
        n: scores that it was computed from.
    """

    value: float
    delta: float
    n: int

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing."""
        return not np.isfinite(self.value)


def conformal_limit(scores: ArrayLike, delta: float) -> ConformalLimit:
    """The conformal quantile of calibration scores: the ceil((n + 1)(1 - delta))-th smallest.

    >>> conformal_limit([0.1, 0.4, 0.2, 0.3], 0.25).value
    0.4
    """
    check_delta(delta)
    found = np.asarray(scores, np.float64)
    if found.ndim != 1 or np.isnan(found).any():
        raise InvalidCertificate("calibration scores must be one row of numbers: score each task or query once")
    return ConformalLimit(conformal_quantile(found, delta), delta, len(found))


def conformal_limit_of_tasks(scores: Sequence[ArrayLike], delta: float) -> ConformalLimit:
    """A limit for a query of a new task, from all queries of calibration tasks: those of a task are alike.

    Hierarchical conformal prediction (Lee, Barber and Willett, 2023): a task counts as one, each of its queries as an
    equal part of it, and the new task, of which nothing is known, as one that is above every limit. With one query of
    each task it is `conformal_limit`; with all of them it varies less from calibration to calibration.

    Args:
        scores: of the queries of each task, one or more of each.
        delta: how often the score of a query of a new task may exceed the limit.
    """
    check_delta(delta)
    rows = [np.asarray(each, np.float64) for each in scores]
    if any(row.ndim != 1 or not len(row) or np.isnan(row).any() for row in rows):
        raise InvalidCertificate("calibration scores must be a row of numbers for each task: leave out empty tasks")
    if not rows:
        return ConformalLimit(float("inf"), delta, 0)
    values, shares = np.concatenate(rows), np.concatenate([np.full(len(row), 1 / len(row)) for row in rows])
    order = values.argsort()
    enough = shares[order].cumsum() >= (len(rows) + 1) * (1 - delta) - 1e-9
    value = float(values[order][enough.argmax()]) if enough.any() else float("inf")
    return ConformalLimit(value, delta, len(rows))


def limits_by_group(scores: ArrayLike, groups: Sequence[Hashable], delta: float) -> dict[Hashable, ConformalLimit]:
    """A limit for each group (Mondrian conformal prediction): the promise then holds within each of them."""
    found = np.asarray(scores, np.float64)
    if len(groups) != len(found):
        raise InvalidCertificate(f"{len(found)} scores in {len(groups)} groups: give the group of each score")
    names = list(groups)
    return {group: conformal_limit(found[[each == group for each in names]], delta) for group in dict.fromkeys(names)}


def least_ambiguous_scores(probabilities: ArrayLike) -> Floats:
    """1 - p of every class (LAC; Sadinle and others, 2019): the smallest sets on average; (..., n_classes)."""
    return 1 - np.asarray(probabilities, np.float64)


def adaptive_scores(probabilities: ArrayLike, uniforms: ArrayLike = 1.0) -> Floats:
    """Probability of all classes more probable than this one, and a part of its own (APS; Romano and others, 2020).

    Args:
        probabilities: (..., n_classes).
        uniforms: that part, for each row or for all; drawn from [0, 1] it makes coverage exact, 1 counts all of it.
    """
    found = np.asarray(probabilities, np.float64)
    order = np.argsort(-found, axis=-1, kind="stable")
    ordered = np.take_along_axis(found, order, axis=-1)
    before = np.cumsum(ordered, axis=-1) - ordered
    parts = np.asarray(uniforms, np.float64)
    own = ordered * (parts[..., None] if parts.ndim else parts)
    scores = np.empty_like(found)
    np.put_along_axis(scores, order, before + own, axis=-1)
    return scores


def true_class_scores(scores: ArrayLike, labels: ArrayLike) -> Floats:
    """What calibration needs of them: the score of each row's true class; (n,)."""
    rows = np.asarray(scores, np.float64)
    return np.take_along_axis(rows, np.asarray(labels, np.intp)[..., None], axis=-1)[..., 0]


def prediction_sets(scores: ArrayLike, limit: ConformalLimit) -> Booleans:
    """Classes that a query may have: those whose score is within the limit, and always the one with the least.

    Args:
        scores: of every class, by the rule that the limit was calibrated with; (..., n_classes).
        limit: of the true classes' scores.
    """
    rows = np.asarray(scores, np.float64)
    return np.asarray((rows <= limit.value) | (rows == rows.min(axis=-1, keepdims=True)))


def coverage_by_group(covered: ArrayLike, groups: Sequence[Hashable]) -> dict[Hashable, float]:
    """The share of queries, by class or by domain, whose set holds the true class."""
    found = np.asarray(covered, np.bool_)
    rows: dict[Hashable, list[bool]] = {}
    for group, is_in in zip(groups, found.tolist(), strict=True):
        rows.setdefault(group, []).append(is_in)
    return {group: float(np.mean(each)) for group, each in rows.items()}


def excess_loss_limit(excess: ArrayLike, delta: float, scales: ArrayLike = 1.0) -> ConformalLimit:
    """A limit of the next task's excess loss, over the base's or over the best routing's.

    Args:
        excess: of each calibration task, (n,).
        delta: how often it may be exceeded.
        scales: how large an excess each task makes one expect, all above 0, (n,), or one for all. The limit is then in
            units of the scale: multiply it by the new task's.
    """
    units = np.asarray(scales, np.float64)
    if not (units > 0).all():
        raise InvalidCertificate("a scale that is not above 0: add a small constant to the uncertainty scores")
    return conformal_limit(np.asarray(excess, np.float64) / units, delta)


def scores_for_coverage(delta: float, slack: float, confidence: float) -> int:
    """From how many calibration scores on coverage is at least 1 - delta - slack with this confidence.

    Given the calibration scores, coverage varies as Beta(r, n + 1 - r) with r = ceil((n + 1)(1 - delta)). Single
    smaller numbers may do by rounding.
    """
    check_delta(delta)
    if not (0.001 <= slack < 1 - delta and 0 < confidence < 1):
        raise InvalidCertificate(
            f"a slack of {slack:g} at confidence {confidence:g}: 0.02 and 0.95 let one set in twenty fall 2 % short"
        )
    enough = int(ndtri(min(1 - confidence, 0.5)) ** 2 / slack**2 + 10 / min(delta, slack))
    counts = np.arange(1, enough + 1)
    ranks = np.ceil(((counts + 1) * (1 - delta)).round(9))
    shortfall = betainc(ranks, np.maximum(counts + 1 - ranks, 1), max(0.0, 1 - delta - slack))
    falls_short = (ranks > counts) | (shortfall > 1 - confidence)
    return int(counts[falls_short][-1]) + 1
