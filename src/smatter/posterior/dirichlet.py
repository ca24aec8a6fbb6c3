"""The Dirichlet posterior on a simplex, with moments, divergence and entropy in closed form."""

from __future__ import annotations

import torch
from torch import Tensor, distributions
from torch.distributions import kl_divergence
from torch.nn.functional import one_hot, relu

from smatter.posterior.categorical import Categorical, nearest_shares
from smatter.posterior.continuous import N_DRAWS


class Dirichlet:
    """Points with density in proportion to prod_i x_i^(a_i - 1).

    Args:
        concentration: a, (..., d), above zero: a mean and, as their sum, how many examples it is worth.
    """

    def __init__(self, concentration: Tensor) -> None:
        self.concentration = concentration
        self.density = distributions.Dirichlet(concentration)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Random routings, (n, ..., d), differentiable in the concentration.

        Gamma(a) is Gamma(a + 1) U^(1/a): logarithms of small concentrations' gammas do not underflow.
        """
        concentration = self.concentration.expand(n, *self.concentration.shape)
        uniforms = torch.rand(concentration.shape, generator=generator, dtype=concentration.dtype)
        uniforms = uniforms.clamp(min=torch.finfo(concentration.dtype).tiny)
        gammas = torch._standard_gamma(concentration + 1, generator=generator)
        return (gammas.log() + uniforms.log() / concentration).softmax(dim=-1)

    def mean(self) -> Tensor:
        """a / sum a, (..., d)."""
        mean: Tensor = self.density.mean
        return mean

    def mode(self) -> Tensor:
        """(a - 1)_+ normalised, (..., d); where no a is above 1, the vertex of the largest."""
        excess = relu(self.concentration - 1)
        vertex = one_hot(self.concentration.argmax(dim=-1), excess.shape[-1]).to(excess)
        mode = torch.where(excess.any(dim=-1, keepdim=True), excess, vertex)
        return mode / mode.sum(dim=-1, keepdim=True)

    def log_prob(self, points: Tensor) -> Tensor:
        """Log-density of routings, (n, ..., d); on the boundary it may be infinite."""
        density: Tensor = self.density.log_prob(points)
        return density

    def kl(self, prior: Dirichlet) -> Tensor:
        """Divergence from another Dirichlet, (...), exact."""
        return kl_divergence(self.density, prior.density)

    def entropy(self) -> Tensor:
        """Differential entropy, (...), exact."""
        entropy: Tensor = self.density.entropy()
        return entropy

    def discretised(self, points: Tensor) -> Categorical:
        """How likely each routing of a catalogue, (n_routings, d), is the nearest one, by sampling."""
        return nearest_shares(self.sample(N_DRAWS, torch.Generator().manual_seed(0)).detach(), points)
