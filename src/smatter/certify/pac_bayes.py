"""PAC-Bayes bounds of the mean loss (Bayes paper, theorem 6.1) and what they are about.

They hold at once for all distributions q over hypotheses, where the prior p over the same hypotheses was fixed before
the tasks were drawn. A hypothesis is a whole router, not a routing. So there are two true readings of the theorem:

- a finite set of routers, and q over them chosen on these tasks: KL(q || p) is one number, and pays for the choice;
- one router that was fixed beforehand, whatever its q(. | S): a bound of a mean, to which the mean KL(q(. | S) || p)
  and log(2 sqrt(N)) are added without need. `mean_bound_betting` is sharper.

For a router that was fitted on the same tasks neither holds: it can memorise supports at a KL of log 2 (see
docs/theory.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from smatter.certify.bound import Floats, UpperBound, check_delta, unit_losses
from smatter.certify.mean import kl_upper, mean_bound
from smatter.errors import InvalidCertificate


def relative_entropy(posterior: ArrayLike, prior: ArrayLike) -> Floats:
    """KL(q || p) along the last axis; infinite where q has mass that p has not.

    >>> float(relative_entropy([1.0, 0.0], [0.5, 0.5]).round(4))
    0.6931
    """
    return np.asarray(rel_entr(np.asarray(posterior, np.float64), np.asarray(prior, np.float64)).sum(axis=-1))


def pac_bayes_mcallester(losses: ArrayLike, divergence: float, delta: float) -> UpperBound:
    """Theorem 6.1 as it stands: mean + sqrt((KL + log(2 sqrt(N) / delta)) / 2(N - 1)).

    Args:
        losses: expected under q, of each task; (n,).
        divergence: KL(q || p) of the distribution over routers, or the mean of KL(q(. | S) || p) of one fixed router.
        delta: how often the bound may fail.
    """
    found = unit_losses(losses, least=2)
    radius = np.sqrt(_complexity(divergence, len(found), delta) / (2 * (len(found) - 1)))
    return mean_bound("PAC-Bayes, McAllester", found, float(found.mean() + radius), delta)


def pac_bayes_kl(losses: ArrayLike, divergence: float, delta: float) -> UpperBound:
    """The kl form (Seeger, 2002; Maurer, 2004): the largest m with N kl(mean || m) <= KL + log(2 sqrt(N) / delta).

    It is never weaker than McAllester's form. Arguments are as there.
    """
    found = unit_losses(losses)
    allowed = _complexity(divergence, len(found), delta) / len(found)
    return mean_bound("PAC-Bayes, kl", found, kl_upper(float(found.mean()), allowed), delta)


def _complexity(divergence: float, n: int, delta: float) -> float:
    check_delta(delta)
    if not divergence >= 0:  # also refuses NaN
        raise InvalidCertificate(f"a KL divergence of {divergence}: posterior and prior must each sum to one")
    return float(divergence + np.log(2 * np.sqrt(n) / delta))
