"""A catalogue: the routings that a posterior chooses among, and how to choose them from a table of losses.

A table holds what every candidate routing makes of many tasks. A catalogue to pick one routing from wants low losses
of the best member (`BestMember`); one whose members are averaged wants a low loss of their average (`AverageMember`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, get_args

import torch
from torch import Tensor

from smatter.algebra.tail import tail_risk
from smatter.errors import BudgetInfeasible, InvalidSettings, InvalidWeights
from smatter.posterior.search import Allowed, Found, SetLoss, beam_search, swap_search
from smatter.settings import check_limits

Builder = Literal["greedy", "beam", "medoids"]
"""How members are chosen: one after the other; with the `WIDTH` best sets of each size kept; or one after the other and
then exchanged while that helps, as for medoids, with losses in the place of distances."""

WIDTH = 8

LEAST = -700.0
"""Least log-probability: those below are no different from zero in float64, of which there is no logarithm."""


@dataclass(frozen=True)
class Catalogue:
    """Routings by name.

    Args:
        names: of the routings, (n_routings).
        weights: of the sources, (n_routings, n_sources), on the simplex.
        experts: of the experts and, last, the null expert, (n_routings, n_experts + 1), on the simplex.
        costs: of each routing, (n_routings,).
    """

    names: tuple[str, ...]
    weights: Tensor
    experts: Tensor
    costs: Tensor

    def __post_init__(self) -> None:
        if not self.names:
            raise InvalidSettings("the catalogue is empty: give it a routing at least")
        if not len(self.names) == len(self.weights) == len(self.experts) == len(self.costs):
            raise InvalidSettings(
                f"{len(self.names)} names, {len(self.weights)} weights of sources, {len(self.experts)} of experts and "
                f"{len(self.costs)} costs: give each routing one of each"
            )
        if twice := {name for name in self.names if self.names.count(name) > 1}:
            raise InvalidSettings(f"several routings are called {min(twice)!r}: name them apart")
        for kind, rows in (("sources", self.weights), ("experts", self.experts)):
            fine = (rows >= 0).all(dim=1) & ((rows.sum(dim=1) - 1).abs() < 1e-4)  # also finds NaN
            if not bool(fine.all()):
                name = self.names[int(fine.logical_not().nonzero()[0])]
                raise InvalidWeights(f"weights of {kind} of routing {name!r} are not on the simplex")
        if not bool(self.costs.isfinite().all()):
            raise InvalidSettings("a routing of the catalogue has no finite cost: measure it, or leave it out")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def points(self) -> Tensor:
        """The routings as posteriors know them, (n_routings, n_sources + n_experts + 1)."""
        return torch.cat([self.weights, self.experts], dim=1)

    def subset(self, members: Sequence[int]) -> Catalogue:
        """Some of the routings, by number."""
        rows = list(members)
        names = tuple(self.names[row] for row in rows)
        return Catalogue(names, self.weights[rows], experts=self.experts[rows], costs=self.costs[rows])

    def affordable(self, limit: float) -> Catalogue:
        """The routings that each cost no more than a limit."""
        members = (self.costs <= limit).nonzero().flatten().tolist()
        if not members:
            raise BudgetInfeasible(
                f"every routing costs more than {limit:g}, the cheapest {float(self.costs.min()):g}: raise the limit"
            )
        return self.subset(members)

    def check_total(self, limit: float) -> None:
        """Refuse a catalogue that costs more than a limit when all of it is kept or run."""
        total = float(self.costs.sum())
        if not total <= limit:
            raise BudgetInfeasible(
                f"the catalogue's {len(self)} routings cost {total:g} together, above {limit:g}: take fewer of them"
            )


def usual_catalogue(sources: Sequence[str], experts: Sequence[str] = (), pairs: bool = False) -> Catalogue:
    """Every source alone, all alike, and all alike with each expert; a pass costs one.

    Args:
        sources: names of the library's.
        experts: names of the router's.
        pairs: whether every two sources are mixed as well, half and half.

    >>> usual_catalogue(("base", "law"), ("inverted",)).names
    ('base', 'law', 'all alike', 'all alike, inverted')
    """
    n_sources, n_experts = len(sources), len(experts)
    alone, equal = torch.eye(n_sources), torch.full((1, n_sources), 1 / n_sources)
    both = list(combinations(range(n_sources), 2)) if pairs else []
    halves = torch.stack([(alone[first] + alone[second]) / 2 for first, second in both]) if both else alone[:0]
    names = [*sources, *(f"{sources[first]} and {sources[second]}" for first, second in both), "all alike"]
    opened = torch.eye(n_experts + 1)
    weights = torch.cat([alone, halves, equal, equal.expand(n_experts, -1)])
    null = opened[-1].expand(len(names), -1)
    names += [f"all alike, {expert}" for expert in experts]
    return Catalogue(tuple(names), weights, experts=torch.cat([null, opened[:-1]]), costs=torch.ones(len(names)))


@dataclass(frozen=True)
class BestMember:
    """Loss of a set: that of its best member on each task, then the mean over the tasks or over their worst share.

    With the mean it is a facility-location problem, whose gains diminish.

    Args:
        losses: of each task by each routing, (n_tasks, n_routings).
        rho: the worst share of the tasks that counts; all by default.
    """

    losses: Tensor
    rho: float = 1.0

    def __post_init__(self) -> None:
        _check_table(self.losses)

    def __call__(self, members: tuple[int, ...]) -> float:
        """The loss of a set."""
        return float(tail_risk(self.losses[:, list(members)].amin(dim=1), self.rho))


class AverageMember:
    """Loss of a set: of the average of its members' predictions, then the mean over tasks or over their worst share.

    Args:
        log_probs: of each query's true class by each routing, (n_tasks, n_routings, n_queries).
        query_weights: how much each query counts, (n_tasks, n_queries), zero where a task has fewer; equal by default.
        companion: log-probabilities by a prediction that has half of the weight beside any set, (n_tasks, n_queries).
        rho: the worst share of the tasks that counts; all by default.
    """

    def __init__(
        self,
        log_probs: Tensor,
        query_weights: Tensor | None = None,
        companion: Tensor | None = None,
        rho: float = 1.0,
    ) -> None:
        counts = torch.ones_like(log_probs[:, 0]) if query_weights is None else query_weights.to(log_probs)
        missing = counts == 0
        _check_table(log_probs.masked_fill(missing.unsqueeze(1), 0.0).clamp(min=LEAST))
        self.counts = (counts / counts.sum(dim=1, keepdim=True)).double()
        self.probs = _probabilities(log_probs, missing.unsqueeze(1)).movedim(1, 0).contiguous()
        self.companion = None if companion is None else _probabilities(companion, missing)
        self.rho = rho

    def __call__(self, members: tuple[int, ...]) -> float:
        """The loss of a set."""
        mixed = self.probs[list(members)].mean(dim=0)
        if self.companion is not None:
            mixed = (mixed + self.companion) / 2
        return float(tail_risk(-(self.counts * mixed.log()).sum(dim=1), self.rho))


def choose_members(
    loss: SetLoss, costs: Tensor, size: int, *, builder: Builder = "greedy", limit: float | None = None
) -> Found:
    """The routings to keep, of at most a size and a cost together.

    The result is the best set that was met, which may be smaller: more members of an average can harm.

    Args:
        loss: of a set of candidates, such as `BestMember` or `AverageMember`.
        costs: of each candidate, (n_routings,).
        size: the most members.
        builder: how they are chosen.
        limit: on the sum of the members' costs; none by default.
    """
    check_limits(size=size)
    if builder not in get_args(Builder):
        raise InvalidSettings(f"unknown builder {builder!r}: use {', '.join(get_args(Builder))}")
    if limit is not None and not bool((costs <= limit).any()):
        raise BudgetInfeasible(f"every routing costs more than {limit:g}: raise the limit, or add cheaper routings")
    allowed = _within(costs, limit)
    found = beam_search(loss, len(costs), size, width=WIDTH if builder == "beam" else 1, allowed=allowed)
    if builder != "medoids":
        return found
    swapped = swap_search(loss, len(costs), found.members, allowed=allowed)
    return replace(swapped, evaluations=found.evaluations + swapped.evaluations)


def _within(costs: Tensor, limit: float | None) -> Allowed:
    prices: Callable[[int], float] = costs.tolist().__getitem__
    return lambda members: limit is None or sum(map(prices, members)) <= limit


def _probabilities(log_probs: Tensor, missing: Tensor) -> Tensor:
    """Probabilities above zero; one where a query is missing, whatever its number."""
    return log_probs.double().masked_fill(missing, 0.0).clamp(min=LEAST).exp()


def _check_table(table: Tensor) -> None:
    if not bool(table.isfinite().all()):
        task, routing = (~table.isfinite()).nonzero()[0, :2].tolist()
        raise InvalidSettings(f"the table has no number for task {task} and routing {routing}: compute that row again")
