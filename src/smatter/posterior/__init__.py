"""Distributions over routings, q(w, alpha | S): one family a file (Bayes-routed paper, section 4).

A routing is a point, (..., d): the weights w of the sources and, after them, the weights alpha of the experts with the
null expert last, each on its simplex. A posterior of many tasks has leading dimensions, which results keep.
"""

from typing import Protocol, Self

import torch
from torch import Tensor

from smatter.posterior.categorical import Categorical


class Posterior(Protocol):
    """What every family offers; in nats, and for continuous families with respect to volume on the simplex."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Random routings, (n, ..., d); differentiable in the parameters where the family is continuous."""
        ...

    def mean(self) -> Tensor:
        """The expected routing, (..., d)."""
        ...

    def mode(self) -> Tensor:
        """The routing to choose if only one may be, (..., d)."""
        ...

    def log_prob(self, points: Tensor) -> Tensor:
        """Log-probability, or log-density, of routings, (n, ..., d)."""
        ...

    def kl(self, prior: Self) -> Tensor:
        """Divergence from a prior of the same family, (...)."""
        ...

    def entropy(self) -> Tensor:
        """Entropy, (...); that of a density may be negative."""
        ...

    def discretised(self, points: Tensor) -> Categorical:
        """How likely each routing of a catalogue, (n_routings, d), is the nearest one."""
        ...
