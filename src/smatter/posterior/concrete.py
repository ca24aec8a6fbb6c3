"""The Concrete posterior: a softmax of logits with Gumbel noise, near a vertex at low temperature.

Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017; Bayes-routed paper, eq. 8. Over the rows of a catalogue it
relaxes a categorical posterior: samples are then weights of routings, whose mixture is `sample(...) @ points`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from smatter.errors import InvalidSettings
from smatter.posterior.continuous import Continuous
from smatter.settings import check_positive

STEP = 0.25
GRID = torch.arange(-60, 60, STEP, dtype=torch.float64)
"""Of log s in the integral below: its integrand is analytic and falls exponentially, so the trapezoidal rule is exact
to rounding."""


class Concrete(Continuous):
    """Points softmax((logits + Gumbel noise) / temperature).

    Args:
        logits: pi, (..., d).
        temperature: gamma, above zero; towards it samples become vertices, chosen with probability softmax(logits).
    """

    def __init__(self, logits: Tensor, temperature: float) -> None:
        check_positive(temperature=temperature)
        self.logits, self.temperature = logits.log_softmax(dim=-1), temperature
        self.parameters, self.n_noise = self.logits, logits.shape[-1]

    def push(self, uniforms: Tensor) -> Tensor:
        """Logarithms of points from noise."""
        gumbel = -(-uniforms.log()).log()
        return ((self.logits + gumbel) / self.temperature).log_softmax(dim=-1)

    def hard_sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Vertices, (n, ..., d), with the gradient of the points that they are nearest to (straight-through)."""
        points = self.sample(n, generator)
        return one_hot(points.argmax(dim=-1), self.n_noise).to(points) + (points - points.detach())

    def mode(self) -> Tensor:
        """The most likely vertex, (..., d)."""
        return one_hot(self.logits.argmax(dim=-1), self.n_noise).to(self.logits)

    def log_density(self, logs: Tensor) -> Tensor:
        """log (d-1)! gamma^(d-1) + sum_i (pi_i - (gamma + 1) log x_i) - d log sum_i exp(pi_i - gamma log x_i)."""
        d, temperature = self.n_noise, logs.new_tensor(self.temperature)
        constant = torch.lgamma(logs.new_tensor(d)) + (d - 1) * temperature.log()
        tilted = self.logits - temperature * logs
        return constant + (tilted - logs).sum(dim=-1) - d * tilted.logsumexp(dim=-1)

    def kl(self, prior: Concrete) -> Tensor:
        """Divergence from a Concrete prior of the same temperature, (...), which then does not matter.

        With e_i exponential and c_i = exp(pi'_i - pi_i), it is sum_i (pi_i - pi'_i) + d E log(sum_i c_i e_i / sum_i
        e_i), where E log sum_i e_i = digamma(d), and by Frullani's integral

            E log sum_i c_i e_i = integral over s > 0 of (exp(-s) - prod_i 1 / (1 + c_i s)) / s
        """
        if prior.temperature != self.temperature:
            raise InvalidSettings(
                f"a Concrete posterior at {self.temperature:g} and a prior at {prior.temperature:g} have no exact "
                "divergence: give the prior the posterior's temperature"
            )
        difference, d = self.logits - prior.logits, self.n_noise
        grid = GRID.to(difference).unsqueeze(-1)
        products = torch.exp(-softplus(grid - difference.unsqueeze(-2)).sum(dim=-1))
        integral = (torch.exp(-grid.squeeze(-1).exp()) - products).sum(dim=-1) * STEP
        return difference.sum(dim=-1) + d * (integral - torch.digamma(difference.new_tensor(d)))


def annealed_temperature(done: float, first: float, last: float) -> float:
    """The temperature when a share of training is done, from first to last by equal factors.

    >>> annealed_temperature(0.5, 1.0, 0.25)
    0.5
    """
    check_positive(first=first, last=last)
    return float(first * (last / first) ** min(max(done, 0.0), 1.0))
