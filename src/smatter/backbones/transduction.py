"""Prototypes that learn from the queries they are to name: soft k-means, shared by several networks.

Each network has prototypes of its own. One soft label of each query, from the scores of all networks, moves them all.
Labels that take classes for equally frequent let frequent classes drag the prototypes of rare ones along, and labels
that trust counts from the start feed whatever prototype happens to lie in the middle. So the first steps only serve to
count classes, and how uneven the counts are says whether to trust them afterwards or to even them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from smatter.backbones.heads import SCALE, class_sums
from smatter.errors import InvalidSettings


@dataclass(frozen=True)
class Transduction:
    """How queries move prototypes; one setting for all numbers of examples and queries.

    Args:
        n_steps: of counting classes, and again of moving prototypes; with none, nothing changes.
        query_weight: of a query beside an example; while classes are counted, both weigh the same.
        even: unevenness of counts, as chi-squared per degree of freedom, from which on they are trusted.
        trust: how much likelier than another class an example's own is before one looks, as a logarithm.
    """

    n_steps: int = 3
    query_weight: float = 0.5
    even: float = 0.2
    trust: float = 4.0

    def __post_init__(self) -> None:
        numbers = self.n_steps, self.query_weight, self.even, self.trust
        if not all(0 <= number < inf for number in numbers) or not self.even:  # also rejects NaN
            raise InvalidSettings(f"{self}: give finite numbers, none below zero, and `even` above it")


@dataclass(frozen=True)
class Refined:
    """What queries made of prototypes.

    Args:
        prototypes: of each network and class, (n_members, n_classes, d); only their directions mean something.
        bias: what is added to the score of each class, (n_classes,).
        shares: how frequent each class seems among the queries, (n_classes,); equal without queries.
    """

    prototypes: Tensor
    bias: Tensor
    shares: Tensor

    def logits(self, queries: Tensor, weights: Tensor) -> Tensor:
        """Scores of the classes for each query, (n_queries, n_classes).

        Args:
            queries: features by each network, (n_members, n_queries, d).
            weights: of the networks, on the simplex, (n_members,).
        """
        return _mean_logits(normalize(queries, dim=-1), self.prototypes, weights) + self.bias


def refined_prototypes(
    support: Tensor,
    labels: Tensor,
    queries: Tensor,
    weights: Tensor,
    n_classes: int,
    settings: Transduction | None = None,
) -> Refined:
    """Prototypes of labelled examples and unlabelled queries.

    With unit rows x_r, prototypes p_r and weights w_r of the networks, s(x, c) = SCALE sum_r w_r cos(x_r, p_rc) is what
    they say together, and a step is

        q(i, c) = softmax_c(s(x_i, c) + bias(c))           for a query, a = query_weight,
        q(j, c) = softmax_c(s(x_j, c) + trust [c = y_j])   for an example, a = 1,
        p_rc    = sum over both of a q(., c) x_r.

    The first steps have no bias, and a = 1 throughout. Then n_c = sum_i q(i, c) are counted, whose shares with one more
    query of each class are (1 + n_c) / (C + n), and the others have, with D the unevenness of the counts,

        bias(c) = (D - even) / (D + even) log(C share(c)),   D = sum_c (n_c - n / C)^2 / (n / C) / (C - 1):

    the logarithm of the share where classes clearly differ, its opposite where what differs is rather the prototypes.

    Args:
        support: features of the examples by each network, (n_members, n_support, d).
        labels: class of each example, (n_support,).
        queries: features of the queries by each network, (n_members, n_queries, d).
        weights: of the networks, on the simplex, (n_members,).
        n_classes: how many classes there are.
        settings: how queries move prototypes.
    """
    settings = settings or Transduction()
    prototypes = torch.stack([class_sums(rows, labels, n_classes) for rows in support])
    bias = prototypes.new_zeros(n_classes)
    shares = torch.full_like(bias, 1 / n_classes)
    n_queries = queries.shape[1]
    if not n_queries or not settings.n_steps:
        return Refined(prototypes, bias, shares)
    examples, asked = normalize(support, dim=-1), normalize(queries, dim=-1)
    given = settings.trust * one_hot(labels, n_classes).to(bias)

    def step(before: Tensor, bias: Tensor, query_weight: float) -> Tensor:
        of_examples = (_mean_logits(examples, before, weights) + given).softmax(dim=1)
        of_queries = (_mean_logits(asked, before, weights) + bias).softmax(dim=1)
        return of_examples.T @ examples + query_weight * of_queries.T @ asked

    for _ in range(settings.n_steps):
        prototypes = step(prototypes, bias, 1.0)
    counts, even_count = _mean_logits(asked, prototypes, weights).softmax(dim=1).sum(dim=0), n_queries / n_classes
    shares = (1 + counts) / (n_classes + n_queries)
    unevenness = (counts - even_count).square().sum() / even_count / max(n_classes - 1, 1)
    bias = (unevenness - settings.even) / (unevenness + settings.even) * (n_classes * shares).log()
    for _ in range(settings.n_steps):
        prototypes = step(prototypes, bias, settings.query_weight)
    return Refined(prototypes, bias, shares)


def _mean_logits(unit: Tensor, prototypes: Tensor, weights: Tensor) -> Tensor:
    cosines = unit @ normalize(prototypes, dim=-1).mT
    return SCALE * (weights[:, None, None] * cosines).sum(dim=0)
