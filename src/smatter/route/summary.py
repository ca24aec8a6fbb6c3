"""A task as a vector: class statistics of features, pooled so that no order matters (multi-source paper, section 6).

The base's features of the support set give each class a prototype and a spread. Three poolings turn those into one
vector: moments over the classes, a sum of learnt class vectors (deep sets), or attention over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Pooling = Literal["moments", "deep-sets", "attention"]


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
            self.project = linear(3 * n_features, width, generator)
        else:
            self.embed = nn.Sequential(linear(2 * n_features, width, generator), nn.GELU())
            self.project = linear(width * (self.N_QUERIES if pooling == "attention" else 1), width, generator)
        if pooling == "attention":
            self.queries = nn.Parameter(torch.randn(self.N_QUERIES, width, generator=generator) / width**0.5)

    def forward(self, classes: ClassStatistics) -> Tensor:
        """The vector of a task, (width,)."""
        pooled: Tensor = self.project(self._pooled(classes.prototypes, classes.spreads))
        return pooled

    def _pooled(self, prototypes: Tensor, spreads: Tensor) -> Tensor:
        if self.pooling == "moments":
            return torch.cat([prototypes.mean(dim=0), prototypes.std(dim=0, correction=0), spreads.mean(dim=0)])
        vectors: Tensor = self.embed(torch.cat([prototypes, spreads], dim=1))
        if self.pooling == "deep-sets":
            return vectors.mean(dim=0)
        return ((self.queries @ vectors.T).softmax(dim=1) @ vectors).flatten()


def linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer whose first weights come from a generator; biases are zero."""
    layer = nn.Linear(n_in, n_out)
    with torch.no_grad():
        layer.weight.normal_(std=n_in**-0.5, generator=generator)
        layer.bias.zero_()
    return layer
