"""A task as a router sees it, and what the router says of it as a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from smatter.adaptation.evidence import source_losses
from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.records import Progress, silent
from smatter.route.summary import ClassStatistics
from smatter.tasks.support import Support


@dataclass(frozen=True)
class Encoded:
    """A task as a router sees it.

    Args:
        features: of its support set by the base, (n_examples, d).
        labels: class of each, (n_examples,); every class has at least one.
        losses: leave-one-out loss of each example by each source, (n_sources, n_examples), where it was asked for.
    """

    features: Tensor
    labels: Tensor
    losses: Tensor | None

    @cached_property
    def statistics(self) -> ClassStatistics:
        """Class statistics of the features."""
        return ClassStatistics.of(self.features, self.labels, int(self.labels.max()) + 1)

    def resampled(self, generator: torch.Generator) -> Encoded:
        """As if other examples had been given: as many of each class, drawn from these with replacement."""
        rows = []
        for label in range(int(self.labels.max()) + 1):
            members = (self.labels == label).nonzero().flatten()
            rows.append(members[torch.randint(len(members), (len(members),), generator=generator)])
        drawn = torch.cat(rows)
        losses = None if self.losses is None else self.losses[:, drawn]
        return Encoded(self.features[drawn], self.labels[drawn], losses)


def encode(
    live: LiveMixture,
    support: Support,
    sources: Sequence[str] = (),
    progress: Progress = silent,
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
    labels = torch.tensor(support.labels)
    if not sources:
        return Encoded(features, labels, None)
    return Encoded(features, labels, source_losses(live, live.rows(support), sources, progress))


def as_mixture(live: LiveMixture, weights: Tensor, sources: Sequence[str]) -> Mixture:
    """Weights of a router, (1 or n_modules, n_sources), as a mixture."""
    rows = weights.detach().double()
    rows = rows / rows.sum(dim=1, keepdim=True)
    modules = tuple(live.library.partition.modules) if len(rows) > 1 else ()
    return Mixture(tuple(sources), tuple(tuple(row) for row in rows.tolist()), modules)
