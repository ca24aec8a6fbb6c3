"""Heads on frozen features: from a few labelled rows to scores of classes, and the loss that judges a network by them.

All are linear in the direction of a feature, and in all every class counts alike, however many examples it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from smatter.compose.head import ClassHead
from smatter.errors import InvalidRecipe, InvalidSupport
from smatter.settings import HeadName

SCALE = 10.0
"""Cosines are multiplied by this before the softmax."""

ONE_SHOT_TEMPERATURE, COOLING, POOLED = 1.05, 0.25, 0.85
"""Of prototypes of single examples; how it falls with their number; what is left of it for several networks, whose
average is less sure than each. Chosen for the loss of queries on validation tasks of Signs and Words."""

RIDGES = tuple(10 ** (exponent / 2) for exponent in range(2, -9, -1))
"""Strengths of the penalty that `ridge_head` tries, in units of the features' variance; the strongest wins a tie."""

ONE_SHOT_RIDGE = 0.1
"""Its strength where no class has two examples."""

LOGISTIC_RIDGE = 0.001
"""Strength of the penalty of `logistic_head`, in the same units."""

TOLERANCE, ROUNDING, MAX_NEWTON_STEPS = 1e-8, 1e-14, 100
N_FOLDS = 10


def class_sums(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Sum of unit features per class, (n_classes, d); its direction is the class's prototype."""
    unit = normalize(features, dim=-1)
    return unit.new_zeros(n_classes, unit.shape[-1]).index_add(0, labels, unit)


def prototype_logits(features: Tensor, prototypes: Tensor, scale: float = SCALE) -> Tensor:
    """Scaled cosine of each row with each prototype, (n, n_classes)."""
    return scale * normalize(features, dim=-1) @ normalize(prototypes, dim=-1).T


def leave_one_out_scores(
    features: Tensor, labels: Tensor, examples: Tensor, n_classes: int, scale: float = SCALE
) -> Tensor:
    """Scores of the classes for each row, (n, n_classes), by prototypes that have not seen its example.

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
    return prototype_logits(features, sums, scale).scatter(1, labels.unsqueeze(-1), own_logits)


def leave_one_out_losses(
    features: Tensor, labels: Tensor, examples: Tensor, n_classes: int, scale: float = SCALE
) -> Tensor:
    """Cross-entropy of each example against prototypes that have not seen it, mean over its rows; (n_examples,).

    Arguments as `leave_one_out_scores` has them.
    """
    return example_losses(leave_one_out_scores(features, labels, examples, n_classes, scale), labels, examples)


def example_losses(scores: Tensor, labels: Tensor, examples: Tensor) -> Tensor:
    """Cross-entropy of each example, mean over its rows; (n_examples,).

    Args:
        scores: of the classes for each row, (n, n_classes).
        labels: class of each row, (n,).
        examples: which example each row is of, (n,).
    """
    losses = cross_entropy(scores, labels, reduction="none")
    rows_of_example = torch.bincount(examples)
    return losses.new_zeros(len(rows_of_example)).index_add(0, examples, losses / rows_of_example[examples])


@dataclass(frozen=True)
class Head:
    """Scores of classes, W x / |x| + b.

    Args:
        weight: W, (n_classes, d).
        bias: b, (n_classes,).
    """

    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, record: ClassHead) -> Head:
        """The head of a recipe, which must have coefficients; in their order."""
        if record.weight is None:
            raise InvalidRecipe("the recipe's head is the sources' own classifier: predict with the whole network")
        bias = np.zeros(len(record.weight), np.float32) if record.bias is None else record.bias
        return cls(torch.from_numpy(record.weight), torch.from_numpy(bias))

    def record(self, kind: HeadName, classes: Mapping[str, int], length: float) -> ClassHead:
        """What a recipe holds of it; see `ClassHead`."""
        bias = self.bias.numpy() if self.bias.any() else None
        return ClassHead(kind, classes, self.weight.numpy(), bias, length=length)

    def logits(self, features: Tensor) -> Tensor:
        """The score of each class for each row, (n, n_classes)."""
        return normalize(features, dim=-1) @ self.weight.T + self.bias


def pool(scores: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Scores of several networks, averaged: a log-pool of their probabilities. One network's stay as they are."""
    if len(scores) == 1:
        return scores[0]
    return torch.stack([weight * each for weight, each in zip(weights, scores, strict=True)]).sum(dim=0)


def prototype_temperature(n_shot: float, n_networks: int = 1) -> float:
    """What divides scaled cosines so that their softmax says how often it is right.

    Prototypes of few examples are noisy, and scores against them too far apart; those of many are too close.

    Args:
        n_shot: examples of a class, on average.
        n_networks: whose scores are averaged.

    >>> prototype_temperature(1), round(prototype_temperature(5), 2), round(prototype_temperature(5, n_networks=3), 2)
    (1.05, 0.7, 0.6)
    """
    return ONE_SHOT_TEMPERATURE * math.pow(n_shot, -COOLING) * (POOLED if n_networks > 1 else 1.0)


FitHead = Callable[[Tensor, Tensor, int], Head]
"""From features (n, d), labels (n,) and the number of classes."""


def prototype_head(features: Tensor, labels: Tensor, n_classes: int) -> Head:
    """Scaled cosines with the mean direction of each class."""
    prototypes = normalize(class_sums(features, labels, n_classes), dim=-1)
    return Head(SCALE * prototypes, prototypes.new_zeros(n_classes))


def ridge_head(features: Tensor, labels: Tensor, n_classes: int) -> Head:
    """Least squares on one-hot targets; the ridge is the one of `RIDGES` with the least leave-one-out error."""
    rows = _Rows.of(features, labels, n_classes)
    left, scales, right = torch.linalg.svd(rows.weighted, full_matrices=False)
    ridge = ONE_SHOT_RIDGE
    if not rows.is_lonely.all():
        ridge = min(RIDGES, key=lambda ridge: _ridge_error(rows, left, scales, ridge))
    shrunk = scales / (scales.square() + ridge * rows.variance)
    weight = SCALE * (rows.weighted_targets.T @ left * shrunk) @ right
    return rows.head(weight, torch.full((n_classes,), SCALE / n_classes))


def _ridge_error(rows: _Rows, left: Tensor, scales: Tensor, ridge: float) -> float:
    """Squared error of examples that are left out in turn.

    An example's residual without it is its residual with it over 1 - h, where h is its own weight in what is
    predicted for it. The only example of a class says nothing about the ridge.
    """
    kept = scales.square() / (scales.square() + ridge * rows.variance)
    residuals = rows.weighted_targets - (left * kept) @ (left.T @ rows.weighted_targets)
    own = rows.shares + left.square() @ kept
    errors = (residuals / (1 - own).unsqueeze(-1)).square().sum(dim=1)
    return float(errors[~rows.is_lonely].sum())


def logistic_head(features: Tensor, labels: Tensor, n_classes: int, ridge: float = LOGISTIC_RIDGE) -> Head:
    """Multinomial logistic regression: mean cross-entropy + ridge / 2 |W|^2, features centred and of unit variance.

    By Newton's method, with steps by conjugate gradients.
    """
    rows = _Rows.of(features, labels, n_classes)
    scaled, shares = rows.centred / rows.variance.sqrt(), rows.shares.unsqueeze(-1)

    def value(weight: Tensor) -> float:
        losses = cross_entropy(scaled @ weight.T, labels, reduction="none")
        return float(rows.shares @ losses + ridge / 2 * weight.square().sum())

    weight = scaled.new_zeros(n_classes, scaled.shape[1])
    for _ in range(MAX_NEWTON_STEPS):
        probabilities = (scaled @ weight.T).softmax(dim=1)
        gradient = (shares * (probabilities - rows.one_hot)).T @ scaled + ridge * weight
        if float(gradient.abs().max()) <= TOLERANCE:
            break

        def bend(direction: Tensor, probabilities: Tensor = probabilities) -> Tensor:
            change = probabilities * (scaled @ direction.T)
            change = change - probabilities * change.sum(dim=1, keepdim=True)
            return (shares * change).T @ scaled + ridge * direction

        step = _conjugate_gradients(bend, -gradient)
        before, slope, length = value(weight), float((step * gradient).sum()), 1.0
        while length > TOLERANCE and value(weight + length * step) > before + 1e-4 * length * slope + ROUNDING:
            length /= 2
        weight = weight + length * step
    return rows.head(weight / rows.variance.sqrt(), weight.new_zeros(n_classes))


def _conjugate_gradients(matrix: Callable[[Tensor], Tensor], target: Tensor) -> Tensor:
    """Solve matrix(x) = target nearly; the closer, the smaller the target is."""
    solution, residual, direction = torch.zeros_like(target), target, target
    square = first = float(residual.square().sum())
    for _ in range(target.numel()):
        if square <= first * min(1e-2, first):
            break
        bent = matrix(direction)
        length = square / float((direction * bent).sum())
        solution = solution + length * direction
        residual = residual - length * bent
        square, before = float(residual.square().sum()), square
        direction = residual + square / before * direction
    return solution


HEADS: dict[str, FitHead] = {"prototype": prototype_head, "ridge": ridge_head, "logistic": logistic_head}


def held_out_scores(fit: FitHead, features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Scores of the classes for each example by a head that has not seen it, (n, n_classes).

    Up to ten examples of each class are left out in turn, one of each class at a time. The only one of a class stays,
    and has scores that are no numbers.
    """
    sizes = torch.bincount(labels, minlength=n_classes)
    turn = (one_hot(labels, n_classes).cumsum(dim=0).gather(1, labels[:, None]).squeeze(1) - 1) % N_FOLDS
    turn[sizes[labels] == 1] = N_FOLDS
    scores = features.new_full((len(labels), n_classes), torch.nan)
    for fold in range(N_FOLDS):
        out = turn == fold
        if out.any():
            scores[out] = fit(features[~out], labels[~out], n_classes).logits(features[out])
    return scores


def held_out_accuracy(scores: Tensor, labels: Tensor) -> float:
    """Share of the examples that some scores name rightly, of those that have any; NaN where none has."""
    told = ~scores.isnan().any(dim=1)
    return float((scores[told].argmax(dim=1) == labels[told]).double().mean())


@dataclass(frozen=True)
class _Rows:
    """Directions of features around their mean, in float64.

    Args:
        centred: (n, d).
        mean: (d,), over classes.
        shares: weight of each row, (n,); a class's sum to 1 / n_classes.
        one_hot: labels, (n, n_classes).
        is_lonely: whether a row is alone in its class, (n,).
        variance: mean squared length of the centred rows.
        dtype: of the features.
    """

    centred: Tensor
    mean: Tensor
    shares: Tensor
    one_hot: Tensor
    is_lonely: Tensor
    variance: Tensor
    dtype: torch.dtype

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, n_classes: int) -> _Rows:
        unit = normalize(features.double(), dim=-1)
        sizes = torch.bincount(labels, minlength=n_classes)[labels]
        shares = 1 / (n_classes * sizes.double())
        mean = shares @ unit
        centred = unit - mean
        variance = (shares @ centred.square().sum(dim=1)).clamp(min=1e-12)  # rows may be all alike
        targets = one_hot(labels, n_classes).double()
        return cls(
            centred, mean, shares, one_hot=targets, is_lonely=sizes == 1, variance=variance, dtype=features.dtype
        )

    @property
    def weighted(self) -> Tensor:
        return self.shares.sqrt().unsqueeze(-1) * self.centred

    @property
    def weighted_targets(self) -> Tensor:
        return self.shares.sqrt().unsqueeze(-1) * (self.one_hot - 1 / self.one_hot.shape[1])

    def head(self, weight: Tensor, bias: Tensor) -> Head:
        """What these coefficients of centred features are for features as they come."""
        return Head(weight.to(self.dtype), (bias - weight @ self.mean).to(self.dtype))
