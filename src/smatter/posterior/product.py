"""Independent posteriors of the parts of a routing: of the sources' weights and of the experts'."""

from __future__ import annotations

import torch
from torch import Tensor

from smatter.posterior import Posterior
from smatter.posterior.categorical import Categorical, nearest_shares
from smatter.posterior.continuous import N_DRAWS


class Product:
    """q(w, alpha) = q(w) q(alpha): points lie side by side, divergences and entropies add up.

    Args:
        parts: one posterior for each simplex, of any families. Without experts the null expert has all the weight:
            `Categorical(torch.ones(1, 1), torch.zeros(..., 1))`.
    """

    def __init__(self, *parts: Posterior) -> None:
        self.parts = parts
        self.sizes = tuple(part.mode().shape[-1] for part in parts)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Random routings, (n, ..., d)."""
        return torch.cat([part.sample(n, generator) for part in self.parts], dim=-1)

    def mean(self) -> Tensor:
        """The expected routing, (..., d)."""
        return torch.cat([part.mean() for part in self.parts], dim=-1)

    def mode(self) -> Tensor:
        """The modes of the parts, (..., d)."""
        return torch.cat([part.mode() for part in self.parts], dim=-1)

    def log_prob(self, points: Tensor) -> Tensor:
        """Sum of the parts' log-probabilities, (n, ...)."""
        pieces = zip(self.parts, points.split(self.sizes, dim=-1), strict=True)
        return torch.stack([part.log_prob(piece) for part, piece in pieces]).sum(dim=0)

    def kl(self, prior: Product) -> Tensor:
        """Sum of the parts' divergences, (...)."""
        pairs = zip(self.parts, prior.parts, strict=True)
        return torch.stack([part.kl(other) for part, other in pairs]).sum(dim=0)

    def entropy(self) -> Tensor:
        """Sum of the parts' entropies, (...)."""
        return torch.stack([part.entropy() for part in self.parts]).sum(dim=0)

    def discretised(self, points: Tensor) -> Categorical:
        """How likely each routing of a catalogue, (n_routings, d), is the nearest one, by sampling."""
        return nearest_shares(self.sample(N_DRAWS, torch.Generator().manual_seed(0)).detach(), points)
