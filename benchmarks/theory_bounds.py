"""Numbers that no estimator can beat, from explicit formulae (multi-source paper, equation 14).

X ~ N(0, I) and unit noise: the divergence between two truths is n |theta - theta'|^2 / 2, and the risk is half the
squared distance. Fano on a packing of N points with squared distances of at least s^2 and mean squared distance m^2
from their centre gives

    risk >= (s^2 / 8) (1 - (n m^2 / 2 + log 2) / log N).

N is bounded from below by counting (Gilbert and Varshamov): all points, divided by those too near to one of them.
The scale of the packing is chosen to make the bound largest; so is the least distance.
"""

from math import comb, inf, log

import numpy as np
import torch


def fano(log_size: float, distance: float, spread: float, n: int, largest: float = inf) -> float:
    """The bound for a packing that is scaled by the best amplitude.

    Args:
        log_size: log N.
        distance: least squared distance at amplitude one.
        spread: mean squared distance from the centre at amplitude one.
        n: examples.
        largest: squared amplitude at which the packing no longer fits the class.
    """
    known = 1 - log(2) / log_size if log_size > 0 else 0.0
    if known <= 0:
        return 0.0
    # square (known - n square spread / 2 log N) is largest at known log N / (n spread).
    square = min(known * log_size / (n * spread), largest)
    return distance / 8 * square * (known - n * square * spread / (2 * log_size))


def sparse_fano(d: int, k: int, n: int) -> float:
    """Supports of k coordinates with equal amplitudes: two of them that differ in j places are 2 j a^2 apart."""
    best = 0.0
    for least in range(1, k + 1):
        near = sum(comb(k, j) * comb(d - k, j) for j in range(least))
        best = max(best, fano(log(comb(d, k)) - log(near), 2 * least, k, n))
    return best


def mixture_fano(n_sources: int, n: int, norm: float) -> float:
    """Signs along R - 1 orthonormal directions around the middle of the hull of orthogonal sources.

    All signs must fit the largest ball inside the hull, of radius norm / sqrt(R (R - 1)). Zero where it says nothing.
    """
    m, best = n_sources - 1, 0.0
    largest = norm**2 / (n_sources * m) / m
    for least in range(1, m + 1):
        near = sum(comb(m, j) for j in range(least))
        best = max(best, fano(m * log(2) - log(near), 4 * least, m, n, largest))
    return best


def mixture_van_trees(n_sources: int, n: int, norm: float) -> float:
    """Van Trees' inequality with a prior on the largest ball inside the hull of orthogonal sources.

    The ball has m = R - 1 dimensions and radius rho = norm / sqrt(R (R - 1)). The density (1 - r^2 / rho^2)^p has
    Fisher information m p (m + 2 p) / (p - 1) / rho^2, which p = 1 + sqrt(1 + m / 2) makes least, and the risk is at
    least m^2 / 2 / (m n + that).
    """
    m = n_sources - 1
    power = 1 + (1 + m / 2) ** 0.5
    information = m * power * (m + 2 * power) / (power - 1) * n_sources * m / norm**2
    return 0.5 * m**2 / (m * n + information)


def spike_bayes(d: int, k: int, n: int, amplitude: float, n_draws: int, generator: torch.Generator) -> torch.Tensor:
    """Risk of the Bayes estimator when each of k groups of d // k coordinates holds one spike, per draw.

    A helper tells it the other groups, so their risks add up; its posterior over places is exact. Being a Bayes risk,
    the mean bounds the minimax risk from below.
    """
    width = d // k
    features = torch.randn(n_draws, n, width, generator=generator, dtype=torch.float64)
    noise = torch.randn(n_draws, n, generator=generator, dtype=torch.float64)
    errors = (amplitude * features[:, :, 0] + noise).unsqueeze(2) - amplitude * features
    posterior = (-0.5 * errors.square().sum(dim=1)).softmax(dim=1)
    missed = posterior.square().sum(dim=1) - 2 * posterior[:, 0] + 1
    return 0.5 * k * amplitude**2 * missed


def best_spike_bayes(d: int, k: int, n: int, n_draws: int, generator: torch.Generator) -> float:
    """The largest of these bounds over amplitudes around the detection threshold."""
    unit = float(np.sqrt(2 * np.log(d / k) / n))
    shares = (0.7, 0.8, 0.9, 1.0, 1.1)
    return max(float(spike_bayes(d, k, n, share * unit, n_draws, generator).mean()) for share in shares)
