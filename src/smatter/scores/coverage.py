"""Abstention: what is risked on the tasks that are kept when the least sure ones are left out (Bayes paper, section 9).

A score U is the uncertainty of each task (or query): the lowest are kept first. Tasks with equal scores are kept in
random order, and everything here is the expectation over that order, so that a score with few values gains nothing.
Coverage is the share that is kept; where that is no whole number of tasks, the last one is kept in part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smatter.errors import InvalidScores
from smatter.scores.arrays import Floats, check_share, finite_values, paired_values


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The mean loss of the tasks that are kept, at each of the n coverages 1/n, 2/n, ..., 1; (n,) each."""

    coverage: Floats
    risk: Floats


def risk_coverage(scores: ArrayLike, losses: ArrayLike) -> RiskCoverage:
    """The risk-coverage curve of a score.

    Args:
        scores: uncertainties, (n,).
        losses: of the same tasks, (n,).
    """
    values, lost = paired_values(scores, losses, ("scores", "losses"))
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    means = np.bincount(group, weights=lost) / counts  # what a task of such a score loses, in random order
    kept = np.arange(1, len(values) + 1)
    return RiskCoverage(kept / len(values), np.cumsum(np.repeat(means, counts)) / kept)


@dataclass(frozen=True)
class SelectiveRisk:
    """A risk after abstaining, beside that of an oracle, which knows the losses, and that of abstaining at random."""

    risk: float
    oracle: float
    random: float

    @property
    def share_of_oracle(self) -> float:
        """(random - risk) / (random - oracle): 1 for an oracle, 0 for chance; NaN where all losses are equal."""
        possible = self.random - self.oracle
        # Sums in another order differ by rounding: a gain as small as that is none.
        return (self.random - self.risk) / possible if possible > 1e-12 * abs(self.random) else math.nan


def area_under_risk_coverage(scores: ArrayLike, losses: ArrayLike) -> SelectiveRisk:
    """AURC: the mean of the selective risk over the n coverages 1/n, 2/n, ..., 1 (Geifman and El-Yaniv, 2017).

    At random the selective risk is the mean loss at every coverage, and so is its area.
    """
    _, lost = paired_values(scores, losses, ("scores", "losses"))
    areas = [float(risk_coverage(each, lost).risk.mean()) for each in (scores, lost)]
    return SelectiveRisk(risk=areas[0], oracle=areas[1], random=float(lost.mean()))


def selective_risk_at(scores: ArrayLike, losses: ArrayLike, coverage: float) -> SelectiveRisk:
    """The mean loss of the share of tasks that is kept.

    >>> selective_risk_at([0.1, 0.2, 0.3, 0.9], [0.0, 1.0, 0.0, 1.0], 0.5)
    SelectiveRisk(risk=0.5, oracle=0.0, random=0.5)
    """
    values, lost = paired_values(scores, losses, ("scores", "losses"))
    ours, best = (kept_shares(each, coverage) @ lost / (coverage * len(lost)) for each in (values, lost))
    return SelectiveRisk(risk=float(ours), oracle=float(best), random=float(lost.mean()))


def kept_shares(scores: ArrayLike, coverage: float) -> Floats:
    """The chance of each task to be kept, (n,): 1 for the sure ones, 0 for the unsure, between where scores are equal.

    >>> kept_shares([0.3, 0.1, 0.3, 0.5], 0.5)
    array([0.5, 1. , 0.5, 0. ])
    """
    check_share(coverage, "coverage")
    values = finite_values(scores, "scores")
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    surer = np.cumsum(counts) - counts
    return np.asarray(np.clip((coverage * len(values) - surer) / counts, 0, 1)[group], np.float64)


def risk_with_fallback(scores: ArrayLike, losses: ArrayLike, fallback: ArrayLike, coverage: float) -> float:
    """The mean loss over all tasks, those that are not kept with the loss of what is done instead.

    The fallback's loss is that on the very tasks that it gets: they are the hard ones, for it too.

    Args:
        scores: uncertainties, (n,).
        losses: of what is done where it is sure, (n,).
        fallback: losses of what is done instead: the base, or more passes, (n,).
        coverage: share of the tasks that keep the first.
    """
    _, lost = paired_values(scores, losses, ("scores", "losses"))
    _, instead = paired_values(losses, fallback, ("losses", "losses of the fallback"))
    kept = kept_shares(scores, coverage)
    return float((kept * lost + (1 - kept) * instead).mean())


def share_of_gain(scores: ArrayLike, gains: ArrayLike, share: float) -> float:
    """Which part of the gain of all tasks is had by spending only on those with the highest scores.

    Undefined (NaN) where all tasks together gain nothing.

    Args:
        scores: uncertainties, (n,).
        gains: what each task would gain by the extra cost, (n,).
        share: of the tasks that get it; below 1.
    """
    if not 0 < share < 1:
        raise InvalidScores(f"extra cost for a share of {share} of the tasks: give a share between 0 and 1")
    _, gained = paired_values(scores, gains, ("scores", "gains"))
    total = float(gained.sum())
    return float((1 - kept_shares(scores, 1 - share)) @ gained) / total if total > 0 else math.nan
