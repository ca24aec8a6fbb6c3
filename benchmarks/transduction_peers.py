"""Ways to name queries together, each from features of examples and queries to scores of the queries."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from smatter.backbones.heads import class_sums, prototype_logits
from smatter.backbones.transduction import Transduction, refined_prototypes

N_STEPS, HALF = 3, 0.5
"""Steps and weight of queries of every k-means here."""

SoftLabels = Callable[[Tensor], Tensor]
"""From scores to labels of the same shape, (n_queries, n_classes)."""


def alone(support: Tensor, labels: Tensor, queries: Tensor, weights: Tensor, n_classes: int) -> Tensor:
    """Each query on its own: scaled cosines with the examples' prototypes, averaged over the networks."""
    return refined(support, labels, queries, weights, n_classes, Transduction(n_steps=0))


def refined(
    support: Tensor,
    labels: Tensor,
    queries: Tensor,
    weights: Tensor,
    n_classes: int,
    settings: Transduction | None = None,
) -> Tensor:
    """What the package does."""
    found = refined_prototypes(support, labels, queries, weights, n_classes, settings)
    return found.logits(queries, weights)


def k_means(
    support: Tensor,
    labels: Tensor,
    queries: Tensor,
    weights: Tensor,
    n_classes: int,
    soft_labels: SoftLabels,
    query_weight: float = HALF,
) -> Tensor:
    """Steps of k-means with the networks' common labels, whatever these are (Ren and others, 2018, are soft)."""
    sums = torch.stack([class_sums(rows, labels, n_classes) for rows in support])
    unit, logits = normalize(queries, dim=-1), mean_logits(queries, sums, weights)
    for _ in range(N_STEPS):
        prototypes = sums + query_weight * soft_labels(logits).T @ unit
        logits = mean_logits(queries, prototypes, weights)
    return logits


def mean_logits(rows: Tensor, prototypes: Tensor, weights: Tensor) -> Tensor:
    """Scaled cosines, averaged over the networks."""
    each = [weight * prototype_logits(*pair) for weight, *pair in zip(weights, rows, prototypes, strict=True)]
    return torch.stack(each).sum(dim=0)


def examples_alone(support: Tensor, labels: Tensor, queries: Tensor, weights: Tensor, n_classes: int) -> Tensor:
    """What the package does to examples, whose labels may be wrong, without the queries."""
    prototypes = torch.stack([class_sums(rows, labels, n_classes) for rows in support])
    given = Transduction().trust * one_hot(labels, n_classes)
    for _ in range(2 * N_STEPS):
        soft_labels = (mean_logits(support, prototypes, weights) + given).softmax(dim=1)
        prototypes = soft_labels.T @ normalize(support, dim=-1)
    return mean_logits(queries, prototypes, weights)


def soft(logits: Tensor) -> Tensor:
    """Probabilities as they come."""
    return logits.softmax(dim=1)


def hard(logits: Tensor) -> Tensor:
    """The best class alone: pseudo-labels."""
    return one_hot(logits.argmax(dim=1), logits.shape[1]).to(logits)


def balanced(logits: Tensor, n_sweeps: int = 20) -> Tensor:
    """Labels of which every class has as many, by Sinkhorn's sweeps."""
    logs = logits.log_softmax(dim=1)
    for _ in range(n_sweeps):
        logs = (logs - logs.logsumexp(dim=0)).log_softmax(dim=1)
    return logs.exp()


def counted(logits: Tensor) -> Tensor:
    """Labels with the shares of classes that make the queries most probable, by five steps of EM."""
    shares = logits.new_full(logits.shape[1:], 1 / logits.shape[1])
    for _ in range(5):
        counts = 1 + (logits + shares.log()).softmax(dim=1).sum(dim=0)
        shares = counts / counts.sum()
    return (logits + shares.log()).softmax(dim=1)


def sinkhorn(support: Tensor, labels: Tensor, queries: Tensor, weights: Tensor, n_classes: int) -> Tensor:
    """Balanced labels, also as what is predicted, as for balanced queries they should be (Hu and others, 2021)."""
    return balanced(k_means(support, labels, queries, weights, n_classes, balanced)).log()


def laplacian(
    support: Tensor,
    labels: Tensor,
    queries: Tensor,
    weights: Tensor,
    n_classes: int,
    n_neighbours: int = 3,
    strength: float = 0.3,
) -> Tensor:
    """Labels that neighbours agree on, prototypes left as they are (Ziko and others, 2020)."""
    logits = alone(support, labels, queries, weights, n_classes)
    unit = normalize(queries, dim=-1)
    likeness = (weights[:, None, None] * (unit @ unit.mT)).sum(dim=0).fill_diagonal_(-torch.inf)
    nearest = likeness.topk(min(n_neighbours, len(likeness) - 1), dim=1).indices
    near = torch.zeros_like(likeness).scatter(1, nearest, 1.0)
    labels_of_queries = logits
    for _ in range(20):
        labels_of_queries = logits + strength * (near + near.T) / 2 @ labels_of_queries.softmax(dim=1)
    return labels_of_queries
