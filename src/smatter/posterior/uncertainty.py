"""How unsure a routing is: scores U(S), higher for less sure (Bayes-routed paper, sections 5 and 9).

Some look at the examples alone, others at unlabelled queries too. Hard tasks have high scores whatever the routing;
what tells misrouted tasks from hard ones is measured in benchmarks/bayes.py, not promised here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from smatter.algebra.luck import difference_error
from smatter.backbones.heads import prototype_temperature
from smatter.errors import InvalidSettings
from smatter.posterior.bootstrap import bootstrap_votes, resampled_counts
from smatter.posterior.categorical import Categorical
from smatter.posterior.task_table import TaskTable

N_VOICES = 4
"""Routings that are compared on queries: the likeliest."""

N_RESAMPLES = 100


@dataclass(frozen=True)
class Facts:
    """What scores are computed from.

    Args:
        table: what the routings make of the task; its first row is the router's point.
        posterior: over the rows of the table.
        log_prior: of the rows, (n_routings,).
        base: the row of the base alone; none where no routing is that.
    """

    table: TaskTable
    posterior: Categorical
    log_prior: Tensor
    base: int | None

    @property
    def has_queries(self) -> bool:
        """Whether the routings were passed any."""
        return self.table.scores.shape[1] > 0

    @cached_property
    def losses(self) -> Tensor:
        """Mean leave-one-out loss of each routing, (n_routings,)."""
        return self.table.means

    @cached_property
    def voices(self) -> Tensor:
        """Probabilities of the classes of the queries by the likeliest routings, (N_VOICES, n_queries, n_classes)."""
        kept = self.posterior.logits.argsort(descending=True, stable=True)[:N_VOICES]
        return self._probabilities(self.table.scores[kept])

    @cached_property
    def own(self) -> Tensor:
        """The same by the point, (n_queries, n_classes)."""
        return self._probabilities(self.table.scores[0])

    def _probabilities(self, scores: Tensor) -> Tensor:
        return (scores.double() / prototype_temperature(self.table.n_shot)).softmax(dim=-1)


def unlikely(facts: Facts) -> float:
    """1 - max q: the probability that a random routing is not the likeliest one."""
    return 1 - float(facts.posterior.probs.max())


def entropy(facts: Facts) -> float:
    """Entropy of q, in nats."""
    return float(facts.posterior.entropy())


def near_prior(facts: Facts) -> float:
    """-KL(q || p): how little the examples have said. The paper takes +KL, which is largest for the surest router."""
    prior = facts.table.counted_once(Categorical(facts.posterior.points, facts.log_prior))
    return -float(facts.posterior.kl(prior))


def spread(facts: Facts) -> float:
    """Expected squared distance of a random routing from the mean one."""
    posterior = facts.posterior
    return float(posterior.probs @ (posterior.points.to(posterior.mean()) - posterior.mean()).square().sum(dim=1))


def flatness(facts: Facts) -> float:
    """How alike the routings explain the examples: entropy of evidence at one standard error, over its most."""
    logits = -facts.losses / difference_error(facts.table.losses)
    found = facts.table.counted_once(Categorical(facts.posterior.points, logits))
    return float(found.entropy()) / math.log(max(2, len(facts.table.firsts.unique())))


def resampling(facts: Facts) -> float:
    """Share of resampled supports that another routing than the usual one explains best; NaN for single examples."""
    classes = facts.table.classes
    if int(torch.bincount(classes).min()) < 2:
        return math.nan
    counts = resampled_counts(classes, N_RESAMPLES, torch.Generator().manual_seed(0))
    votes = bootstrap_votes(facts.posterior.points, facts.table.losses, counts)
    return 1 - float(facts.table.counted_once(votes).probs.max())


def loss(facts: Facts) -> float:
    """Leave-one-out loss of the point."""
    return float(facts.losses[0])


def base_gain(facts: Facts) -> float:
    """By how much the point's leave-one-out loss is above the base's; below zero where routing helps."""
    if facts.base is None:
        return math.nan
    return float(facts.losses[0] - facts.losses[facts.base])


def best_gain(facts: Facts) -> float:
    """By how much the point's leave-one-out loss is above that of the best routing, in standard errors."""
    return float((facts.losses[0] - facts.losses.min()) / difference_error(facts.table.losses))


def doubt(facts: Facts) -> float:
    """1 - mean largest probability of the point on the queries."""
    return 1 - float(facts.own.amax(dim=1).mean())


def narrowness(facts: Facts) -> float:
    """1 - mean difference of the two largest probabilities of the point on the queries."""
    first, second = facts.own.topk(2, dim=1).values.unbind(dim=1)
    return 1 - float((first - second).mean())


def disagreement(facts: Facts) -> float:
    """Share of queries that one of the likeliest routings names otherwise than the point, on average."""
    return float((facts.voices.argmax(dim=-1) != facts.own.argmax(dim=-1)).double().mean())


def base_disagreement(facts: Facts) -> float:
    """Share of queries that the base names otherwise than the point."""
    if facts.base is None:
        return math.nan
    return float((facts.table.scores[facts.base].argmax(dim=-1) != facts.own.argmax(dim=-1)).double().mean())


def mutual_information(facts: Facts) -> float:
    """Entropy of the average of the likeliest routings' predictions less their average entropy, mean over queries."""
    average = torch.special.entr(facts.voices.mean(dim=0)).sum(dim=-1)
    return float((average - torch.special.entr(facts.voices).sum(dim=-1).mean(dim=0)).mean())


SUPPORT: dict[str, Callable[[Facts], float]] = {
    score.__name__.replace("_", "-"): score
    for score in (unlikely, entropy, near_prior, spread, flatness, resampling, loss, base_gain, best_gain)
}
"""Scores that look at the examples alone, by name."""

QUERIES: dict[str, Callable[[Facts], float]] = {
    score.__name__.replace("_", "-"): score
    for score in (doubt, narrowness, disagreement, base_disagreement, mutual_information)
}
"""Scores that look at unlabelled queries too."""

SCORES = SUPPORT | QUERIES


def scores_of(facts: Facts) -> dict[str, float]:
    """All scores that can be told: those that look at queries, only where there are any."""
    able = SCORES if facts.has_queries else SUPPORT
    found = {name: score(facts) for name, score in able.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def check_score(name: str, has_queries: bool) -> None:
    """Refuse a score that does not exist, or that looks at queries where there are none."""
    if name not in SCORES:
        raise InvalidSettings(f"unknown score {name[:80]!r}: use one of {', '.join(SCORES)}")
    if name in QUERIES and not has_queries:
        raise InvalidSettings(
            f"{name} looks at inputs without labels: give them with --queries, or use one of {', '.join(SUPPORT)}"
        )
