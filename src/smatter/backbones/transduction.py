"""Prototypes that learn from the queries they will name: soft k-means that several networks share.

Each network has prototypes of its own. One soft label of each query, from the scores of all networks, moves them all.
If soft labels take classes for equally frequent, queries of frequent classes drag the prototypes of rare ones along. If
they trust counts from the start, a prototype that happens to lie in the middle seems frequent, and grows. So the first
steps take classes for equally frequent, and serve to count them; the others know the counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from smatter.backbones.heads import SCALE, class_sums
from smatter.errors import InvalidSettings


@dataclass(frozen=True)
class Transduction:
    """How queries move prototypes.

    Args:
        n_steps: of counting classes, and as many of moving prototypes; none leaves them as they are.
        query_weight: of a query beside a labelled example; while classes are counted, it weighs as much as one.
        share_count: how many imagined queries of each class are counted too, which draws shares towards equal ones.
    """

    n_steps: int = 3
    query_weight: float = 0.5
    share_count: float = 1.0

    def __post_init__(self) -> None:
        if self.n_steps < 0 or not 0 <= self.query_weight <= 1 or not self.share_count > 0:  # also rejects NaN
            raise InvalidSettings(
                f"{self}: give steps from zero, a weight of queries between 0 and 1, and a positive count"
            )


@dataclass(frozen=True)
class Refined:
    """What queries made of the prototypes.

    Args:
        prototypes: of each network and class, (n_members, n_classes, d); only their directions mean something.
        shares: how frequent each class seems among the queries, (n_classes,); equal where there are none.
    """

    prototypes: Tensor
    shares: Tensor

    def logits(self, queries: Tensor, weights: Tensor) -> Tensor:
        """Scores of the classes, (n_queries, n_classes): scaled cosines, averaged over the networks.

        Shares are left out: they are good enough to move prototypes, not to overrule what a query looks like.

        Args:
            queries: features by each network, (n_members, n_queries, d).
            weights: of the networks, on the simplex, (n_members,).
        """
        return _logits(normalize(queries, dim=-1), self.prototypes, weights)


def refined_prototypes(
    support: Tensor,
    labels: Tensor,
    queries: Tensor,
    weights: Tensor,
    n_classes: int,
    settings: Transduction | None = None,
) -> Refined:
    """Prototypes of labelled examples and unlabelled queries.

    With unit rows x, prototypes p, weights w of networks r and weight a of queries, a step is

        q(i, c) = share(c) exp(SCALE sum_r w_r cos(x_ri, p_rc)) / (the same, summed over classes),
        p_rc    = sum_{j in class c} x_rj + a sum_i q(i, c) x_ri.

    The first steps have equal shares and a = 1. Then share(c) = (m + sum_i q(i, c)) / (m n_classes + n_queries), the
    most probable one under a Dirichlet prior of m more queries of each class, and the others have a = query_weight.

    Args:
        support: features of the examples by each network, (n_members, n_support, d).
        labels: class of each example, (n_support,); every class has one or more.
        queries: features of the queries by each network, (n_members, n_queries, d).
        weights: of the networks, on the simplex, (n_members,); one network has weight one.
        n_classes: how many classes there are.
        settings: how queries move prototypes; as measured best without.
    """
    settings = settings or Transduction()
    sums = torch.stack([class_sums(rows, labels, n_classes) for rows in support])
    shares = sums.new_full((n_classes,), 1 / n_classes)
    if not settings.n_steps or not queries.shape[1]:
        return Refined(sums, shares)
    unit, prototypes = normalize(queries, dim=-1), sums

    def soft_labels() -> Tensor:
        return (_logits(unit, prototypes, weights) + shares.log()).softmax(dim=1)

    for _ in range(settings.n_steps):
        prototypes = sums + soft_labels().T @ unit
    counts = settings.share_count + soft_labels().sum(dim=0)
    shares = counts / counts.sum()
    for _ in range(settings.n_steps):
        prototypes = sums + settings.query_weight * soft_labels().T @ unit
    return Refined(prototypes, shares)


def _logits(unit: Tensor, prototypes: Tensor, weights: Tensor) -> Tensor:
    cosines = unit @ normalize(prototypes, dim=-1).mT
    return SCALE * (weights[:, None, None] * cosines).sum(dim=0)
