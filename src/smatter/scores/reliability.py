"""Reliability: does what is announced happen as often as announced? For confidences, and for any score of an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from smatter.errors import InvalidScores
from smatter.scores.arrays import Floats, Rows, paired_values
from smatter.scores.ranking import average_ranks

Bins = Literal["width", "mass"]
"""Of equal width on [0, 1], each with its upper end but not its lower one; or of equally many scores."""


@dataclass(frozen=True)
class ReliabilityRow:
    """One bin of scores: how many, between which ends, their mean, and how often the event happened."""

    n: int
    low: float
    high: float
    score: float
    rate: float

    @property
    def gap(self) -> float:
        """How much more often it happened than was announced."""
        return self.rate - self.score


def reliability_rows(
    scores: ArrayLike, events: ArrayLike, *, n_bins: int = 15, bins: Bins = "mass"
) -> tuple[ReliabilityRow, ...]:
    """Scores in bins with the rate of the event in each, in ascending order; bins without a score are left out.

    Equal scores are never parted, so that the order of the rows does not matter; bins of equal mass then differ in
    size. For bins of equal width scores must lie in [0, 1]; otherwise they may be anything that should rise with the
    chance of the event.

    Args:
        scores: confidences in answers, or U(S), the uncertainty of a routing, (n,).
        events: that the answer is right, or the routing is not the best one, (n,); shares in [0, 1] count as such.
        n_bins: at most.
        bins: what is equal among them.
    """
    values, happened = paired_values(scores, events, ("scores", "events"))
    if n_bins < 1:
        raise InvalidScores(f"{n_bins} bins hold nothing: give at least 1")
    if happened.min() < 0 or happened.max() > 1:
        raise InvalidScores("an event is true or false, or a share: compare the losses with a limit first")
    found = []
    number = _width_bins(values, n_bins) if bins == "width" else _mass_bins(values, n_bins)
    for each in np.unique(number):
        inside = number == each
        part = values[inside]
        low, high = (each / n_bins, (each + 1) / n_bins) if bins == "width" else (part.min(), part.max())
        found.append(
            ReliabilityRow(
                n=len(part),
                low=float(low),
                high=float(high),
                score=float(part.mean()),
                rate=float(happened[inside].mean()),
            )
        )
    return tuple(found)


def calibration_error(scores: ArrayLike, events: ArrayLike, *, n_bins: int = 15, bins: Bins = "width") -> float:
    """Expected calibration error: the mean over scores of their bin's distance between announced and observed.

    ECE of Guo and others (2017) with bins of equal width. It is too large by noise where bins are small, more so the
    more bins there are: compare methods on the same queries with the same bins.

    >>> round(calibration_error([0.9, 0.9, 0.6, 0.6], [True, True, True, False], n_bins=10), 12)
    0.1
    """
    rows = reliability_rows(scores, events, n_bins=n_bins, bins=bins)
    return sum(row.n * abs(row.gap) for row in rows) / sum(row.n for row in rows)


def _width_bins(values: Floats, n_bins: int) -> Rows:
    if values.min() < 0 or values.max() > 1:
        raise InvalidScores("bins of equal width are for chances in [0, 1]: use bins of equal mass for other scores")
    return np.searchsorted(np.linspace(0, 1, n_bins + 1)[1:-1], values, side="left")


def _mass_bins(values: Floats, n_bins: int) -> Rows:
    middle = (average_ranks(values) - 0.5) / len(values)  # equal scores share a rank, and so a bin
    return np.asarray(middle * n_bins, np.intp)
