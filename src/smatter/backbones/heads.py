"""Cosine prototypes, and the leave-one-out loss that judges a network by them; other heads are in `fitted_heads`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from smatter.errors import InvalidSupport

SCALE = 10.0
"""Cosines are multiplied by this before the softmax."""


def class_sums(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Sum of unit features per class, (n_classes, d); its direction is the class's prototype."""
    unit = normalize(features, dim=-1)
    return unit.new_zeros(n_classes, unit.shape[-1]).index_add(0, labels, unit)


def prototype_logits(features: Tensor, prototypes: Tensor, scale: float = SCALE) -> Tensor:
    """Scaled cosine of each row with each prototype, (n, n_classes)."""
    return scale * normalize(features, dim=-1) @ normalize(prototypes, dim=-1).T


def leave_one_out_loss(
    features: Tensor, labels: Tensor, examples: Tensor, n_classes: int, scale: float = SCALE
) -> Tensor:
    """The mean over examples of `leave_one_out_losses`, a scalar."""
    return leave_one_out_losses(features, labels, examples, n_classes, scale).mean()


def leave_one_out_losses(
    features: Tensor, labels: Tensor, examples: Tensor, n_classes: int, scale: float = SCALE
) -> Tensor:
    """Cross-entropy of each example against prototypes that have not seen it, mean over its rows; (n_examples,).

    Row i of class y is scored against the sums S_c of the unit rows of all classes, its own class's without the rows
    of the same example. Where a class has one example only, its rows are views of it and each is left out alone.

    Args:
        features: rows, (n, d).
        labels: class of each row, (n,).
        examples: which example each row is of, numbered from zero, (n,).
        n_classes: how many classes there are.
        scale: of the cosines.
    """
    unit = normalize(features, dim=-1)
    sums = class_sums(features, labels, n_classes)
    n_examples = int(examples.max()) + 1
    rows_of_example = torch.zeros(n_examples, dtype=torch.int64).index_add(0, examples, torch.ones_like(examples))
    class_of_example = torch.zeros_like(rows_of_example).scatter(0, examples, labels)
    lonely = torch.bincount(class_of_example, minlength=n_classes)[labels] == 1
    if bool((lonely & (rows_of_example[examples] == 1)).any()):
        raise InvalidSupport("a class has a single row, so nothing is left when that is left out: add views of it")
    of_example = unit.new_zeros(n_examples, unit.shape[-1]).index_add(0, examples, unit)
    own = sums[labels] - torch.where(lonely.unsqueeze(-1), unit, of_example[examples])
    own_logits = scale * (unit * normalize(own, dim=-1)).sum(dim=-1, keepdim=True)
    logits = prototype_logits(features, sums, scale).scatter(1, labels.unsqueeze(-1), own_logits)
    losses = cross_entropy(logits, labels, reduction="none")
    return losses.new_zeros(n_examples).index_add(0, examples, losses / rows_of_example[examples])
