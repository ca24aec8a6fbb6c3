"""A posterior over the routings of a finite catalogue, with exact divergences, and gradients through its samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.errors import InvalidSettings


@dataclass(frozen=True)
class Categorical:
    """q(A | S) = softmax(logits) over the rows of a catalogue.

    Where its samples need a gradient, relax it, `Concrete(logits, temperature)`, or use `score_function_loss`.

    Args:
        points: the routings, (n_routings, d).
        logits: of each routing, (..., n_routings); -inf for one that cannot be.
    """

    points: Tensor
    logits: Tensor

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or len(self.points) != self.logits.shape[-1] or not len(self.points):
            shapes = f"{tuple(self.points.shape)} points and {tuple(self.logits.shape)} logits"
            raise InvalidSettings(f"{shapes}: give a logit of each routing of a catalogue that has some")

    @property
    def log_probs(self) -> Tensor:
        """Log-probability of each routing, (..., n_routings)."""
        return self.logits.log_softmax(dim=-1)

    @property
    def probs(self) -> Tensor:
        """Probability of each routing, (..., n_routings)."""
        return self.logits.softmax(dim=-1)

    def choose(self, n: int, generator: torch.Generator) -> Tensor:
        """Indices of random routings, (n, ...)."""
        rows = self.probs.detach().reshape(-1, len(self.points))
        drawn = torch.multinomial(rows, n, replacement=True, generator=generator)
        return drawn.T.reshape(n, *self.logits.shape[:-1])

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Random routings, (n, ..., d)."""
        return self.points[self.choose(n, generator)]

    def mean(self) -> Tensor:
        """The expected routing, (..., d)."""
        return self.probs @ self.points.to(self.logits)

    def mode(self) -> Tensor:
        """The routing of largest probability, (..., d)."""
        return self.points[self.logits.argmax(dim=-1)]

    def log_prob(self, points: Tensor) -> Tensor:
        """Log-probability of routings, (..., d); -inf for those that are not in the catalogue."""
        is_row = (points.unsqueeze(-2) == self.points).all(dim=-1)
        return self.log_probs.masked_fill(~is_row, -torch.inf).logsumexp(dim=-1)

    def kl(self, prior: Categorical) -> Tensor:
        """sum_A q(A) log q(A) / p(A), (...); infinite where the prior excludes what q does not."""
        return _expected(self.probs, self.log_probs - prior.log_probs)

    def entropy(self) -> Tensor:
        """-sum_A q(A) log q(A), (...)."""
        return -_expected(self.probs, self.log_probs)

    def discretised(self, points: Tensor) -> Categorical:
        """The probabilities of another catalogue, (n_routings, d): each routing's goes to the one nearest to it."""
        nearest = torch.cdist(self.points.to(points), points).argmin(dim=-1)
        shares = self.probs.new_zeros(*self.logits.shape[:-1], len(points)).index_add(-1, nearest, self.probs)
        return Categorical(points, shares.log())


def nearest_shares(samples: Tensor, points: Tensor) -> Categorical:
    """How often each routing of a catalogue is the one nearest to a sample.

    Args:
        samples: random routings, (n, ..., d).
        points: the catalogue, (n_routings, d).
    """
    nearest = torch.cdist(samples.flatten(0, -2), points.to(samples)).argmin(dim=-1).reshape(samples.shape[:-1])
    counts = samples.new_zeros(*samples.shape[1:-1], len(points))
    counts.scatter_add_(-1, nearest.movedim(0, -1), samples.new_ones(()).expand_as(nearest.movedim(0, -1)))
    return Categorical(points, (counts / len(samples)).log())


def score_function_loss(log_probs: Tensor, losses: Tensor, baseline: Tensor | None = None) -> Tensor:
    """The mean loss of samples, (...), whose gradient in q is that of its expectation, without bias.

    grad E_q l(A) = E_q (l(A) - b) grad log q(A) for any b that does not depend on A; what the losses themselves
    depend on has its own gradient as usual.

    Args:
        log_probs: log q(A) of each sample, (n, ...).
        losses: of each sample, (n, ...).
        baseline: b, (...) or (n, ...); the mean of the other samples by default, and zero for a single one.
    """
    n = len(losses)
    if baseline is None:
        baseline = (losses.sum(dim=0) - losses) / (n - 1) if n > 1 else torch.zeros_like(losses)
    score = ((losses - baseline).detach() * log_probs).mean(dim=0)
    return losses.mean(dim=0) + score - score.detach()


def _expected(probs: Tensor, values: Tensor) -> Tensor:
    """Expected values, (...); what has no probability counts nothing, whatever its value."""
    return (probs * values.masked_fill(probs == 0, 0.0)).sum(dim=-1)
