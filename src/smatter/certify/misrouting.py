"""How often a routing can be told from n examples: bounds from both sides (Bayes paper, section 7, corrected).

A task draws one of |A| routings with equal probability, then n examples independently from that routing's
distribution. Delta is the total variation between two such distributions of one *example*: examples of a support set
are independent only given all that they share, such as its classes, which are drawn once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr, softmax

from smatter.certify.bound import Floats
from smatter.errors import InvalidCertificate


@dataclass(frozen=True)
class Separation:
    """How far distributions of one example lie apart.

    Args:
        total_variation: Delta, of the nearest pair.
        affinities: of each pair, sum sqrt(p q); 1 for equal distributions; (n_pairs,).
        divergence: KL(p || q), mean over ordered pairs; infinite where one allows what another does not.
    """

    total_variation: float
    affinities: tuple[float, ...]
    divergence: float


@dataclass(frozen=True)
class RoutingErrors:
    """Frequencies over simulated tasks, with the exact posterior.

    Args:
        misrouting: the most probable routing is not the true one.
        gibbs_error: a routing drawn from the posterior is not the true one; the mass that the posterior misses.
        uncertainty: mean of U = 1 - max q, as often as a drawn routing differs from the most probable one.
    """

    misrouting: float
    gibbs_error: float
    uncertainty: float


def separation_of(families: ArrayLike) -> Separation:
    """Distances between distributions on the same symbols, one row for each routing; (n_routings, n_symbols)."""
    rows = _checked_families(families)
    first, second = np.triu_indices(len(rows), k=1)
    divergences = rel_entr(rows[:, None], rows[None]).sum(axis=2)
    return Separation(
        float((np.abs(rows[first] - rows[second]).sum(axis=1) / 2).min()),
        tuple(np.sqrt(rows[first] * rows[second]).sum(axis=1).tolist()),
        float(divergences[~np.eye(len(rows), dtype=bool)].mean()),
    )


def misrouting_upper(n_routings: int, n: int, separation: float) -> float:
    """Misrouting by the exact posterior is at most (|A| - 1) / 2 exp(-n Delta^2 / 2) (theorem 7.1 with its constant).

    Each pair is confused with at most half of affinity^n, and affinity^2 <= 1 - Delta^2.
    """
    return min(1.0, (n_routings - 1) / 2 * float(np.exp(-n * separation**2 / 2)))


def missed_mass_upper(n_routings: int, n: int, separation: float) -> float:
    """The posterior's expected mass off the true routing, and the Gibbs error: at most twice the misrouting.

    1 - sum q^2 <= 2 (1 - max q). By Markov the mass exceeds any e with probability at most this over e.
    """
    return min(1.0, 2 * misrouting_upper(n_routings, n, separation))


def misrouting_floor(n: int, separation: float) -> float:
    """No router errs less than (1 - Delta)^n / 2 on a pair of routings, whatever they are; some pairs attain it."""
    return (1 - separation) ** n / 2


def misrouting_lower_le_cam(affinities: ArrayLike, n: int) -> float:
    """Le Cam: no router errs less than (1 - TV of n examples) / 2, here by TV^2 <= 1 - affinity^2n; mean over pairs.

    Telling the router which pair the true routing is from can only help it.
    """
    squared = np.asarray(affinities, np.float64) ** (2 * n)
    return float(np.mean(1 - np.sqrt(1 - np.minimum(squared, 1)))) / 2


def misrouting_lower_fano(n_routings: int, n: int, divergence: float) -> float:
    """Fano: no router errs less than 1 - (n KL + log 2) / log |A|, KL being the mean over pairs; 0 where that is less.

    It says something from three routings on.
    """
    if n_routings < 3 or not np.isfinite(divergence):
        return 0.0
    return max(0.0, 1 - (n * divergence + float(np.log(2))) / float(np.log(n_routings)))


def gibbs_disagreement(posterior: ArrayLike) -> Floats:
    """P[a routing drawn from q is not its most probable one], exactly U = 1 - max q; along the last axis."""
    return np.asarray(1 - np.asarray(posterior, np.float64).max(axis=-1))


def equidistant_families(n_routings: int, separation: float) -> Floats:
    """Distributions that all lie Delta apart: (1 - Delta) uniform + Delta on a symbol of one's own; (|A|, |A|)."""
    return (1 - separation) * np.full((n_routings, n_routings), 1 / n_routings) + separation * np.eye(n_routings)


def simulate_routing(families: ArrayLike, n: int, n_tasks: int, generator: np.random.Generator) -> RoutingErrors:
    """The finite-routing model of section 7, with its exact posterior.

    Args:
        families: distribution of an example for each routing, (n_routings, n_symbols).
        n: examples of a task.
        n_tasks: simulated.
        generator: draws routings, examples and Gibbs routings.
    """
    rows = _checked_families(families)
    truth = generator.integers(len(rows), size=n_tasks)
    counts = generator.multinomial(n, rows[truth])
    impossible = (counts[:, None, :] > 0) & (rows[None] == 0)
    logs = np.log(np.where(rows > 0, rows, 1.0))
    scores = np.where(impossible.any(axis=2), -np.inf, counts @ logs.T)
    posterior = softmax(scores, axis=1)
    drawn = (generator.random((n_tasks, 1)) > np.cumsum(posterior, axis=1)).sum(axis=1).clip(max=len(rows) - 1)
    return RoutingErrors(
        float((posterior.argmax(axis=1) != truth).mean()),
        float((drawn != truth).mean()),
        float(gibbs_disagreement(posterior).mean()),
    )


def _checked_families(families: ArrayLike) -> Floats:
    rows = np.asarray(families, np.float64)
    if rows.ndim != 2 or len(rows) < 2 or (rows < 0).any() or np.abs(rows.sum(axis=1) - 1).max() > 1e-9:
        raise InvalidCertificate(
            f"families of shape {rows.shape}: give a distribution for each of two or more routings"
        )
    return rows
