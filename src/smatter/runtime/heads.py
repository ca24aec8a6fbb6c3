"""Heads of the tasks of a runtime: each row of a batch is named by its own task's head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from smatter.backbones.heads import Head, pool
from smatter.backbones.network import Network
from smatter.compose.head import ClassHead
from smatter.errors import InvalidRecipe
from smatter.live.predictions import Predictions
from smatter.runtime.deltas import n_bytes


class TaskHead:
    """How the rows of a task are named, if at all; it is computed in float32.

    Args:
        record: as the recipe has it; copied. None where the recipe has none.
        network: whose features it is for.
    """

    def __init__(self, record: ClassHead | None, network: Network) -> None:
        self._coefficients: Head | None = None
        if record is not None and record.weight is not None:
            record.check_fits(network.n_features)
            bias = None if record.bias is None else record.bias.copy()
            record = replace(record, weight=record.weight.copy(), bias=bias)
            self._coefficients = Head.of(record)
        self._record = record

    @property
    def n_bytes(self) -> int:
        """Memory of the coefficients."""
        return 0 if self._coefficients is None else n_bytes(self._coefficients.weight, self._coefficients.bias)

    def check(self, task: str) -> None:
        """Refuse a task whose rows cannot be named."""
        if self._record is None:
            raise InvalidRecipe(
                f"task {task[:100]!r} was loaded without a head, so it names no classes: load a recipe that "
                "`smatter adapt -o` wrote, or use its features"
            )
        if self._coefficients is None:
            raise InvalidRecipe(
                f"the head of task {task[:100]!r} is the sources' own classifier, which runtimes do not have: use "
                "`smatter predict`"
            )

    def logits(self, features: Tensor) -> Tensor:
        """Scores of the classes of a task's rows, given their features, (n, d)."""
        assert self._coefficients is not None
        return self._coefficients.logits(features.float())

    @property
    def record(self) -> ClassHead:
        """As the recipe has it."""
        assert self._record is not None
        return self._record


Key = tuple[str, int]
"""A task and the number of one of its networks."""


def check_one_network(task: str, n_networks: int) -> None:
    """Refuse a task of several networks where the features of one are asked for."""
    if n_networks > 1:
        raise InvalidRecipe(
            f"task {task[:100]!r} averages the predictions of {n_networks} networks, so it has no features of its own: "
            "use predict"
        )


def predictions(heads: Sequence[TaskHead], features: Sequence[Tensor], weights: Sequence[float]) -> Predictions:
    """The classes of a task's rows by its networks together.

    Args:
        heads: of each network.
        features: that each gives, (n, d).
        weights: of each one's scores.
    """
    scores = [head.logits(each) for head, each in zip(heads, features, strict=True)]
    return Predictions.of(pool(scores, weights), heads[0].record)


def repeated_rows(rows: Mapping[str, Tensor], n_networks: Mapping[str, int]) -> tuple[Tensor, dict[Key, Tensor]]:
    """Rows of a batch, repeated for each network of their task.

    Args:
        rows: numbers of the rows of each task.
        n_networks: of each task.

    Returns:
        Which row each of the repeated ones is, and the numbers of those of each network.
    """
    keys = [(task, number) for task in rows for number in range(n_networks[task])]
    if len(keys) == len(rows):  # as they are, not copied
        return torch.arange(sum(map(len, rows.values()))), {(task, 0): each for task, each in rows.items()}
    repeated = torch.cat([rows[task] for task, _ in keys])
    parts = torch.arange(len(repeated)).split([len(rows[task]) for task, _ in keys])
    return repeated, dict(zip(keys, parts, strict=True))
