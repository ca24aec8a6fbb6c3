"""A task as a router sees it, and what comes back: features and losses in, weights out.

The base's features of the examples give each class a prototype and a spread. Three poolings turn those into one vector,
so that no order matters: moments over the classes, a sum of learnt class vectors (deep sets), or attention over them
(multi-source paper, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from smatter.algebra.layers import seeded_linear
from smatter.backbones.heads import prototype_head
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import LeaveOneOut, Objective
from smatter.records import Progress, silent
from smatter.settings.training import Pooling

N_RESAMPLES = 20
"""Of the examples, to see how much the weights depend on them."""


@dataclass(frozen=True)
class ClassStatistics:
    """What is kept of some labelled features.

    Args:
        prototypes: mean of each class, (n_classes, d).
        spreads: standard deviation within each class, zero for one example, (n_classes, d).
        sizes: examples of each class, (n_classes,).
    """

    prototypes: Tensor
    spreads: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, n_classes: int) -> ClassStatistics:
        """Statistics of features, (n, d), by label, (n,); every class has at least one.

        >>> ClassStatistics.of(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), 2).prototypes.tolist()
        [[2.0], [5.0]]
        """
        sizes = torch.bincount(labels, minlength=n_classes).to(features)
        sums = features.new_zeros(n_classes, features.shape[1]).index_add(0, labels, features)
        prototypes = sums / sizes[:, None]
        squares = (features - prototypes[labels]).square()
        spreads = (torch.zeros_like(sums).index_add(0, labels, squares) / sizes[:, None]).sqrt()
        return cls(prototypes, spreads, sizes)

    @property
    def shape_of_task(self) -> Tensor:
        """Ways, mean shots and unevenness of shots, on a logarithmic scale, (3,)."""
        logs = self.sizes.log()
        return torch.stack([torch.as_tensor(len(self.sizes)).to(logs).log(), logs.mean(), logs.std(correction=0)])


@dataclass(frozen=True)
class Encoded:
    """A task as a router sees it.

    Args:
        classes: class of each example, (n_examples,); every class has at least one.
        features: of the examples by the base, (n_examples, d); none where evidence alone is asked.
        losses: of each example by each source, (n_sources, n_examples), where they were asked for.
        accuracies: share of the examples that prototypes of each source name rightly, without having seen them; None
            where no class has one to spare.
    """

    classes: Tensor
    features: Tensor | None
    losses: Tensor | None
    accuracies: tuple[float | None, ...] = ()

    @cached_property
    def statistics(self) -> ClassStatistics:
        """Class statistics of the features."""
        assert self.features is not None
        return ClassStatistics.of(self.features, self.classes, int(self.classes.max()) + 1)

    def resampled(self, generator: torch.Generator) -> Encoded:
        """As if other examples had been given: as many of each class, drawn from these with replacement."""
        rows = []
        for label in range(int(self.classes.max()) + 1):
            members = (self.classes == label).nonzero().flatten()
            rows.append(members[torch.randint(len(members), (len(members),), generator=generator)])
        drawn = torch.cat(rows)
        return Encoded(
            self.classes[drawn],
            None if self.features is None else self.features[drawn],
            None if self.losses is None else self.losses[:, drawn],
        )

    def spread(self, weigh: Callable[[Encoded], Routing]) -> tuple[float, ...]:
        """Standard deviation of each source's mean weight over resampled examples; no pass of the network.

        Empty where a class has one example, of which no other can be drawn.
        """
        if int(torch.bincount(self.classes).min()) < 2:
            return ()
        generator = torch.Generator().manual_seed(0)
        rows = [weigh(self.resampled(generator)).weights.mean(dim=0) for _ in range(N_RESAMPLES)]
        return tuple(torch.stack(rows).std(dim=0).tolist())


@dataclass(frozen=True)
class Routing:
    """What a router says of a task.

    Args:
        weights: of the sources, (1 or n_modules, n_sources), each row on the simplex.
        scores: that they come from.
        experts: weight of each residual expert; what is missing to one is the null expert's. (n_experts,)
        expert_scores: that they and the null expert's weight come from, (n_experts + 1,).
        attention: how much the task is like each group of the probe set, (n_groups,).
        trust: beta, how much the evidence counts; zero without it.
    """

    weights: Tensor
    scores: Tensor
    experts: Tensor
    expert_scores: Tensor
    attention: Tensor
    trust: Tensor


def hear(live: LiveMixture, objective: Objective, sources: Sequence[str], progress: Progress = silent) -> Encoded:
    """What some frozen sources make of the examples, and nothing else: one pass of each."""
    losses, accuracies = list[Tensor](), list[float | None]()
    for own, read in _passes(live, objective, sources, progress):
        losses.append(own)
        accuracies.append(_held_out(objective, read))
    return Encoded(objective.classes, None, torch.stack(losses).double(), tuple(accuracies))


def source_losses(
    live: LiveMixture, objective: Objective, sources: Sequence[str], progress: Progress = silent
) -> Tensor:
    """The loss of each example by each of some frozen sources, (n_sources, n_examples): one pass of each."""
    losses = hear(live, objective, sources, progress).losses
    assert losses is not None
    return losses


def encode(
    live: LiveMixture, objective: Objective, sources: Sequence[str] = (), progress: Progress = silent
) -> Encoded:
    """One forward pass of each source whose evidence is wanted, and one of the base.

    The base is not passed twice: where every example is one row, its features are those of its evidence.

    Args:
        live: the network.
        objective: what the task asks of it.
        sources: whose evidence is wanted.
        progress: told the share of these sources that is done.
    """
    if not isinstance(objective, LeaveOneOut):
        raise InvalidSettings("a router compares classes, of which this task has none: use evidence or the solver")
    base, features, losses, accuracies = live.library.manifest.base, None, list[Tensor](), list[float | None]()
    for name, (own, read) in zip(sources, _passes(live, objective, sources, progress), strict=True):
        losses.append(own)
        accuracies.append(_held_out(objective, read))
        if name == base and len(read) == len(own):  # no example has several views
            features = read
    if features is None:
        live.compose(Mixture.of({base: 1.0}))
        features = live.features(objective.plain)
    return Encoded(objective.classes, features, torch.stack(losses).double() if losses else None, tuple(accuracies))


def _passes(
    live: LiveMixture, objective: Objective, sources: Sequence[str], progress: Progress
) -> Iterator[tuple[Tensor, Tensor]]:
    """Losses and readings of each source in turn, so that readings of one only are in memory."""
    for name in sources:
        live.compose(Mixture.of({name: 1.0}))
        read = live.read(objective)
        progress(1 / len(sources))
        yield objective.losses(read), read


def _held_out(objective: Objective, read: Tensor) -> float | None:
    accuracy = objective.held_out_accuracy(read, prototype_head)
    return accuracy if math.isfinite(accuracy) else None


def as_mixture(live: LiveMixture, weights: Tensor, sources: Sequence[str]) -> Mixture:
    """Weights of a router, (1 or n_modules, n_sources), as a mixture."""
    rows = weights.detach().double()
    rows = rows / rows.sum(dim=1, keepdim=True)
    modules = tuple(live.library.partition.modules) if len(rows) > 1 else ()
    return Mixture(tuple(sources), tuple(tuple(row) for row in rows.tolist()), modules)


class Summary(nn.Module):
    """Pools class statistics into a vector of `width`.

    Args:
        n_features: length d of a feature vector.
        width: of the result.
        pooling: how classes are pooled.
        generator: of the first weights.
    """

    N_QUERIES = 4

    def __init__(self, n_features: int, width: int, pooling: Pooling, generator: torch.Generator) -> None:
        super().__init__()
        self.pooling = pooling
        if pooling == "moments":
            self.project = seeded_linear(3 * n_features, width, generator)
        else:
            self.embed = nn.Sequential(seeded_linear(2 * n_features, width, generator), nn.GELU())
            self.project = seeded_linear(width * (self.N_QUERIES if pooling == "attention" else 1), width, generator)
        if pooling == "attention":
            self.queries = nn.Parameter(torch.randn(self.N_QUERIES, width, generator=generator) / width**0.5)

    def forward(self, classes: ClassStatistics) -> Tensor:
        """The vector of a task, (width,)."""
        prototypes, spreads = classes.prototypes, classes.spreads
        if self.pooling == "moments":
            pooled = torch.cat([prototypes.mean(dim=0), prototypes.std(dim=0, correction=0), spreads.mean(dim=0)])
        else:
            vectors: Tensor = self.embed(torch.cat([prototypes, spreads], dim=1))
            pooled = vectors.mean(dim=0)
            if self.pooling == "attention":
                pooled = ((self.queries @ vectors.T).softmax(dim=1) @ vectors).flatten()
        projected: Tensor = self.project(pooled)
        return projected
