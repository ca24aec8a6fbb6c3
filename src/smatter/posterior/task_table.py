"""What the routings of a table make of one task, as a record and as a file; `smatter.route.table` makes it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from smatter.backbones.heads import example_losses
from smatter.errors import InvalidSupport
from smatter.files.reading import MappedFile, as_torch
from smatter.files.writing import write_tensors
from smatter.posterior.categorical import Categorical
from smatter.records import TensorSpec

N_OWN = 2
"""Rows of a table that are the router's own: its point, with experts and without."""

FAR = 10.0
"""Nats by which what gives no numbers is above all else."""

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

    @cached_property
    def means(self) -> Tensor:
        """Their means, (n_routings,); of a routing that gives no numbers far above all others."""
        means = self.losses.mean(dim=1)
        sound = means.isfinite()
        if not bool(sound.any()):
            raise InvalidSupport("no routing gives a finite loss on some task: check its inputs and the sources")
        return means.where(sound, means[sound].max() + FAR)

    @cached_property
    def firsts(self) -> Tensor:
        """Number of the first row that is the same routing, (n_routings,): experts may be closed, so that two are."""
        return (self.points[:, None] == self.points).all(dim=2).to(torch.uint8).argmax(dim=1)

    @cached_property
    def is_beside(self) -> Tensor:
        """Whether a row can run beside the point: another routing with its experts, counted once, (n_routings,)."""
        experts, rows = self.points[:, len(self.prior) :], torch.arange(len(self.points))
        shares = (experts == experts[0]).all(dim=1) & self.losses.isfinite().all(dim=1)
        return shares & (self.firsts == rows) & (rows > 0)

    def counted_once(self, posterior: Categorical) -> Categorical:
        """A posterior over the rows where equal routings are one, the first, and broken ones are none."""
        broken = ~self.losses.isfinite().all(dim=1)
        shares = posterior.logits.masked_fill(broken, -torch.inf).softmax(dim=-1)
        return replace(posterior, logits=torch.zeros_like(shares).index_add(-1, self.firsts, shares).log())


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
