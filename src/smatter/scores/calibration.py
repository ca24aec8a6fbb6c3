"""Calibration of predictions: chances of classes against labels, pooled over tasks, and a temperature that mends them.

Tasks may differ in their classes: what is pooled are queries, each of which counts the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from smatter.errors import InvalidScores
from smatter.scores.arrays import Floats, Groups, rows_of_groups
from smatter.scores.reliability import calibration_error

COLDEST, HOTTEST = 0.01, 100.0
"""Between these a temperature is looked for."""

SUM_TOLERANCE = 1e-3
"""Chances in half precision sum to one only about so well."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What calibration needs of predictions for queries, whatever their classes are; (n,) each.

    Args:
        confidence: chance of the class that is named, the likeliest.
        correct: whether it is the query's.
        own: chance of the query's class.
        squares: sum of the squared chances of all classes.
    """

    confidence: Floats
    correct: NDArray[np.bool_]
    own: Floats
    squares: Floats

    @property
    def nll(self) -> Floats:
        """-log p[y] of each query; infinite where its class was ruled out."""
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log(self.own), np.float64)

    @property
    def brier(self) -> Floats:
        """Sum over classes of (p - [class is y])^2 of each query, between 0 and 2."""
        return np.maximum(self.squares - 2 * self.own + 1, 0)


def answers_of(probabilities: ArrayLike, labels: ArrayLike) -> Answers:
    """Predictions of one task.

    Args:
        probabilities: chances of classes, (n, n_classes).
        labels: the class of each query, (n,).
    """
    chances, true = _table(probabilities, labels, "probabilities")
    if chances.min() < 0 or np.abs(chances.sum(axis=1) - 1).max() > SUM_TOLERANCE:
        raise InvalidScores("probabilities of a query do not sum to one: give those of a softmax, not logits")
    rows = np.arange(len(true))
    named = chances.argmax(axis=1)
    return Answers(chances[rows, named], named == true, chances[rows, true], np.square(chances).sum(axis=1))


def pooled_answers(answers: Sequence[Answers]) -> Answers:
    """The queries of several tasks as one."""
    if not answers:
        raise InvalidScores("no task to pool: give the answers of at least one")
    return Answers(
        np.concatenate([each.confidence for each in answers]),
        np.concatenate([each.correct for each in answers]),
        np.concatenate([each.own for each in answers]),
        np.concatenate([each.squares for each in answers]),
    )


@dataclass(frozen=True)
class Calibration:
    """Means over queries, and calibration errors with bins of equal width and of equal mass."""

    n_queries: int
    accuracy: float
    confidence: float
    nll: float
    brier: float
    ece: float
    ece_mass: float


def calibration_of(answers: Answers, *, n_bins: int = 15) -> Calibration:
    """How well the chances of answers agree with what is right."""
    confidence = np.minimum(answers.confidence, 1)  # a softmax in half precision may end a little above one
    return Calibration(
        n_queries=len(confidence),
        accuracy=float(answers.correct.mean()),
        confidence=float(confidence.mean()),
        nll=float(answers.nll.mean()),
        brier=float(answers.brier.mean()),
        ece=calibration_error(confidence, answers.correct, n_bins=n_bins, bins="width"),
        ece_mass=calibration_error(confidence, answers.correct, n_bins=n_bins, bins="mass"),
    )


def calibration_by_list(answers: Sequence[Answers], lists: Groups, *, n_bins: int = 15) -> dict[Hashable, Calibration]:
    """Calibration of each list of tasks, the queries of its tasks pooled.

    Pooling comes first: a single task has too few queries for bins, and errors that are opposite on two lists cancel
    in a pool of both.

    Args:
        answers: of each task.
        lists: the list of each task.
        n_bins: of the calibration errors.
    """
    if len(lists) != len(answers):
        raise InvalidScores(f"{len(answers)} tasks in {len(lists)} lists: give the list of each task")
    return {
        name: calibration_of(pooled_answers([answers[row] for row in rows]), n_bins=n_bins)
        for name, rows in rows_of_groups(lists).items()
    }


def fitted_temperature(logits: Sequence[ArrayLike], labels: Sequence[ArrayLike]) -> float:
    """The temperature by which logits are divided so that labels surprise least.

        minimise over T:  mean over queries of -log softmax(s / T)[y]

    This is convex in b = 1 / T with the slope mean of (sum over c of softmax(b s)[c] s[c]) - s[y], which never falls;
    its root is found by Brent's method. Where the loss falls up to an end of the range (all answers right, or no better
    than chance) that end is the answer.

    Args:
        logits: of each task, (n, n_classes); the logarithms of averaged chances serve as well.
        labels: of each task, (n,).
    """
    if not logits or len(logits) != len(labels):
        raise InvalidScores(f"logits of {len(logits)} and labels of {len(labels)} tasks: give both for the same tasks")
    stacks = _stacks([_table(each, own, "logits") for each, own in zip(logits, labels, strict=True)])
    n_queries = sum(len(true) for _, true in stacks)

    def slope(log_inverse: float) -> float:
        inverse, total = np.exp(log_inverse), 0.0
        for scores, true in stacks:
            chances = np.exp(inverse * scores)
            expected = (chances * scores).sum(axis=1) / chances.sum(axis=1)
            total += float((expected - scores[np.arange(len(true)), true]).sum())
        return total / n_queries

    cold, hot = -np.log(COLDEST), -np.log(HOTTEST)
    if slope(hot) >= 0:
        return HOTTEST
    return COLDEST if slope(cold) <= 0 else float(np.exp(-brentq(slope, hot, cold)))


Table = tuple[Floats, NDArray[Any]]


def _stacks(tables: Sequence[Table]) -> list[Table]:
    """Tables with equally many classes as one, the largest logit of each query at zero so that no power overflows."""
    by_width = rows_of_groups([scores.shape[1] for scores, _ in tables])
    found = []
    for rows in by_width.values():
        scores = np.concatenate([tables[row][0] for row in rows])
        found.append((scores - scores.max(axis=1, keepdims=True), np.concatenate([tables[row][1] for row in rows])))
    return found


def _table(rows: ArrayLike, labels: ArrayLike, what: str) -> Table:
    table, true = np.asarray(rows, np.float64), np.asarray(labels)
    if table.ndim != 2 or true.shape != table.shape[:1] or not table.size:
        raise InvalidScores(
            f"{what} of shape {table.shape} with labels of shape {true.shape}: give a label to each row"
        )
    if not np.isfinite(table).all():
        raise InvalidScores(f"{what} hold NaN or infinity: leave that task out, or clip its logarithms")
    if not np.issubdtype(true.dtype, np.integer) or true.min() < 0 or true.max() >= table.shape[1]:
        raise InvalidScores(f"labels are not numbers of the {table.shape[1]} classes: count them from 0")
    return table, true
