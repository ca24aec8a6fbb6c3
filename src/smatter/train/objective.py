"""The query loss of a routed network, and its gradient in all that a router learns (multi-source paper, section 6).

The network is composed with weights and residual as the router gives them, and passed backward once. From the gradient
G in its parameters follows the gradient in the weights, <G, source>, with sources read where they lie, and in the
residual, G itself. Both enter the router's graph as constants of a linear function, so that no gradient is ever kept
for a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from smatter.adaptation.episodes import episode_rows, prepared_support
from smatter.adaptation.flat import FlatView
from smatter.adaptation.live import LiveMixture
from smatter.adaptation.routing import as_mixture, encode
from smatter.route.experts import Experts
from smatter.route.router import Router, Routing
from smatter.tasks.episode import Episode


@dataclass(frozen=True)
class TaskLoss:
    """The loss of one task.

    Args:
        value: mean loss of its queries.
        slope: a scalar whose gradient is that of the loss.
        routing: what the router said.
    """

    value: float
    slope: Tensor
    routing: Routing


def task_loss(
    live: LiveMixture,
    flat: FlatView,
    router: Router,
    experts: Experts | None,
    gates: Tensor | None,
    episode: Episode,
    sources: Sequence[str],
    descriptors: Tensor,
    with_evidence: bool,
) -> TaskLoss:
    """Route a task, and pass its queries forward and backward through what comes of it.

    Args:
        live: the network.
        flat: its parameters as a vector.
        router: gives the weights.
        experts: give the residual, where there are any.
        gates: of the experts, (n_experts, n_units).
        episode: support and queries.
        sources: to mix.
        descriptors: of these sources, relative to the base's.
        with_evidence: whether the router is told how each source does on the support set.
    """
    encoded = encode(live, prepared_support(live, episode), sources if with_evidence else ())
    routing: Routing = router(encoded.statistics, descriptors, encoded.losses)
    delta = None
    if experts is not None and gates is not None:
        delta = experts.residual(routing.experts, gates)
    residual = None if delta is None else flat.residual(delta.detach())
    live.compose(as_mixture(live, routing.weights, sources), residual)
    value = live.backward(episode_rows(live, episode))
    slopes = live.inner_products(sources).to(routing.weights)
    if len(routing.weights) == 1:
        slopes = slopes.sum(dim=0, keepdim=True)
    slope = (slopes * routing.weights).sum()
    if delta is not None:
        slope = slope + (flat.gradient() * delta).sum()
    live.forget()
    return TaskLoss(value, slope, routing)
