"""What densities on a simplex share: samples from uniform noise, and integrals as averages over well-spread noise."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from smatter.posterior.categorical import Categorical, nearest_shares

N_DRAWS = 1024
"""Points of a Sobol sequence in an integral, or samples in a discretised posterior: the same for every task and call,
so that a posterior has one mean."""


class Continuous(ABC):
    """A density on a simplex whose logarithms of points are a smooth function of uniform noise."""

    parameters: Tensor
    """What gives the shape of the tasks, (..., any), and the dtype."""

    n_noise: int

    @abstractmethod
    def push(self, uniforms: Tensor) -> Tensor:
        """Logarithms of points, (n, ..., d), from noise in (0, 1), (n, ..., n_noise)."""

    @abstractmethod
    def log_density(self, logs: Tensor) -> Tensor:
        """Log-density on the simplex at points, (n, ...), given their logarithms, (n, ..., d)."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Random routings, (n, ..., d), differentiable in the parameters."""
        shape = (n, *self.parameters.shape[:-1], self.n_noise)
        return self.push(self._inner(torch.rand(shape, generator=generator, dtype=torch.float64))).exp()

    def mean(self) -> Tensor:
        """The expected routing, (..., d), by integration."""
        return self._spread().exp().mean(dim=0)

    def log_prob(self, points: Tensor) -> Tensor:
        """Log-density of routings, (n, ..., d); on the boundary it may be infinite."""
        return self.log_density(points.log())

    def entropy(self) -> Tensor:
        """Differential entropy, (...), by integration."""
        return -self.log_density(self._spread()).mean(dim=0)

    def discretised(self, points: Tensor) -> Categorical:
        """How likely each routing of a catalogue, (n_routings, d), is the nearest one, by sampling."""
        return nearest_shares(self.sample(N_DRAWS, torch.Generator().manual_seed(0)).detach(), points)

    def _spread(self) -> Tensor:
        """Logarithms of well-spread points, (N_DRAWS, ..., d)."""
        noise = SobolEngine(self.n_noise, scramble=True, seed=0).draw(N_DRAWS, dtype=torch.float64)
        tasks = self.parameters.shape[:-1]
        return self.push(self._inner(noise.reshape(N_DRAWS, *(1 for _ in tasks), -1)))

    def _inner(self, noise: Tensor) -> Tensor:
        """Noise in the parameters' dtype, away from 0 and 1, where it would become infinite."""
        edge = torch.finfo(self.parameters.dtype).eps
        return noise.clamp(edge, 1 - edge).to(self.parameters)
