"""What a task asks of a network: rows in, a loss of each example out, and how classes are named afterwards.

Everything that fits weights to a task sees an `Objective` and nothing else of the task: another loss, on tokens say,
is another class like those below.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from smatter.backbones.heads import (
    FitHead,
    Head,
    class_sums,
    example_losses,
    held_out_accuracy,
    held_out_scores,
    leave_one_out_scores,
    prototype_logits,
)
from smatter.backbones.network import Inputs, Network


class Objective(Protocol):
    """What a task asks of a network.

    A network is read in parts that fit in memory (`read`); the losses follow from what was read of all rows together,
    so that examples may be compared with each other. Both are differentiable.
    """

    @property
    def inputs(self) -> Inputs:
        """Arguments of the forward pass, a row or more for each example."""
        ...

    @property
    def classes(self) -> Tensor:
        """Class of each example, (n_examples,); all alike where there are none."""
        ...

    def read(self, network: Network, inputs: Inputs) -> Tensor:
        """What the losses need of some rows, (n, ...)."""
        ...

    def losses(self, read: Tensor) -> Tensor:
        """The loss of each example, (n_examples,), from what was read of all rows."""
        ...

    def fit_head(self, read: Tensor, fit: FitHead) -> Head:
        """What names the classes of other rows, once they are read; fitted to what was read of these."""
        ...

    def held_out_accuracy(self, read: Tensor, fit: FitHead) -> float:
        """Share of the examples that a head names rightly which has not seen them; NaN where none can be held out."""
        ...


@dataclass(frozen=True)
class LeaveOneOut:
    """Each support example is scored against prototypes that exclude it.

    Args:
        inputs: a row for each example, or several, the unchanged one first, where a class has one example only.
        labels: class of each row, (n_rows,).
        examples: example of each row, (n_rows,).
        n_classes: how many classes there are.
    """

    inputs: Inputs
    labels: Tensor
    examples: Tensor
    n_classes: int

    def read(self, network: Network, inputs: Inputs) -> Tensor:
        """Features."""
        return network.features(inputs)

    def losses(self, read: Tensor) -> Tensor:
        """The leave-one-out loss of each example."""
        return self.losses_of(self.scores(read))

    def scores(self, read: Tensor) -> Tensor:
        """Leave-one-out scores of the classes for each row, (n_rows, n_classes); several networks' may be averaged."""
        return leave_one_out_scores(read, self.labels, self.examples, self.n_classes)

    def losses_of(self, scores: Tensor) -> Tensor:
        """The loss of each example by some scores of its rows."""
        return example_losses(scores, self.labels, self.examples)

    @cached_property
    def unchanged(self) -> Tensor:
        """The row of each example that is no altered view of it, (n_examples,)."""
        rows = torch.full((int(self.examples.max()) + 1,), len(self.examples))
        return rows.scatter_reduce(0, self.examples, torch.arange(len(self.examples)), "amin")

    @property
    def classes(self) -> Tensor:
        """Class of each example."""
        return self.labels[self.unchanged]

    @property
    def plain(self) -> Inputs:
        """A row for each example, as it is."""
        if len(self.unchanged) == len(self.examples):
            return self.inputs
        return {name: tensor[self.unchanged] for name, tensor in self.inputs.items()}

    def fit_head(self, read: Tensor, fit: FitHead) -> Head:
        """A head on the features of the unchanged examples."""
        return fit(read[self.unchanged], self.classes, self.n_classes)

    def held_out_accuracy(self, read: Tensor, fit: FitHead) -> float:
        """Share of the unchanged examples that a head names rightly which has not seen them."""
        return held_out_accuracy(self.held_out_scores(read, fit), self.classes)

    def held_out_scores(self, read: Tensor, fit: FitHead) -> Tensor:
        """Scores of the unchanged examples by a head that has not seen them, (n_examples, n_classes)."""
        return held_out_scores(fit, read[self.unchanged], self.classes, self.n_classes)


@dataclass(frozen=True)
class Queries:
    """Queries whose labels are known, scored against the prototypes of the support set: for training and judging.

    Args:
        inputs: rows of the support set, then of the queries.
        labels: class of each row, (n_rows,).
        n_support: rows of the support set.
        n_classes: how many classes there are.
        teacher: class probabilities of the queries that a teacher gives, (n_queries, n_classes), to be imitated too.
        teacher_share: how much these count beside the labels.
    """

    inputs: Inputs
    labels: Tensor
    n_support: int
    n_classes: int
    teacher: Tensor | None = None
    teacher_share: float = 0.0

    @property
    def classes(self) -> Tensor:
        """Class of each query."""
        return self.labels[self.n_support :]

    def read(self, network: Network, inputs: Inputs) -> Tensor:
        """Features."""
        return network.features(inputs)

    def losses(self, read: Tensor) -> Tensor:
        """The loss of each query, (n_queries,)."""
        logits = self.logits(read)
        losses = cross_entropy(logits, self.classes, reduction="none")
        if self.teacher is None:
            return losses
        imitation = cross_entropy(logits, self.teacher, reduction="none")
        return (1 - self.teacher_share) * losses + self.teacher_share * imitation

    def logits(self, read: Tensor) -> Tensor:
        """Scores of the classes for each query, (n_queries, n_classes)."""
        prototypes = class_sums(read[: self.n_support], self.labels[: self.n_support], self.n_classes)
        return prototype_logits(read[self.n_support :], prototypes)

    def accuracy(self, read: Tensor) -> float:
        """Share of the queries that are recognised."""
        return float((self.logits(read).argmax(dim=1) == self.classes).double().mean())

    def fit_head(self, read: Tensor, fit: FitHead) -> Head:
        """A head on the features of the support set."""
        return fit(read[: self.n_support], self.labels[: self.n_support], self.n_classes)

    def held_out_accuracy(self, read: Tensor, fit: FitHead) -> float:
        """Share of the queries that such a head names rightly."""
        logits = self.fit_head(read, fit).logits(read[self.n_support :])
        return float((logits.argmax(dim=1) == self.classes).double().mean())
