"""Classes of inputs, as a head names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from smatter.compose.head import ClassHead

MOST_TOLD = 6
"""Inputs whose classes a repr tells."""


@dataclass(frozen=True)
class Prediction:
    """The class of one input.

    Args:
        class_names: names of the classes.
        probabilities: of each, (n_classes,); the softmax of the head's scores at its temperature.
    """

    class_names: tuple[str, ...]
    probabilities: Tensor

    def __repr__(self) -> str:
        return f"{self.name} ({self.top(1)[0][1]:.0%})"

    @property
    def name(self) -> str:
        """The most probable class."""
        return self.class_names[int(self.probabilities.argmax())]

    def top(self, n_classes: int) -> tuple[tuple[str, float], ...]:
        """The most probable classes with their probabilities, best first; the earlier of equals first."""
        order = self.probabilities.argsort(descending=True, stable=True)[:n_classes].tolist()
        return tuple((self.class_names[index], float(self.probabilities[index])) for index in order)

    def within(self, limit: float) -> tuple[str, ...]:
        """The set of classes that it may be, best first: those whose probability is at least 1 - limit, and the best.

        Args:
            limit: such as a recipe's `notes.sets.limit(0.9)`, which says how often the right class is among them.
        """
        best, *others = self.top(len(self.class_names))
        return (best[0], *(name for name, share in others if 1 - share <= limit))


@dataclass(frozen=True)
class Predictions:
    """Classes of some inputs of one task.

    Args:
        class_names: names of the classes, one per column.
        probabilities: (n_inputs, n_classes); the softmax of the head's scores at its temperature.
    """

    class_names: tuple[str, ...]
    probabilities: Tensor

    @classmethod
    def of(cls, logits: Tensor, head: ClassHead) -> Predictions:
        """From the scores of the head's rows, (n_inputs, n_classes)."""
        # The rows have an order of their own, in which no sum depends on the order that somebody gave the classes.
        probabilities = (logits / head.temperature).softmax(dim=1)
        return cls(head.class_names, probabilities[:, list(head.classes.values())])

    def __repr__(self) -> str:
        told = ", ".join(repr(self[index]) for index in range(min(len(self), MOST_TOLD)))
        return f"Predictions of {len(self)} inputs: {told}{', ...' if len(self) > MOST_TOLD else ''}"

    @property
    def names(self) -> tuple[str, ...]:
        """The most probable class of each input."""
        return tuple(self.class_names[index] for index in self.probabilities.argmax(dim=1).tolist())

    def __len__(self) -> int:
        return len(self.probabilities)

    def __getitem__(self, index: int) -> Prediction:
        return Prediction(self.class_names, self.probabilities[index])

    def __iter__(self) -> Iterator[Prediction]:
        return (self[index] for index in range(len(self)))
