"""Functions of a budget that never fall: interpolation between knots, isotonic regression, and heads of a policy.

Each head turns what is known of a module, x, and the logarithm of a budget into a score that rises with the budget. At
the start the score is about the log odds of the budget itself, as a share of what everything costs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from smatter.algebra.layers import seeded_linear

N_HIDDEN = 8


def interpolation_weights(points: Tensor, knots: Tensor) -> Tensor:
    """Weights of knots that interpolate linearly at points, the nearest knot's beyond them; (..., n_knots).

    Args:
        points: (...).
        knots: rising, at least two; (n_knots,).

    >>> interpolation_weights(torch.tensor([0.5, 9.0]), torch.tensor([0.0, 2.0, 3.0]))
    tensor([[0.7500, 0.2500, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """
    inside = points.clamp(knots[0], knots[-1])
    above = torch.searchsorted(knots, inside.detach().contiguous()).clamp(1, len(knots) - 1)
    part = (inside - knots[above - 1]) / (knots[above] - knots[above - 1])
    index = torch.arange(len(knots))
    at = above[..., None]
    return torch.where(index == at, part[..., None], 0.0) + torch.where(index == at - 1, 1 - part[..., None], 0.0)


def isotonic(values: Tensor) -> Tensor:
    """The nearest sequences that do not fall, along the last dimension; differentiable.

        fitted_i = max over j <= i of min over k >= i of mean(values_j .. values_k)

    >>> isotonic(torch.tensor([1.0, 3.0, 2.0, 4.0]))
    tensor([1.0000, 2.5000, 2.5000, 4.0000])
    """
    n = values.shape[-1]
    sums = torch.cat([torch.zeros_like(values[..., :1]), values.cumsum(dim=-1)], dim=-1)
    index = torch.arange(n)
    lengths = index[None, :] - index[:, None] + 1
    means = (sums[..., None, 1:] - sums[..., :-1, None]) / lengths.clamp(min=1)
    infinity = torch.full_like(means, torch.inf)
    least = torch.where(lengths > 0, means, infinity).flip(-1).cummin(dim=-1).values.flip(-1)  # over k >= i
    return torch.where(lengths > 0, least, -infinity).amax(dim=-2)


class PositiveHead(nn.Module):
    """A network whose weights on the way from the budget are all positive; those on the way from x are free.

        score = a(x) logit(B) + positive . tanh(positive . tanh(positive t + u(x)) + v(x)) + w(x),      a > 0

    t is log B on a scale from 0 at the first knot to 1 at the last.
    """

    knots: Tensor

    def __init__(self, width: int, knots: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("knots", knots)
        self.first, self.second = seeded_linear(width, N_HIDDEN, generator), seeded_linear(width, N_HIDDEN, generator)
        self.last = seeded_linear(width, 2, generator, scale=0.1)
        with torch.no_grad():
            self.last.bias[0] = math.log(math.e - 1)  # softplus of it is 1
        self.rise = nn.Parameter(torch.randn(N_HIDDEN, generator=generator))
        self.between = nn.Parameter(torch.randn(N_HIDDEN, N_HIDDEN, generator=generator) - 2)
        self.out = nn.Parameter(torch.randn(N_HIDDEN, generator=generator) - 3)

    def forward(self, log_budgets: Tensor, x: Tensor) -> Tensor:
        """Scores, (n_budgets, n_modules)."""
        slope, offset = self.last(x).unbind(dim=-1)
        along = (log_budgets - self.knots[0]) / (self.knots[-1] - self.knots[0])
        hidden = torch.tanh(softplus(self.rise) * along[:, None, None] + self.first(x))
        hidden = torch.tanh(hidden @ softplus(self.between) + self.second(x))
        start = _logit(log_budgets.clamp(max=0.0).exp())
        score: Tensor = softplus(slope) * start[:, None] + hidden @ softplus(self.out) + offset
        return score


class SplineHead(nn.Module):
    """Scores at knots, in steps that are positive; linear between."""

    knots: Tensor

    def __init__(self, width: int, knots: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("knots", knots)
        self.steps = seeded_linear(width, len(knots), generator, scale=0.1)
        start = _logit(knots.exp())
        with torch.no_grad():
            self.steps.bias.copy_(torch.cat([start[:1], start.diff().expm1().log()]))  # softplus undone

    def forward(self, log_budgets: Tensor, x: Tensor) -> Tensor:
        """Scores, (n_budgets, n_modules)."""
        steps = self.steps(x)
        heights = torch.cat([steps[:, :1], softplus(steps[:, 1:])], dim=1).cumsum(dim=1)
        return interpolation_weights(log_budgets, self.knots) @ heights.T


class IsotonicHead(nn.Module):
    """Scores at knots, any, made such that they do not fall; linear between."""

    knots: Tensor

    def __init__(self, width: int, knots: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("knots", knots)
        self.heights = seeded_linear(width, len(knots), generator, scale=0.1)
        with torch.no_grad():
            self.heights.bias.copy_(_logit(knots.exp()))

    def forward(self, log_budgets: Tensor, x: Tensor) -> Tensor:
        """Scores, (n_budgets, n_modules)."""
        return interpolation_weights(log_budgets, self.knots) @ isotonic(self.heights(x)).T


def _logit(share: Tensor) -> Tensor:
    """Log odds, finite up to a share of one."""
    return share.log() - (1.02 - share).log()
