"""How well a score ranks: ranks with ties, the area under the ROC curve, and rank correlation given other things."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from smatter.errors import InvalidScores
from smatter.scores.arrays import Floats, Groups, finite_values, paired_values, rows_of_groups

EXPLAINED = 1e-9
"""Residuals of ranks this small, in shares of the ranks, are rounding errors."""


def average_ranks(values: ArrayLike) -> Floats:
    """Ranks from 1; equal values share the mean of theirs; (n,).

    >>> average_ranks([5.0, 1.0, 5.0])
    array([2.5, 1. , 2.5])
    """
    _, group, counts = np.unique(finite_values(values, "values"), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[group], np.float64)


def auroc(scores: ArrayLike, events: ArrayLike) -> float:
    """The chance that a task with the event has a higher score than one without; equal scores count one half.

    It is Mann and Whitney's U, divided by the number of pairs. Undefined (NaN) where all tasks or none have the event.

    Args:
        scores: of each task, (n,); higher should mean that the event is likelier.
        events: whether it happened, such as that another routing would have been clearly better, (n,).

    >>> auroc([0.1, 0.2, 0.2, 0.9], [False, False, True, True])
    0.875
    """
    values, happened = paired_values(scores, events, ("scores", "events"))
    if not np.isin(happened, (0, 1)).all():
        raise InvalidScores("an event is true or false: compare the losses with a limit first")
    n_with = int(happened.sum())
    n_pairs = n_with * (len(values) - n_with)
    if not n_pairs:
        return math.nan
    return float((average_ranks(values) @ happened - n_with * (n_with + 1) / 2) / n_pairs)


def partial_rank_correlation(
    scores: ArrayLike,
    outcomes: ArrayLike,
    *,
    covariates: Sequence[ArrayLike] = (),
    memberships: Sequence[Groups] = (),
) -> float:
    """Spearman's correlation of scores and outcomes, given what else is known of the tasks.

    Scores, outcomes and covariates are replaced by their ranks over all tasks. What is linear in the covariates' ranks,
    and a constant for each group, is taken out of both by least squares; Pearson's correlation of what remains is the
    result, and does not change when any of them is transformed monotonically. Undefined (NaN) where nothing remains.

    Args:
        scores: of each task, (n,).
        outcomes: of each task, (n,).
        covariates: numbers of each task, such as the base's loss, (n,) each.
        memberships: groups of each task without an order, such as its list, (n,) each.
    """
    values, results = paired_values(scores, outcomes, ("scores", "outcomes"))
    known = [np.ones(len(values))]
    known += [average_ranks(paired_values(values, each, ("scores", "covariates"))[1]) for each in covariates]
    for groups in memberships:
        if len(groups) != len(values):
            raise InvalidScores(f"{len(values)} scores and {len(groups)} memberships: give the group of each task")
        known += [np.isin(np.arange(len(values)), rows).astype(np.float64) for rows in rows_of_groups(groups).values()]
    design = np.stack(known, axis=1)
    first, second = (_remainder(average_ranks(each), design) for each in (values, results))
    sizes = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second / sizes) if sizes else math.nan


def _remainder(ranks: Floats, design: Floats) -> Floats:
    """What the design does not explain of ranks; exactly zero where that is nothing but rounding."""
    design = design / np.linalg.norm(design, axis=0)
    left = ranks - design @ np.linalg.lstsq(design, ranks)[0]
    is_something = np.linalg.norm(left) > EXPLAINED * np.linalg.norm(ranks)
    return np.asarray(left if is_something else np.zeros_like(left), np.float64)
