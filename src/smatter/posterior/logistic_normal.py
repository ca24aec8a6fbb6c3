"""The logistic-normal posterior: a Gaussian over logits, of which the last is 0 (Aitchison and Shen, 1980).

Softmax forgets a number that is added to all logits. With the last one held at 0 it is one-to-one, and the divergence
between two posteriors is that between their Gaussians; without that, between Gaussians over all logits, it is only
bounded by it (what the Bayes-routed paper calls a proxy in section 4).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import LowRankMultivariateNormal, kl_divergence
from torch.nn.functional import pad

from smatter.posterior.continuous import Continuous


class LogisticNormal(Continuous):
    """Points softmax(u, 0) of u ~ N(location, diag(scale^2) + factors factors').

    Args:
        location: mean of the logits but the last, (..., d - 1).
        scale: their own standard deviations, (..., d - 1); above zero.
        factors: what makes them vary together, (..., d - 1, rank); nothing by default.
    """

    def __init__(self, location: Tensor, scale: Tensor, factors: Tensor | None = None) -> None:
        self.gaussian = logit_gaussian(location, scale, factors)
        self.parameters = self.gaussian.loc
        self.n_noise = sum(self.gaussian.cov_factor.shape[-2:])

    @classmethod
    def of_logits(cls, gaussian: LowRankMultivariateNormal) -> LogisticNormal:
        """The same distribution of points from a Gaussian over all d logits, with one factor more."""
        location, scale, factors = gaussian.loc, gaussian.cov_diag.sqrt(), gaussian.cov_factor
        shared = scale[..., -1:].expand_as(scale[..., :-1])
        return cls(
            location[..., :-1] - location[..., -1:],
            scale[..., :-1],
            torch.cat([factors[..., :-1, :] - factors[..., -1:, :], shared.unsqueeze(-1)], dim=-1),
        )

    def push(self, uniforms: Tensor) -> Tensor:
        """Logarithms of points from noise: that of each logit, then that of each factor."""
        gaussian = self.gaussian
        own, shared = torch.special.ndtri(uniforms).split(gaussian.cov_factor.shape[-2:], dim=-1)
        together = (gaussian.cov_factor @ shared.unsqueeze(-1)).squeeze(-1)
        return pad(gaussian.loc + gaussian.cov_diag.sqrt() * own + together, (0, 1)).log_softmax(dim=-1)

    def mode(self) -> Tensor:
        """The point of the most likely logits, (..., d); it is also the median of every ratio of two weights."""
        return pad(self.gaussian.loc, (0, 1)).softmax(dim=-1)

    def log_density(self, logs: Tensor) -> Tensor:
        """The Gaussian's at the logits less log prod_i x_i, by which softmax changes volume."""
        density: Tensor = self.gaussian.log_prob(logs[..., :-1] - logs[..., -1:])
        return density - logs.sum(dim=-1)

    def kl(self, prior: LogisticNormal) -> Tensor:
        """Divergence from another logistic-normal, (...), exact."""
        return kl_divergence(self.gaussian, prior.gaussian)

    def entropy(self) -> Tensor:
        """The Gaussian's, in closed form, and the expected change of volume by integration."""
        gaussian: Tensor = self.gaussian.entropy()
        return gaussian + self._spread().sum(dim=-1).mean(dim=0)


def logit_gaussian(location: Tensor, scale: Tensor, factors: Tensor | None = None) -> LowRankMultivariateNormal:
    """N(location, diag(scale^2) + factors factors'), with a factor of zero where there is none."""
    if factors is None:
        factors = torch.zeros_like(location).unsqueeze(-1)
    return LowRankMultivariateNormal(location, factors, scale.square())


def ungauged_kl(posterior: LowRankMultivariateNormal, prior: LowRankMultivariateNormal) -> Tensor:
    """Divergence between Gaussians over all d logits, (...): an upper bound on that between their points."""
    return kl_divergence(posterior, prior)
