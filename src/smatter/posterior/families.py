"""Families of posteriors over the rows of a table, from scores of the rows (Bayes-routed paper, section 4).

    categorical      q = softmax(log p + s)
    concrete         the same, learnt through relaxed samples of it
    two-level        q(row) = q(family) q(row | family): the strongest source first, then a routing in which it is
    logistic-normal  a density over weights of the rows: softmax of u ~ N(log p + s, scale^2)
    dirichlet        a density over weights of the rows, with concentrations in proportion to p exp(s)

The last two are densities on the simplex of the rows. Their points say how the rows' *predictions* are averaged, which
is what a table knows the loss of, and a row is drawn with their mean weights. Densities over mixtures of *parameters*,
(w, alpha), cannot be learnt from a table: every sample would be a network that no row has run.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from smatter.errors import InvalidSettings
from smatter.posterior.categorical import Categorical
from smatter.posterior.dirichlet import Dirichlet
from smatter.posterior.logistic_normal import LogisticNormal, logit_gaussian
from smatter.settings.posteriors import Family

Density = Categorical | LogisticNormal | Dirichlet

FARTHEST = 6.0
"""Nats by which a scale or a concentration may leave the prior's: beyond it samples are vertices, or all alike."""

LEAST = -20.0
"""The least log-probability of a routing in a Dirichlet's prior: its concentration must be above zero in float32."""

NOTHING = -1e9
"""A log-probability that is none, and has a gradient."""


def row_families(points: Tensor, n_sources: int) -> Tensor:
    """The number of each row's family, (..., n_routings): its strongest source, or n_sources where several are.

    Args:
        points: the rows, (..., n_routings, d).
        n_sources: weights of a point that are those of sources.
    """
    strengths, strongest = points[..., :n_sources].topk(min(2, n_sources), dim=-1)
    is_shared = (strengths[..., 0] == strengths[..., -1]) & (n_sources > 1)
    return torch.where(is_shared, n_sources, strongest[..., 0])


class UpperLevel(NamedTuple):
    """The upper level of two: the number of each row's family, (..., n_routings), and its score, (..., n_families)."""

    families: Tensor
    scores: Tensor


def density_of(
    family: Family, points: Tensor, log_prior: Tensor, scores: Tensor, levels: UpperLevel | None = None
) -> Density:
    """The posterior of a task, or of several; the prior, where all scores are zero.

    Args:
        family: which.
        points: the rows, (n_routings, d).
        log_prior: log p, (n_routings,); -inf for rows that must not be chosen, in a categorical posterior alone.
        scores: of the rows, (..., n_routings, 1), or 2 of a logistic-normal, whose second are log-scales.
        levels: the upper level, of a two-level posterior.
    """
    prior = log_prior.to(scores).log_softmax(dim=0)
    own = prior + scores[..., 0]
    if family in ("categorical", "concrete"):
        return Categorical(points, own)
    if not bool(prior.isfinite().all()):
        raise InvalidSettings(f"a {family} posterior gives every routing some weight: use a prior that does, too")
    if family == "two-level":
        return Categorical(points, own if levels is None else _two_levels(prior, own, levels))
    if family == "dirichlet":
        own = prior.clamp(min=LEAST) + scores[..., 0].clamp(-FARTHEST, FARTHEST)
        return Dirichlet(len(prior) * own.exp())
    # Over all logits, so that it does not matter which row is the last one.
    scale = scores[..., 1].clamp(-FARTHEST, FARTHEST).exp()
    return LogisticNormal.of_logits(logit_gaussian(own, scale))


def _two_levels(prior: Tensor, own: Tensor, levels: UpperLevel) -> Tensor:
    """log q(family of a row) + log q(row | family), (..., n_routings)."""
    members = one_hot(levels.families, levels.scores.shape[-1]).bool().mT

    def totals(logits: Tensor) -> Tensor:
        """log sum exp of the rows of each family, (..., n_families); next to nothing of one without rows."""
        return logits.unsqueeze(-2).masked_fill(~members, NOTHING).logsumexp(dim=-1)

    upper = (totals(prior) + levels.scores).log_softmax(dim=-1)
    return own + (upper - totals(own)).gather(-1, levels.families)


def divergence(posterior: Density, prior: Density) -> Tensor:
    """KL(q || p) of two densities of one family, exact."""
    if isinstance(posterior, Dirichlet) and isinstance(prior, Dirichlet):
        return posterior.kl(prior)
    if isinstance(posterior, LogisticNormal) and isinstance(prior, LogisticNormal):
        return posterior.kl(prior)
    assert isinstance(posterior, Categorical) and isinstance(prior, Categorical)
    return posterior.kl(prior)


def chosen_rows(points: Tensor, density: Density) -> Categorical:
    """How likely each row is drawn: with the mean weights, where the posterior is a density of weights."""
    return Categorical(points, density.log_probs if isinstance(density, Categorical) else density.mean().log())
