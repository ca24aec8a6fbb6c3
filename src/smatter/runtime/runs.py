"""What tasks keep of a shared delta, runs of open units, and the rows of a batch that open them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

CALL, JOINT_CALLS = 250_000, 4
"""Multiplications that take as long as a call of torch, and calls that it takes to gate a product of all rows."""

Run = tuple[int, int, float]
"""Units that follow each other and have the same gate: the first, one beyond the last, their gate."""


def runs_of(gates: Sequence[float]) -> tuple[Run, ...]:
    """How far each unit of a module is open, closed ones included, as runs.

    >>> runs_of([0.0, 0.5, 0.5, 0.0, 1.0])
    ((1, 3, 0.5), (4, 5, 1.0))
    """
    found, start = [], 0
    for value, same in groupby(gates):
        stop = start + len(list(same))
        if value:
            found.append((start, stop, float(value)))
        start = stop
    return tuple(found)


class OpenRows:
    """Rows of a batch, and what they open of one module.

    Args:
        tasks: the first row of each task, one beyond its last, and what it opens.
        n_rows: how many there are.
        n_units: of the module.
    """

    def __init__(self, tasks: Sequence[tuple[int, int, Sequence[Run]]], n_rows: int, n_units: int) -> None:
        self.tasks, self.n_rows, self._n_units = tasks, n_rows, n_units
        self._n_runs = sum(len(runs) for _, _, runs in tasks)
        n_open = sum((stop - start) * (last - first) for start, stop, runs in tasks for first, last, _ in runs)
        self._share = n_open / (n_rows * n_units)

    @cached_property
    def gates(self) -> Tensor:
        """How far each row opens each unit, (n_rows, n_units)."""
        found = np.zeros((self.n_rows, self._n_units), np.float32)
        for start, stop, runs in self.tasks:
            for first, last, gate in runs:
                found[start:stop, first:last] = gate
        return torch.from_numpy(found)

    def is_joint(self, n_units: int, n_products: int, n_calls: int) -> bool:
        """Whether it takes less time to compute all units of a place for all rows than what is open, run by run.

        Args:
            n_units: that the place has a part of.
            n_products: multiplications for all of them and all rows.
            n_calls: of torch for each run.
        """
        n_runs = min(self._n_runs, len(self.tasks) * n_units)
        return n_products + JOINT_CALLS * CALL < self._share * n_products + n_runs * n_calls * CALL

    def rows(self, inputs: Tensor, outputs: Tensor) -> Iterator[tuple[Sequence[Run], Tensor, Tensor]]:
        """What each task opens, and its part of inputs and outputs, which may have several rows for each of a batch."""
        n_each = len(outputs) // self.n_rows
        for start, stop, runs in self.tasks:
            begin, length = start * n_each, (stop - start) * n_each
            yield runs, inputs.narrow(0, begin, length), outputs.narrow(0, begin, length)
