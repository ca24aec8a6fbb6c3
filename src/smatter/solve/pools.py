"""Weights of sources in prediction space: pools of what frozen sources say about labelled rows.

A log-pool mixes scores, a linear pool mixes probabilities (Genest and Zidek, 1986). Both losses are convex in w:

    log-pool     sum_i a_i [ logsumexp_c sum_r w_r l_r[i, c]  -  sum_r w_r l_r[i, y_i] ]
    linear pool  sum_i a_i [ -log sum_r w_r softmax(l_r[i])[y_i] ]

where the rows' weights a sum to one. A pull towards weights u may be added, pull / (2 n) R ||w - u||^2 for n rows: few
rows say little, and where they say nothing the plain average is a good pool.
"""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import torch
from torch import Tensor

from smatter.solve.problem import CurvedProblem, Evaluation, Expansion

BOUND = 1e6
"""Scores further than this from the true class's count as this far: masked classes have a score of -inf, and -inf
times a weight of zero is not a number."""

FLOOR = -200.0
"""Least log-probability of the true class relative to the best source's. Lower ones would matter only where the best
source has almost no weight, and there the Hessian would overflow."""

SAFE = 300.0
"""Differences below this can be exponentiated as they are, without the two passes that take their maximum off."""

LARGE = torch.finfo(torch.float64).max / 4

PIECE = 2**18
"""Numbers that are worked on at a time, few enough for a processor's cache: twice as fast as all at once."""


@dataclass(frozen=True)
class _Pool(CurvedProblem):
    """What both pools share: weighted rows, the pull, and work in pieces.

    Args:
        terms: what the pool keeps of the scores, (n_tasks, n_sources, ..., n_rows).
        constant: part of the loss that no weights change, (n_tasks,).
        row_weights: a, (n_tasks, n_rows).
        strength: of the pull, pull R / n, (n_tasks, 1, 1).
        center: weights that it pulls to, (n_tasks, 1, n_sources).
    """

    terms: Tensor
    constant: Tensor
    row_weights: Tensor
    strength: Tensor
    center: Tensor
    is_convex = True

    @classmethod
    def of(
        cls,
        scores: Tensor,
        labels: Tensor,
        row_weights: Tensor | None = None,
        pull: float = 0.0,
        center: Tensor | None = None,
    ) -> Self:
        """The problem of a batch of tasks, in float64.

        A row that counts zero times may hold anything. NaN in any other row makes the loss of its task NaN, and a run
        ends it with `Status.DIVERGED`: it is for the caller to leave such a source out.

        Args:
            scores: logits of each source, (n_tasks, n_sources, n_rows, n_classes); -inf, or very low, for classes
                that a task does not have.
            labels: the true class of each row, (n_tasks, n_rows).
            row_weights: how many times each row counts, (n_tasks, n_rows), zero for padding; once by default.
            pull: how strong it is, in rows.
            center: weights that it pulls to, (n_sources,) or (n_tasks, n_sources); the plain average by default.
        """
        n_tasks, n_sources, n_rows, n_classes = scores.shape
        counts = (scores.new_ones(n_tasks, n_rows) if row_weights is None else row_weights).to(torch.float64)
        n = counts.sum(dim=1, keepdim=True)
        if n_classes < 2:
            raise ValueError("scores of a single class say nothing: give two classes or more")
        if not bool((counts >= 0).all() & (n > 0).all()):
            raise ValueError("rows must count zero times or more, and each task needs one that counts")
        if not pull >= 0:
            raise ValueError(f"a pull of {pull} would push the weights away: give zero or more")
        size = _tasks_at_a_time(scores)
        parts = zip(scores.split(size), labels.split(size), (counts / n).split(size), strict=True)
        terms, constant = _joined((cls._terms(_differences(*part), part[-1]) for part in parts), n_tasks)
        middle = counts.new_full((n_sources,), 1 / n_sources) if center is None else center.to(counts)
        return cls(
            terms,
            constant,
            row_weights=counts / n,
            strength=pull * n_sources / n[:, :, None],
            center=middle.expand(n_tasks, n_sources)[:, None],
        )

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss and its gradient."""
        return Evaluation(*self._pulled(point, 1))

    def value(self, point: Tensor) -> Tensor:
        """The loss of each task."""
        return self._pulled(point, 0)[0]

    def expand(self, point: Tensor) -> Expansion:
        """The loss, its gradient, and its Hessian, (n_tasks, n_sources, n_sources)."""
        return Expansion(*self._pulled(point, 2))

    def select(self, tasks: Tensor | slice) -> Self:
        """The problem of some tasks."""
        return type(self)(*(getattr(self, field.name)[tasks] for field in fields(self)))

    def _pulled(self, point: Tensor, order: int) -> list[Tensor]:
        """The loss and its derivatives up to an order, (n_tasks,) and so on."""
        size = _tasks_at_a_time(self.terms)
        starts = range(0, len(point), size)
        pieces = (self.select(slice(at, at + size))._derivatives(point[at : at + size], order) for at in starts)
        whole = _joined(pieces, len(point))
        away = point - self.center
        slope = self.strength * away
        whole[0] += self.constant + 0.5 * (slope * away).sum(dim=(1, 2))
        if order >= 1:
            whole[1] += slope
        if order >= 2:
            whole[2].diagonal(dim1=1, dim2=2).add_(self.strength[:, 0])
        return whole

    @classmethod
    @abstractmethod
    def _terms(cls, differences: Tensor, row_weights: Tensor) -> tuple[Tensor, Tensor]:
        """Terms and constant of some tasks, from what `_differences` gives."""

    @abstractmethod
    def _derivatives(self, point: Tensor, order: int) -> tuple[Tensor, ...]:
        """The loss without constant and pull, and its derivatives up to an order."""


class LogPool(_Pool):
    """Loss of the softmax of mixed scores.

    Its terms are the scores of the wrong classes less that of the true one, (n_tasks, n_sources, n_classes - 1,
    n_rows): one product with w gives all that the losses depend on.
    """

    @classmethod
    def _terms(cls, differences: Tensor, row_weights: Tensor) -> tuple[Tensor, Tensor]:
        return differences, torch.zeros_like(row_weights[:, 0])

    def _derivatives(self, point: Tensor, order: int) -> tuple[Tensor, ...]:
        flat = self.terms.flatten(2)
        losses, powers, totals = _surprise((point @ flat).reshape(-1, *self.terms.shape[2:]))
        value = (losses * self.row_weights).sum(dim=1)
        if order == 0:
            return (value,)
        slopes = (powers * (self.row_weights / totals)[:, None]).flatten(1)[:, None]
        if order == 1:
            return value, slopes @ flat.mT
        # sum_i a_i [ E_i(d d') - E_i(d) E_i(d)' ] over the differences d of row i; the true class's are zero.
        weighted = flat * slopes
        sums = weighted.reshape(self.terms.shape).sum(dim=2)
        means = sums / self.row_weights.clamp(min=torch.finfo(sums.dtype).tiny)[:, None]
        return value, sums.sum(dim=2)[:, None], weighted @ flat.mT - sums @ means.mT


class LinearPool(_Pool):
    """Loss of mixed probabilities.

    Its terms are each source's probability of the true class over the best source's, (n_tasks, n_sources, n_rows).
    """

    @classmethod
    def _terms(cls, differences: Tensor, row_weights: Tensor) -> tuple[Tensor, Tensor]:
        logs = -_surprise(differences).losses
        best = logs.amax(dim=1, keepdim=True)
        return (logs - best).clamp(min=FLOOR).exp(), -(best[:, 0] * row_weights).sum(dim=1)

    def _derivatives(self, point: Tensor, order: int) -> tuple[Tensor, ...]:
        mixed = point @ self.terms
        value = -(mixed[:, 0].log() * self.row_weights).sum(dim=1)
        if order == 0:
            return (value,)
        ratios = self.terms / mixed
        weighted = ratios * self.row_weights[:, None]
        gradient = -weighted.sum(dim=2)[:, None]
        return (value, gradient) if order == 1 else (value, gradient, weighted @ ratios.mT)


def _joined(pieces: Iterable[tuple[Tensor, ...]], n_tasks: int) -> list[Tensor]:
    """Pieces end to end, each let go once it is copied: `cat` would need all of them twice."""
    whole: list[Tensor] = []
    at = 0
    for piece in pieces:
        whole = whole or [part.new_empty(n_tasks, *part.shape[1:]) for part in piece]
        for target, part in zip(whole, piece, strict=True):
            target[at : at + len(part)] = part
        at += len(piece[0])
    return whole


def _tasks_at_a_time(batch: Tensor) -> int:
    return max(1, PIECE * len(batch) // max(1, batch.numel()))


class _Surprise(NamedTuple):
    """-log p of the true class, (..., n_rows); p of the wrong ones is powers over totals."""

    losses: Tensor
    powers: Tensor
    totals: Tensor


def _differences(scores: Tensor, labels: Tensor, row_weights: Tensor) -> Tensor:
    """Scores of the wrong classes less that of the true one, (n_tasks, n_sources, n_classes - 1, n_rows).

    Rows lie last because sums over classes are faster so. Rows that weigh nothing become zero, whatever they hold.
    """
    by_class = scores.mT.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
    true = labels[:, None, None].expand(-1, scores.shape[1], 1, -1)
    # Where the true class is at -inf too, a masked class stays below it.
    own = by_class.gather(2, true).clamp(-LARGE, LARGE)
    # The first class takes the true one's place, and its own is dropped.
    wrong = by_class.scatter_(2, true, by_class[:, :, :1].clone())[:, :, 1:]
    differences = (wrong - own).clamp_(-BOUND, BOUND)
    empty = row_weights == 0
    return differences.masked_fill_(empty[:, None, None], 0.0) if bool(empty.any()) else differences


def _surprise(differences: Tensor) -> _Surprise:
    """From scores of the wrong classes less that of the true one, (..., n_classes - 1, n_rows)."""
    if bool(differences.amax() < SAFE):
        powers = differences.exp()
        above = powers.sum(dim=-2)
        return _Surprise(above.log1p(), powers, 1 + above)
    top = differences.amax(dim=-2).clamp(min=0)
    powers = (differences - top.unsqueeze(-2)).exp_()
    # With the true class's power, exp(-top), less one: so log1p is exact for small losses here too.
    above = powers.sum(dim=-2) + torch.expm1(-top)
    return _Surprise(top + above.log1p(), powers, 1 + above)
