"""From a posterior over routings to the networks that are run: decision rules (Bayes-routed paper, section 5).

A rule gives networks and weights of their scores. One network is one pass of each query; K are K passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.posterior import Posterior
from smatter.posterior.categorical import Categorical
from smatter.posterior.task_table import N_OWN, TaskTable
from smatter.settings.decisions import Rule


@dataclass(frozen=True)
class Deployed:
    """The networks of a task.

    Args:
        points: their routings, (n_networks, d), all different.
        weights: of their scores, (n_networks,), on the simplex.
    """

    points: Tensor
    weights: Tensor

    @classmethod
    def of(cls, points: Tensor, weights: Tensor) -> Deployed:
        """Routings that occur several times are one network, with all their weight."""
        distinct, place = points.unique(dim=0, return_inverse=True)
        together = weights.new_zeros(len(distinct)).index_add(0, place, weights)
        order = together.argsort(descending=True, stable=True)
        order = order[together[order] > 0]  # a network without weight would be run for nothing
        return cls(distinct[order], together[order] / together.sum())


def decide(rule: Rule, posterior: Posterior, point: Tensor, generator: torch.Generator) -> Deployed:
    """The networks that a rule takes.

    Args:
        rule: which.
        posterior: over routings of one task; `top` and `half` want a catalogue.
        point: the router's own routing, (d,).
        generator: of what is drawn.
    """
    if rule.name == "point":
        return Deployed(point[None], point.new_ones(1))
    if rule.name in ("mean", "map"):
        one = posterior.mean() if rule.name == "mean" else posterior.mode()
        return Deployed(one[None].to(point), point.new_ones(1))
    if rule.name == "gibbs":
        drawn = posterior.sample(rule.n_members, generator).to(point)
        return Deployed.of(drawn, point.new_full((rule.n_members,), 1 / rule.n_members))
    if not isinstance(posterior, Categorical):
        raise InvalidSettings(f"{rule} takes routings of a catalogue, and the posterior has none: use mean or gibbs:K")
    return _likeliest(rule, posterior, point)


def deployable(posterior: Categorical, rule: Rule, table: TaskTable) -> Categorical:
    """The posterior given that a rule can take the routing: several networks of a task open the same experts."""
    if rule.passes == 1:
        return posterior
    is_able = table.is_beside.clone()
    is_able[0] = True
    return replace(posterior, logits=posterior.logits.masked_fill(~is_able, -torch.inf))


def among_catalogue(posterior: Categorical, table: TaskTable) -> Categorical:
    """The posterior given that the routing is one of the catalogue, and not the router's own; each routing once.

    Args:
        posterior: over the rows of a table.
        table: whose first two rows are the router's own.
    """
    logits = posterior.logits[N_OWN:]
    if not bool(logits.isfinite().any()):
        raise InvalidSettings("no routing of the catalogue opens the experts that the task's networks share: use map")
    points, place = table.points[N_OWN:].unique(dim=0, return_inverse=True)
    shares = logits.new_zeros(len(points)).index_add(0, place, logits.softmax(dim=0))
    return Categorical(points, shares.log())


def _likeliest(rule: Rule, posterior: Categorical, point: Tensor) -> Deployed:
    logits = posterior.log_probs.detach()
    if rule.name == "half":
        logits = logits.masked_fill((posterior.points.to(point) == point).all(dim=1), -torch.inf)
    n_possible = int(logits.isfinite().sum())
    if rule.n_members > n_possible:
        raise InvalidSettings(f"{rule} takes more routings than the {n_possible} that there are: give fewer")
    kept = logits.argsort(descending=True, stable=True)[: rule.n_members]
    points, weights = posterior.points[kept].to(point), logits[kept].softmax(dim=0).to(point)
    if rule.name == "half":
        points, weights = torch.cat([point[None], points]), torch.cat([point.new_full((1,), 0.5), weights / 2])
    return Deployed.of(points, weights)


def robust_weights(weights: Tensor, losses: Tensor, radius: float) -> Tensor:
    """The worst weights within an l1 ball: mass moves from the least loss to the largest, (n_routings,).

    The loss at these weights is max {v.losses : v on the simplex, |v - weights|_1 <= radius}: what a choice may cost
    where the posterior itself is off by that much (Bayes-routed paper, section 3).

    Args:
        weights: on the simplex, (n_routings,).
        losses: of the routings, (n_routings,).
        radius: of the ball, from 0 to 2.

    >>> robust_weights(torch.tensor([0.6, 0.3, 0.1]), torch.tensor([1.0, 2.0, 3.0]), 1.0)
    tensor([0.1000, 0.3000, 0.6000])
    """
    if not 0 <= radius <= 2:
        raise InvalidSettings(f"weights on a simplex differ by at most 2: give a radius from 0 to 2, not {radius}")
    order = losses.argsort()
    sorted_weights = weights[order]
    left = (sorted_weights.cumsum(dim=0) - radius / 2).clamp(min=0)
    kept = torch.cat([left[:1], left.diff()])
    kept[-1] = kept[-1] + (1 - kept.sum())
    return torch.empty_like(weights).scatter(0, order, kept)
