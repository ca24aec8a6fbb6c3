"""What every score asks of its numbers: finite, one for each task, and which of them belong together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smatter.errors import InvalidScores

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Groups = Sequence[Hashable] | NDArray[Any]
"""What each row belongs to: a list of tasks, a draw, a domain."""


def finite_values(values: ArrayLike, what: str) -> Floats:
    """A row of numbers that can be scored: at least one, and all finite; (n,).

    Args:
        values: one for each task or query.
        what: they are, in the words of a message.
    """
    found = np.asarray(values, np.float64)
    if found.ndim != 1 or not len(found):
        raise InvalidScores(f"{what} of shape {found.shape}: give one number for each task, and at least one task")
    if not np.isfinite(found).all():
        bad = int(np.flatnonzero(~np.isfinite(found))[0])
        raise InvalidScores(f"{what} of row {bad} is {found[bad]}: score that task again, or leave it out")
    return found


def paired_values(first: ArrayLike, second: ArrayLike, what: tuple[str, str]) -> tuple[Floats, Floats]:
    """Two rows of numbers of the same tasks; (n,) each."""
    pair = finite_values(first, what[0]), finite_values(second, what[1])
    if len(pair[0]) != len(pair[1]):
        raise InvalidScores(f"{len(pair[0])} {what[0]} and {len(pair[1])} {what[1]}: give both for the same tasks")
    return pair


def check_share(share: float, what: str) -> None:
    """Refuse a share of tasks that is not in (0, 1]."""
    if not 0 < share <= 1:  # also refuses NaN
        raise InvalidScores(f"{what} {share} is not above 0 and at most 1: 0.1 is a tenth of the tasks")


def rows_of_groups(groups: Groups) -> dict[Hashable, Rows]:
    """The numbers of each group's rows, groups in the order in which they appear.

    >>> rows_of_groups(["a", "b", "a"])
    {'a': array([0, 2]), 'b': array([1])}
    """
    rows: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    return {group: np.array(each, np.intp) for group, each in rows.items()}
