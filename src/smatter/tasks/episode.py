"""An episode: a task, with queries to score it by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from smatter.tasks.suite import Inputs

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Examples:
    """Labelled inputs of an episode.

    Args:
        inputs: pictures or texts.
        labels: class of each, as it is told; (n,).
        truth: class of each, as it is; a class that the episode does not have is -1. (n,)
        domains: number of the domain that each is from, (n,).
        styles: number of its style there, -1 where none is known, (n,).
    """

    inputs: Inputs
    labels: Integers
    truth: Integers
    domains: Integers
    styles: Integers

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Integers) -> Examples:
        """Some of them, in this order; one may be taken twice."""
        if isinstance(self.inputs, tuple):
            inputs: Inputs = tuple(self.inputs[index] for index in indices.tolist())
        else:
            inputs = self.inputs[indices]
        columns = (column[indices] for column in (self.labels, self.truth, self.domains, self.styles))
        return Examples(inputs, *columns)

    def joined(self, other: Examples) -> Examples:
        """These, followed by others of the same kind."""
        inputs: Inputs
        if isinstance(self.inputs, tuple) and isinstance(other.inputs, tuple):
            inputs = self.inputs + other.inputs
        else:
            inputs = np.concatenate([np.asarray(self.inputs), np.asarray(other.inputs)])
        columns = ("labels", "truth", "domains", "styles")
        return Examples(inputs, *(np.concatenate([getattr(self, name), getattr(other, name)]) for name in columns))

    def with_inputs(self, inputs: Inputs) -> Examples:
        """The same examples, changed."""
        return replace(self, inputs=inputs)


@dataclass(frozen=True)
class Episode:
    """A task and its queries.

    Args:
        support: what a method may see, with labels.
        query: what it must label; its labels are the truth.
        class_names: names of the classes.
    """

    support: Examples
    query: Examples
    class_names: tuple[str, ...]

    @property
    def n_way(self) -> int:
        """How many classes there are."""
        return len(self.class_names)
