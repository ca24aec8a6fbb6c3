"""From the Gibbs loss, of a routing drawn from q, to the rules that are used: averages, votes, the best routing.

The averages' bounds hold task by task, and therefore for means and tails too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from smatter.certify.bound import Floats, UpperBound
from smatter.errors import InvalidCertificate

AVERAGE_FACTORS: dict[str, float] = {"nll": 1.0, "brier": 1.0, "vote error": 2.0, "soft error": 2.0}
"""How much larger the loss of an average may be than the Gibbs loss.

- nll, brier: of the averaged prediction, against their mean under q. Both are convex in the prediction (Jensen).
- vote error: of the class with most votes, against the mean error under q. If it is wrong, half of q is wrong.
- soft error: the error of the averaged prediction, against the mean of 1 - p(true class) under q. If the largest
  averaged probability is not the true class's, that one is at most a half.

The error of an averaged *prediction* has no factor against the mean *error* under q: one sure and wrong routing
outweighs two hesitant right ones.
"""


def gibbs_losses(posterior: ArrayLike, losses: ArrayLike) -> Floats:
    """X_q of each task, the loss expected under q (Bayes paper, equation 3): sum over routings of q_a loss_a.

    Args:
        posterior: q of each task, (..., n_routings).
        losses: of each routing on each task, (..., n_routings).
    """
    return np.asarray((np.asarray(posterior, np.float64) * np.asarray(losses, np.float64)).sum(axis=-1))


def average_bound(gibbs: UpperBound, loss: str) -> UpperBound:
    """A bound for the averaged prediction, or for the vote, from one for the Gibbs loss.

    Its estimate is the Gibbs loss times the factor, and not what the average was measured at.

    Args:
        gibbs: of the mean or of the tail.
        loss: one of `AVERAGE_FACTORS`.
    """
    if loss not in AVERAGE_FACTORS:
        raise InvalidCertificate(f"no average is bounded in {loss!r}: use one of {', '.join(AVERAGE_FACTORS)}")
    factor = AVERAGE_FACTORS[loss]
    value, estimate = (min(gibbs.largest, factor * each) for each in (gibbs.value, gibbs.estimate))
    about = f"{gibbs.about} of the average ({loss})"
    return replace(gibbs, about=about, method=f"{gibbs.method}, {factor:g} x Gibbs", value=value, estimate=estimate)


def map_loss_limits(gibbs: ArrayLike, largest_mass: ArrayLike) -> Floats:
    """Upper limits of the loss of the most probable routing, task by task: L_MAP <= X_q / max q, at most 1.

    X_q is at least the term of that one routing. A bound of these limits' mean or CVaR is one for L_MAP.

    Args:
        gibbs: X_q of each task, (n,).
        largest_mass: max q of each task, (n,).
    """
    mass = np.asarray(largest_mass, np.float64)
    if not ((mass > 0) & (mass <= 1 + 1e-6)).all():
        raise InvalidCertificate("a largest posterior mass outside (0, 1]: give the maximum of q for each task")
    return np.minimum(np.asarray(gibbs, np.float64) / mass, 1.0)
