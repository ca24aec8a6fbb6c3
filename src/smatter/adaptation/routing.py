"""A task as a router sees it, and what the router says of it as a mixture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.adaptation.evidence import source_losses
from smatter.adaptation.live import LiveMixture
from smatter.compose.mixture import Mixture
from smatter.route.summary import ClassStatistics
from smatter.tasks.support import Support


@dataclass(frozen=True)
class Encoded:
    """A task as a router sees it.

    Args:
        statistics: of its support set, in the base's features.
        losses: leave-one-out loss of each example by each source, (n_sources, n_examples), where it was asked for.
    """

    statistics: ClassStatistics
    losses: Tensor | None


def encode(
    live: LiveMixture,
    support: Support,
    sources: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Encoded:
    """One forward pass of the base, and one of each source whose evidence is wanted.

    Args:
        live: the network.
        support: the task's examples.
        sources: whose evidence is wanted.
        progress: told each of these sources.
    """
    live.compose(Mixture.of({live.library.manifest.base: 1.0}))
    features = live.features(live.prepare(support.inputs, support.kind))
    statistics = ClassStatistics.of(features, torch.tensor(support.labels), len(support.class_names))
    if not sources:
        return Encoded(statistics, None)
    return Encoded(statistics, source_losses(live, live.rows(support), sources, progress))


def as_mixture(live: LiveMixture, weights: Tensor, sources: Sequence[str]) -> Mixture:
    """Weights of a router, (1 or n_modules, n_sources), as a mixture."""
    rows = weights.detach().double()
    rows = rows / rows.sum(dim=1, keepdim=True)
    modules = tuple(live.library.partition.modules) if len(rows) > 1 else ()
    return Mixture(tuple(sources), tuple(tuple(row) for row in rows.tolist()), modules)
