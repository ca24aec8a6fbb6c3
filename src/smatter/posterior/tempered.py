"""Tempered evidence: an untrained posterior from how well each routing explains the examples."""

import torch
from torch import Tensor

from smatter.errors import InvalidSupport
from smatter.posterior.categorical import Categorical
from smatter.settings import check_positive


def tempered_evidence(
    points: Tensor, losses: Tensor, temperature: float, log_prior: Tensor | None = None
) -> Categorical:
    """q(A | S) in proportion to p(A) exp(-loss of A / T).

    It minimises E_q loss + T KL(q, p). A routing whose loss is no number has no probability.

    Args:
        points: the routings, (n_routings, d).
        losses: of each routing on the examples, (..., n_routings).
        temperature: T, in units of the losses.
        log_prior: log p, (n_routings,); uniform by default.
    """
    check_positive(temperature=temperature)
    usable = losses.nan_to_num(nan=torch.inf, posinf=torch.inf)
    if not bool(usable.isfinite().any(dim=-1).all()):
        raise InvalidSupport("no routing gives a finite loss on some task: check its inputs and the sources")
    logits = -usable / temperature
    return Categorical(points, logits if log_prior is None else logits + log_prior.to(logits))
