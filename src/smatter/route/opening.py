"""A task, routed: what a trained router says of it, with evidence about the sources and about residual experts.

A router learns which experts open on the renderings that it has seen; the loss of the task's mixture with each of them
tells of one that it has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from smatter.algebra.luck import difference_error
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Objective
from smatter.records import Progress, part, silent
from smatter.route.encode import Encoded, Routing, as_mixture, encode
from smatter.route.evidence import pooled_weights
from smatter.route.experts import used
from smatter.route.store import Ask, TrainedRouter

TRUST = 0.35
"""The power of what the router says beside the evidence; chosen on validation tasks of Signs."""


@dataclass(frozen=True)
class Routed:
    """What a router says of a task, and of which facts.

    Args:
        ask: the router with the library's sources.
        encoded: the task as it sees it.
        routing: what it says.
    """

    ask: Ask
    encoded: Encoded
    routing: Routing

    @cached_property
    def prior(self) -> Tensor:
        """Weights of the sources where the router is told nothing of their losses, (n_sources,)."""
        return self.ask(replace(self.encoded, losses=None)).weights.mean(dim=0)

    @property
    def point(self) -> Tensor:
        """The routing as a point: weights of the sources, of the experts and, last, of the null expert, (d,)."""
        alpha = self.routing.experts.double()
        return torch.cat([self.routing.weights.double().mean(dim=0), alpha, 1 - alpha.sum()[None]])

    @property
    def uncertainty(self) -> dict[str, float]:
        """Entropy of the weights of the sources, and their divergence from the prior, KL(w || p), in nats.

        Both are watched for drift, in either direction: neither alone says that a routing is bad.
        """
        weights, prior = self.routing.weights.double().mean(dim=0), self.prior.double()
        floor = torch.finfo(torch.float32).tiny
        return {
            "weight-entropy": float(torch.special.entr(weights).sum()),
            "weight-divergence": float(torch.special.xlogy(weights, weights / prior.clamp_min(floor)).sum()),
        }

    @property
    def pooled(self) -> Tensor:
        """Weights of the sources' predictions, (n_sources,): by evidence and the prior, where there is evidence."""
        if self.encoded.losses is None:
            return self.routing.weights.mean(dim=0)
        return pooled_weights(self.encoded.losses, prior=self.prior)


def route_task(
    live: LiveMixture,
    objective: Objective,
    trained: TrainedRouter,
    *,
    evidence: bool = True,
    experts: bool = True,
    max_sources: int | None = None,
    progress: Progress = silent,
) -> Routed:
    """Ask a trained router: a pass of the base, and of each source and each expert for evidence.

    Args:
        live: the library's network.
        objective: what the task asks of it.
        trained: the router.
        evidence: whether sources and experts are passed the examples.
        experts: whether experts are; without them the routing has what the router itself says of them.
        max_sources: the most sources with weight; all by default.
        progress: told the share of the passes that is done.
    """
    sources: Sequence[str] = live.library.names
    passing, opening = part(progress, 0.5), part(progress, 0.5)
    encoded = encode(live, objective, sources if evidence else (), passing)
    ask = trained.ask(live, sources, max_sources)
    routing = ask(encoded)
    if evidence and experts:
        routing = open_by_evidence(live, objective, trained, routing, opening)
    return Routed(ask, encoded, routing)


def open_by_evidence(
    live: LiveMixture, objective: Objective, trained: TrainedRouter, routing: Routing, progress: Progress = silent
) -> Routing:
    """The routing with its experts weighed by evidence too: a pass of the mixture with each of them, and without.

    Args:
        live: the network.
        objective: what the task asks of it.
        trained: whose experts; a router without any leaves the routing as it is.
        routing: what the router says.
        progress: told the share of the passes that is done.
    """
    if not len(routing.experts):
        progress(1)
        return routing
    losses = expert_losses(live, objective, trained, routing, progress)
    return replace(routing, experts=weigh_experts(routing.expert_scores, losses))


def weigh_experts(scores: Tensor, losses: Tensor) -> Tensor:
    """Weights of the experts, (n_experts,), in proportion to pi^TRUST exp(-loss / error); the rest is null's.

    Args:
        scores: of the router, of which pi is the softmax; the last is the null expert's. (n_experts + 1,)
        losses: of each example with each expert and, last, without any, (n_experts + 1, n_examples); an expert that
            gives no number gets no weight.

    >>> weigh_experts(torch.zeros(3), torch.tensor([[0.1, 0.2, 0.1], [2.0, 1.9, 2.2], [2.1, 2.0, 1.9]]))
    tensor([1., 0.])
    """
    losses = losses.double()
    means = losses.mean(dim=1).nan_to_num(nan=torch.inf, posinf=torch.inf)
    logits = TRUST * scores.detach().double().log_softmax(dim=0)
    if bool(means.isfinite().any()):
        logits = logits - means / difference_error(losses)
    return used(logits.softmax(dim=0)[:-1].float())


def expert_losses(
    live: LiveMixture, objective: Objective, trained: TrainedRouter, routing: Routing, progress: Progress = silent
) -> Tensor:
    """The loss of each example by the mixture with each expert alone, fully open, and last with none.

    (n_experts + 1, n_examples); arguments as `open_by_evidence` has them.
    """
    mixture = as_mixture(live, routing.weights, live.library.names).without_idle()
    n_experts, losses = len(routing.experts), []
    for row in (*torch.eye(n_experts), torch.zeros(n_experts)):
        live.compose(live.library.recipe(mixture, experts=trained.mix(live, row)))
        losses.append(objective.losses(live.read(objective)))
        progress(1 / (n_experts + 1))
    return torch.stack(losses).double()
