"""Weights that may be told to others: differentially private in the support set.

Each example is routed alone, which gives it a point w_i of the simplex, and the mean of the n points is released with
Gaussian noise. Two support sets are adjacent when one example, with its label, is replaced. Then one w_i moves, in a
simplex of diameter sqrt(2), so the mean moves by at most sqrt(2) / n in the Euclidean norm: that is its sensitivity,
whatever the router does. Noise of the scale that `noise_scale` gives makes the release (epsilon, delta)-private;
projecting it to the simplex afterwards looks at no example and costs nothing.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from smatter.algebra.simplex import project_to_simplex
from smatter.settings import check_privacy

DIAMETER = math.sqrt(2)
DECIMALS = 6


def noise_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """The least standard deviation that makes the Gaussian mechanism (epsilon, delta)-private (Balle and Wang, 2018).

    The mechanism is private exactly when Phi(a - b) - exp(epsilon) Phi(-a - b) <= delta, where a = sensitivity / (2
    sigma) and b = epsilon sigma / sensitivity; the left side falls as sigma grows, so bisection finds it.

    >>> round(noise_scale(1.0, 1.0, 1e-5), 3)
    3.731
    """
    check_privacy(epsilon, delta)
    low, high = 0.0, sensitivity
    while leak(sensitivity / high, epsilon) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if leak(sensitivity / middle, epsilon) > delta else (low, middle)
    return high


def leak(mu: float, epsilon: float) -> float:
    """The least delta for which a Gaussian mechanism is (epsilon, delta)-private; never told smaller than it is.

    Args:
        mu: its sensitivity over the standard deviation of its noise.
        epsilon: of the promise.
    """
    a, b = mu / 2, epsilon / mu
    return _normal(a - b) - math.exp(min(epsilon, 700.0)) * _normal(-a - b)  # beyond 700 the power has no float


def release(points: Tensor, epsilon: float, delta: float, draw: Callable[[float, float], float]) -> Tensor:
    """A private mean of points on the simplex.

    Args:
        points: the weights that each example alone would give, (n_examples, n_sources); a row that is not finite counts
            as equal weights.
        epsilon: the most that the likelihood of any outcome may change, on a logarithmic scale.
        delta: the probability with which that may fail.
        draw: a normal number of a mean and a standard deviation, from a source that nobody can guess or repeat; a
            generator of torch is none, for its seeds can be tried one by one.
    """
    sigma = noise_scale(DIAMETER / len(points), epsilon, delta)
    sound = points.double()
    sound = torch.where(sound.isfinite().all(dim=1, keepdim=True), sound, 1 / points.shape[1])
    noisy = sound.mean(dim=0) + torch.tensor([draw(0.0, sigma) for _ in range(points.shape[1])], dtype=torch.float64)
    rounded = project_to_simplex(noisy).round(decimals=DECIMALS)  # the last bits of a sum may tell its terms
    return rounded / rounded.sum()


def _normal(x: float) -> float:
    """The normal distribution function."""
    return 0.5 * math.erfc(-x / math.sqrt(2))
