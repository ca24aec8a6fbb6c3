"""A posterior in two levels: a family of routings, such as a domain, then a routing of that family.

The coarse choice may be identified where the fine one is not (Bayes-routed paper, section 10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.posterior.categorical import Categorical


class LevelDivergence(NamedTuple):
    """A divergence by level, (...) each: of the families, and expected within them; they add up to the whole."""

    families: Tensor
    within: Tensor


@dataclass(frozen=True)
class TwoLevel(Categorical):
    """q(A | S) = q(family of A) q(A | family): a categorical posterior whose logits are made so.

    Args:
        points: the routings, (n_routings, d).
        logits: their log-probabilities, (..., n_routings).
        families: the number of each routing's family, (n_routings,).
    """

    families: Tensor

    @classmethod
    def of(cls, points: Tensor, families: Tensor, family_logits: Tensor, routing_logits: Tensor) -> TwoLevel:
        """From logits of the families, (..., n_families), and of the routings within theirs, (..., n_routings)."""
        missing = set(range(family_logits.shape[-1])) ^ set(families.tolist())
        if missing:
            raise InvalidSettings(f"family {min(missing)} has no routing or no logit: number families from 0")
        within = routing_logits - _totals(routing_logits, families)[..., families]
        return cls(points, family_logits.log_softmax(dim=-1)[..., families] + within, families)

    @property
    def family_log_probs(self) -> Tensor:
        """Log-probability of each family, (..., n_families)."""
        return _totals(self.log_probs, self.families)

    def kl_by_level(self, prior: TwoLevel) -> LevelDivergence:
        """Divergence from a prior over the same families, by the chain rule."""
        own, other = self.family_log_probs, prior.family_log_probs
        coarse = (own.exp() * (own - other)).sum(dim=-1)
        return LevelDivergence(coarse, self.kl(prior) - coarse)


def _totals(logits: Tensor, families: Tensor) -> Tensor:
    """log sum exp of the logits of each family, (..., n_families)."""
    numbers = torch.arange(int(families.max()) + 1, device=families.device)
    return logits.unsqueeze(-2).masked_fill(families != numbers[:, None], -torch.inf).logsumexp(dim=-1)
