"""The query loss of a routed network, and its gradient in all that a router learns (multi-source paper, section 6).

The network is composed with weights and residual as the router gives them, and passed backward once. From the gradient
G in its parameters follows the gradient in the weights, <G, source>, with sources read where they lie, and in the
residual, G itself. Both enter the router's graph as constants of a linear function, so that no gradient is ever kept
for a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smatter.adaptation.evidence import source_losses
from smatter.adaptation.flat import FlatView
from smatter.adaptation.live import EpisodeRows, LiveMixture
from smatter.compose.mixture import Mixture
from smatter.route.experts import Experts
from smatter.route.router import Router, Routing
from smatter.route.summary import ClassStatistics
from smatter.tasks.episode import Episode, Examples
from smatter.tasks.support import Support


@dataclass(frozen=True)
class Encoded:
    """A task as a router sees it.

    Args:
        statistics: of its support set, in the base's features.
        losses: leave-one-out loss of each source, (n_sources,), where evidence was asked for.
    """

    statistics: ClassStatistics
    losses: Tensor | None


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


def encode(live: LiveMixture, support: Examples, n_way: int, sources: Sequence[str] = ()) -> Encoded:
    """One forward pass of the base, and one of each source whose evidence is wanted."""
    inputs, labels = live.examples(support.inputs), torch.from_numpy(support.labels)
    live.compose(Mixture.of({live.library.manifest.base: 1.0}))
    statistics = ClassStatistics.of(live.features(inputs), labels, n_way)
    if not sources:
        return Encoded(statistics, None)
    given = support.inputs if isinstance(support.inputs, tuple) else inputs["pixel_values"]
    rows = live.rows(Support.of(given, labels))
    return Encoded(statistics, torch.tensor(source_losses(live, rows, sources)))


def as_mixture(live: LiveMixture, weights: Tensor, sources: Sequence[str]) -> Mixture:
    """Weights of a router, (1 or n_modules, n_sources), as a mixture."""
    rows = weights.detach().double()
    rows = rows / rows.sum(dim=1, keepdim=True)
    modules = tuple(live.library.partition.modules) if len(rows) > 1 else ()
    return Mixture(tuple(sources), tuple(tuple(row) for row in rows.tolist()), modules)


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
    encoded = encode(live, episode.support, episode.n_way, sources if with_evidence else ())
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


def episode_rows(live: LiveMixture, episode: Episode) -> EpisodeRows:
    """Support set and queries as the network takes them; the queries' labels are the truth."""
    support, query = episode.support.inputs, episode.query.inputs
    labels = torch.from_numpy(np.concatenate([episode.support.labels, episode.query.truth]))
    values = (*support, *query) if isinstance(support, tuple) else np.concatenate([support, np.asarray(query)])
    return EpisodeRows(live.examples(values), labels, torch.arange(len(labels)), episode.n_way, len(episode.support))
