"""Rows of a batch, sorted by task and put back in their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from smatter.backbones.network import Inputs
from smatter.errors import InvalidSupport, NotFound

Entry = TypeVar("Entry")


def rows_of_tasks(tasks: Sequence[str], inputs: Inputs) -> dict[str, Tensor]:
    """The numbers of the rows of each task, by name, in order of appearance."""
    if not isinstance(inputs, Mapping) or not all(isinstance(each, Tensor) for each in inputs.values()):
        raise InvalidSupport('inputs must be the tensors of a forward pass by name, {"pixel_values": ...}')
    for name, each in inputs.items():
        if len(each) != len(tasks) or not tasks:
            raise InvalidSupport(
                f"{len(each)} rows of {name} and {len(tasks)} names of tasks: give each row its task, and at least one"
            )
    found: dict[str, list[int]] = {}
    for row, task in enumerate(tasks):
        found.setdefault(task, []).append(row)
    return {task: torch.tensor(rows) for task, rows in found.items()}


def take(inputs: Inputs, rows: Tensor) -> Inputs:
    """Some rows; not copied where they are all of them in order."""
    n_rows = len(next(iter(inputs.values())))
    if len(rows) == n_rows and bool((rows == torch.arange(n_rows)).all()):
        return inputs
    return {name: tensor[rows] for name, tensor in inputs.items()}


def put_back(parts: Iterable[tuple[Tensor, Tensor]], n_rows: int) -> Tensor:
    """Features of all rows, (n_rows, d), from pairs of row numbers and their features."""
    result: Tensor | None = None
    for rows, features in parts:
        if result is None:
            result = features.new_empty(n_rows, features.shape[1])
        result[rows] = features
    assert result is not None
    return result


def find_task(present: Mapping[str, Entry], task: str) -> Entry:
    """A task among those that are loaded."""
    try:
        return present[task]
    except KeyError:
        raise NotFound(f"no task {task[:100]!r} is loaded: load it first") from None
