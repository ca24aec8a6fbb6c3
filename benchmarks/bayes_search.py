"""Search for the networks of a task at test time, for `bayes.py`: sets of routings by the loss of their average.

The loss is that of the examples, each left out in turn: the only labels that there are. Sets are of routings that open
the experts of the router's point, which several networks of a task share.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from bayes_rules import Case, Rule, judge
from common import Rows
from torch import Tensor

from smatter.backbones.heads import example_losses
from smatter.posterior.search import (
    Found,
    SetLoss,
    beam_search,
    brute_force,
    increasing_returns,
    random_search,
)

SIZE = 4
EVALUATIONS = 40
Search = Callable[[SetLoss, int, int], Found]


def candidates(case: Case) -> list[int]:
    """Rows that several networks of a task can be, each routing once."""
    points, n_sources = case.table.points, len(case.table.prior)
    shared = (points[:, n_sources:] == points[0, n_sources:]).all(dim=1)
    kept: dict[bytes, int] = {}
    for row in shared.nonzero().flatten().tolist():
        kept.setdefault(points[row].numpy().tobytes(), row)
    return list(kept.values())


def loss_of_average(case: Case, rows: Sequence[int]) -> SetLoss:
    """The leave-one-out loss of the average of some rows' scores, by the numbers of the rows among these."""
    held_out, labels, examples = case.table.held_out[list(rows)], case.table.labels, case.table.examples

    def loss(members: tuple[int, ...]) -> float:
        return float(example_losses(held_out[list(members)].mean(dim=0), labels, examples).mean())

    return loss


def by_search(search: Search) -> Rule:
    """The set that a search finds, alike."""

    def rule(case: Case) -> Tensor:
        rows = candidates(case)
        found = search(loss_of_average(case, rows), len(rows), min(SIZE, len(rows)))
        weights = torch.zeros(len(case.names), dtype=torch.float64)
        weights[[rows[member] for member in found.members]] = 1 / len(found.members)
        return weights

    return rule


def _greedy(loss: SetLoss, n_candidates: int, size: int) -> Found:
    return beam_search(loss, n_candidates, size)


def _beam(loss: SetLoss, n_candidates: int, size: int) -> Found:
    return beam_search(loss, n_candidates, size, width=4)


def _random(loss: SetLoss, n_candidates: int, size: int) -> Found:
    generator = torch.Generator().manual_seed(0)
    return random_search(loss, n_candidates, size, evaluations=EVALUATIONS, generator=generator)


SEARCHED: Mapping[str, Search] = {
    "greedy search": _greedy,
    "beam of 4": _beam,
    f"{EVALUATIONS} random sets": _random,
    "every set": brute_force,
}
SEARCH_RULES = {f"{name}, up to {SIZE}": by_search(search) for name, search in SEARCHED.items()}


def search_rows(cases: Sequence[Case], n_timed: int = 40) -> Rows:
    """What each search costs and finds; all routings have been passed the examples before."""
    rows: Rows = []
    for name, search in SEARCHED.items():
        seconds, evaluations, losses = [], [], []
        for case in cases[:n_timed]:
            kept, begin = candidates(case), time.perf_counter()
            found = search(loss_of_average(case, kept), len(kept), min(SIZE, len(kept)))
            seconds.append(time.perf_counter() - begin)
            evaluations.append(found.evaluations)
            losses.append(found.loss)
        errors = [judge(case, SEARCH_RULES[f"{name}, up to {SIZE}"](case)).error for case in cases]
        rows.append(
            {
                "search": name, "sets": float(np.mean(evaluations)), "ms": 1000 * float(np.median(seconds)),
                "loss of the examples": float(np.mean(losses)), "error of the queries": float(np.mean(errors)),
            }
        )  # fmt: skip
    return rows


def returns_that_increase(cases: Sequence[Case], n_trials: int = 20) -> float:
    """How often one more member helps more in a larger set, in queries' losses: never, if the loss were submodular."""
    shares = []
    for case in cases:
        rows, table, known = candidates(case), case.table, case.table.truth >= 0
        if len(rows) < 3:
            continue
        scores, truth = table.scores[rows][:, known], table.truth[known]

        def loss(members: tuple[int, ...], scores: Tensor = scores, truth: Tensor = truth) -> float:
            return float(torch.nn.functional.cross_entropy(scores[list(members)].mean(dim=0), truth))

        generator = torch.Generator().manual_seed(case.number)
        shares.append(increasing_returns(loss, len(rows), n_trials, generator))
    return math.fsum(shares) / len(shares)
