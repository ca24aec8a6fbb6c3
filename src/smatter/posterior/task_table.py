"""What the routings of a table make of one task, as a record and as a file; `smatter.route.table` makes it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from smatter.backbones.heads import example_losses
from smatter.files.reading import MappedFile, as_torch
from smatter.files.writing import write_tensors
from smatter.records import TensorSpec

N_OWN = 2
"""Rows of a table that are the router's own: its point, with experts and without."""

DTYPES = {torch.float32: "F32", torch.int64: "I64"}


@dataclass(frozen=True)
class TaskTable:
    """What some routings make of one task.

    Args:
        points: the routings, weights of the sources and, after them, of the experts and the null expert;
            (n_routings, d). The first is the router's own.
        held_out: scores of the examples' rows by prototypes that have not seen them, (n_routings, n_rows, n_classes).
        labels: class of each row, (n_rows,).
        examples: example of each row, (n_rows,).
        scores: of the queries, (n_routings, n_queries, n_classes).
        truth: class of each query, (n_queries,); -1 for one of no class of the task.
        prior: the router's weights of the sources where it is told nothing of their losses, (n_sources,).
    """

    points: Tensor
    held_out: Tensor
    labels: Tensor
    examples: Tensor
    scores: Tensor
    truth: Tensor
    prior: Tensor

    @property
    def n_classes(self) -> int:
        """How many there are."""
        return self.scores.shape[-1]

    @property
    def classes(self) -> Tensor:
        """Class of each example, (n_examples,)."""
        return torch.zeros(int(self.examples.max()) + 1, dtype=torch.int64).scatter(0, self.examples, self.labels)

    @property
    def n_shot(self) -> float:
        """Examples of a class, on average."""
        return len(self.classes) / self.n_classes

    @cached_property
    def losses(self) -> Tensor:
        """Leave-one-out loss of each example by each routing, (n_routings, n_examples)."""
        return torch.stack([example_losses(rows, self.labels, self.examples) for rows in self.held_out]).double()


def write_task_table(path: Path, table: TaskTable) -> None:
    """Keep a table."""
    tensors: dict[str, Tensor] = {field.name: getattr(table, field.name).contiguous() for field in fields(table)}
    items = [(name, TensorSpec(DTYPES[each.dtype], tuple(each.shape)), each.numpy()) for name, each in tensors.items()]
    write_tensors(path, items, {})


def read_task_table(path: Path) -> TaskTable:
    """A table that was kept."""
    file = MappedFile(path)
    tensors = {name: as_torch(file.whole(name).copy(), each.spec) for name, each in file.header.tensors.items()}
    return TaskTable(**tensors)
