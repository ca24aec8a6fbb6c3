"""Search for a set of routings of low loss, each loss an evaluation (Bayes-routed paper, sections 8 and 9).

Finding the best set of k is NP-hard: with the loss 1 - share of a universe that is covered it is maximum coverage.
There greedy selection reaches 1 - 1/e of the coverage of the best set, since additions help less and less; the losses
of networks promise no such thing (`increasing_returns` says how often an addition helps more in a larger set).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.settings import check_limits

SetLoss = Callable[[tuple[int, ...]], float]
"""The loss of a set of candidates, given by their numbers in rising order."""

Allowed = Callable[[tuple[int, ...]], bool]


@dataclass(frozen=True)
class Found:
    """The best set that a search came across.

    Args:
        members: its candidates, in rising order.
        loss: of the set.
        evaluations: sets whose loss was computed.
        complete: whether the search came to its own end, and not to that of its evaluations.
    """

    members: tuple[int, ...]
    loss: float
    evaluations: int
    complete: bool


@dataclass(frozen=True)
class FoundPoint:
    """The best point that a random search came across: the point, (d,), its loss, and the losses computed."""

    point: Tensor
    loss: float
    evaluations: int


class _Losses:
    """Losses of sets, each computed once, until the evaluations are used up."""

    def __init__(self, loss: SetLoss, n_candidates: int, size: int, evaluations: int | None) -> None:
        check_limits(n_candidates=n_candidates, size=size, evaluations=evaluations)
        self.loss, self.limit, self.known = loss, evaluations, dict[tuple[int, ...], float]()
        self.complete = True

    def rank(self, sets: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Those of some sets whose loss could be computed, best first; a loss that is no number is the worst."""
        seen = []
        for members in sets:
            if members not in self.known:
                if self.limit is not None and len(self.known) >= self.limit:
                    self.complete = False
                    break
                value = self.loss(members)
                self.known[members] = math.inf if math.isnan(value) else value
            seen.append(members)
        return sorted(seen, key=lambda members: (self.known[members], members))

    def found(self) -> Found:
        if not self.known:
            raise InvalidSettings("no set of routings is allowed: raise the limit on cost, or add cheaper routings")
        best = min(self.known, key=lambda members: (self.known[members], len(members), members))
        return Found(best, self.known[best], len(self.known), self.complete)


def beam_search(
    loss: SetLoss,
    n_candidates: int,
    size: int,
    *,
    width: int = 1,
    evaluations: int | None = None,
    allowed: Allowed = lambda _: True,
) -> Found:
    """Grow sets by one candidate at a time, keeping the best few of each size; with a width of 1, greedily.

    Args:
        loss: of a set.
        n_candidates: to choose from.
        size: the most members.
        width: sets that are kept.
        evaluations: the most losses computed; as many as are needed by default.
        allowed: which sets may be.
    """
    losses = _Losses(loss, n_candidates, size, evaluations)
    check_limits(width=width)
    kept: list[tuple[int, ...]] = [()]
    for _ in range(min(size, n_candidates)):
        grown = {
            tuple(sorted({*members, new})) for members in kept for new in range(n_candidates) if new not in members
        }
        kept = losses.rank(filter(allowed, sorted(grown)))[:width]
    return losses.found()


def swap_search(
    loss: SetLoss,
    n_candidates: int,
    start: tuple[int, ...],
    *,
    evaluations: int | None = None,
    allowed: Allowed = lambda _: True,
) -> Found:
    """Exchange one member of a set for another candidate while that lowers the loss; see `beam_search`."""
    losses = _Losses(loss, n_candidates, max(1, len(start)), evaluations)
    current = losses.rank([tuple(sorted(start))])
    while current:
        members = current[0]
        others = [new for new in range(n_candidates) if new not in members]
        exchanged = {tuple(sorted({*members, new} - {old})) for old in members for new in others}
        better = losses.rank(filter(allowed, sorted(exchanged)))[:1]
        current = [each for each in better if losses.known[each] < losses.known[members]]
    return losses.found()


def random_search(
    loss: SetLoss,
    n_candidates: int,
    size: int,
    *,
    evaluations: int,
    generator: torch.Generator,
    allowed: Allowed = lambda _: True,
) -> Found:
    """As many random sets as there are evaluations: of 1 to `size` members, each number as likely."""
    losses = _Losses(loss, n_candidates, size, evaluations)
    for _ in range(evaluations):
        count = int(torch.randint(1, min(size, n_candidates) + 1, (), generator=generator))
        drawn = torch.randperm(n_candidates, generator=generator)[:count]
        losses.rank(filter(allowed, [tuple(sorted(drawn.tolist()))]))
    return losses.found()


def brute_force(
    loss: SetLoss,
    n_candidates: int,
    size: int,
    *,
    evaluations: int | None = None,
    allowed: Allowed = lambda _: True,
) -> Found:
    """Every set of up to `size` members, small ones first."""
    losses = _Losses(loss, n_candidates, size, evaluations)
    for count in range(1, min(size, n_candidates) + 1):
        losses.rank(filter(allowed, combinations(range(n_candidates), count)))
    return losses.found()


def random_points(
    loss: Callable[[Tensor], float], sizes: tuple[int, ...], *, evaluations: int, generator: torch.Generator
) -> FoundPoint:
    """The best of some points drawn uniformly from simplices side by side.

    Args:
        loss: of a point, (sum of sizes,).
        sizes: weights of each simplex.
        evaluations: points that are tried.
        generator: of the points.
    """
    check_limits(evaluations=evaluations)
    best: tuple[float, Tensor] | None = None
    for _ in range(evaluations):
        noise = [-torch.rand(size, generator=generator, dtype=torch.float64).log() for size in sizes]
        point = torch.cat([each / each.sum() for each in noise])  # normalised exponentials are uniform on a simplex
        value = loss(point)
        value = math.inf if math.isnan(value) else value
        if best is None or value < best[0]:
            best = value, point
    assert best is not None
    return FoundPoint(best[1], best[0], evaluations)


def increasing_returns(loss: SetLoss, n_candidates: int, n_trials: int, generator: torch.Generator) -> float:
    """How often an addition lowers the loss more in a larger set: never, if the loss had diminishing returns.

    A trial draws a candidate x, a set B without it and a part A of B that is neither empty nor B, and compares the
    gains of x.
    """
    if n_candidates < 3:
        raise InvalidSettings(f"{n_candidates} candidates have no sets to compare: give 3 or more")
    count = 0
    for _ in range(n_trials):
        order = torch.randperm(n_candidates, generator=generator).tolist()
        large = int(torch.randint(2, n_candidates, (), generator=generator))
        small = int(torch.randint(1, large, (), generator=generator))
        new, rest = order[0], order[1:]
        gains = [loss(tuple(sorted(rest[:k]))) - loss(tuple(sorted([*rest[:k], new]))) for k in (small, large)]
        count += gains[1] > gains[0] + 1e-12  # not for rounding alone
    return count / n_trials
