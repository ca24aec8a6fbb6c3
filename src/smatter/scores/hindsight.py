"""What choosing a routing by the queries' own labels would give, with and without the luck of the choice.

The best of many routings on a task's queries is best there partly by chance, and its loss on them is too low. Chosen
on one half of the queries and scored on the other it has no such luck.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smatter.errors import InvalidScores
from smatter.scores.arrays import Floats


@dataclass(frozen=True)
class Hindsight:
    """Mean loss of a task's queries under the routing that their labels choose.

    Args:
        naive: chosen and scored on all queries; too low by luck.
        crossed: chosen on one half and scored on the other, both ways, averaged over splits. Choosing on half of the
            queries is worse than on all, so that perfect knowledge may reach a little less.
    """

    naive: float
    crossed: float


def hindsight_of(
    losses: ArrayLike, *, generator: np.random.Generator, chosen_by: ArrayLike | None = None, n_splits: int = 64
) -> Hindsight:
    """Hindsight over the routings of one task; of routings that are equally good, the mean of their losses.

    The luck is gone in the mean over many tasks. A single task's `crossed` is noisy, and may be above the loss of any
    one routing.

    Args:
        losses: of each query under each routing, (n_routings, n_queries); 1 - correct for errors.
        generator: splits the queries.
        chosen_by: what is compared where it differs from what is scored, such as -log p[y] where errors are scored;
            (n_routings, n_queries).
        n_splits: over which halves are averaged.
    """
    lost = _table(losses)
    compared = lost if chosen_by is None else _table(chosen_by)
    if compared.shape != lost.shape:
        raise InvalidScores(f"losses {lost.shape} are chosen by numbers {compared.shape}: give both for the same table")
    if n_splits < 1:
        raise InvalidScores(f"{n_splits} splits: give at least 1")
    n_queries = lost.shape[1]
    first = split_halves(n_queries, n_splits, generator).astype(np.float64)
    second = 1 - first
    everything = np.ones((1, n_queries))
    crossed = _scored(first, second, compared, lost) + _scored(second, first, compared, lost)
    naive = _scored(everything, everything, compared, lost)
    return Hindsight(naive=float(naive[0]) / n_queries, crossed=float(crossed.mean()) / n_queries)


def split_halves(n_queries: int, n_splits: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Which queries are in the first half of each split, (n_splits, n_queries); an odd one is in the second."""
    if n_queries < 2:
        raise InvalidScores(f"{n_queries} queries have no halves: give at least 2 of each task")
    half = np.arange(n_queries) < n_queries // 2
    return generator.permuted(np.tile(half, (n_splits, 1)), axis=1)


def _scored(choosing: Floats, scoring: Floats, compared: Floats, lost: Floats) -> Floats:
    """Summed loss on the scoring queries of the routing that is best on the choosing ones, (n_splits,)."""
    sums = choosing @ compared.T
    best = sums == sums.min(axis=1, keepdims=True)
    return np.asarray((best * (scoring @ lost.T)).sum(axis=1) / best.sum(axis=1), np.float64)


def _table(values: ArrayLike) -> Floats:
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or not table.size:
        raise InvalidScores(f"a table of shape {table.shape}: give a row for each routing and a column for each query")
    if not np.isfinite(table).all():
        routing, query = np.argwhere(~np.isfinite(table))[0]
        raise InvalidScores(f"routing {routing} has loss {table[routing, query]} on query {query}: compute it again")
    return table
