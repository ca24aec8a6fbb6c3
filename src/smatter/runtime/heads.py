"""Heads of the tasks of a runtime: each row of a batch is named by its own task's head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from smatter.backbones.heads import Head, pool
from smatter.backbones.network import Network
from smatter.compose.head import ClassHead
from smatter.errors import InvalidRecipe
from smatter.live.predictions import Prediction, Predictions
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

    def predictions(self, logits: Tensor) -> Predictions:
        """The classes of rows, given their scores, (n, n_classes)."""
        assert self._record is not None
        return Predictions.of(logits, self._record)


class Voice(Protocol):
    """One network of a task."""

    @property
    def head(self) -> TaskHead:
        """How it scores classes."""
        ...

    @property
    def weight(self) -> float:
        """Of its scores."""
        ...


Key = tuple[str, int]
"""A task and the number of one of its networks."""


def check_one_network(task: str, voices: Sequence[Voice]) -> None:
    """Refuse a task of several networks where the features of one are asked for."""
    if len(voices) > 1:
        raise InvalidRecipe(
            f"task {task[:100]!r} averages the predictions of {len(voices)} networks, so it has no features of its "
            "own: use predict"
        )


def spread(rows: Mapping[str, Tensor], tasks: Mapping[str, Sequence[Voice]]) -> tuple[Tensor, dict[Key, Tensor]]:
    """Rows of a batch, repeated for each network of their task.

    Args:
        rows: numbers of the rows of each task.
        tasks: the networks of each.

    Returns:
        Which row each of the repeated ones is, and the numbers of those of each network.
    """
    keys = [(task, number) for task, voices in tasks.items() for number in range(len(voices))]
    if len(keys) == len(tasks):
        return torch.arange(sum(map(len, rows.values()))), {(task, 0): rows[task] for task in tasks}
    repeated = torch.cat([rows[task] for task, _ in keys])
    parts = torch.arange(len(repeated)).split([len(rows[task]) for task, _ in keys])
    return repeated, dict(zip(keys, parts, strict=True))


def name_rows(
    features: Tensor, rows: Mapping[str, Tensor], repeated: Mapping[Key, Tensor], tasks: Mapping[str, Sequence[Voice]]
) -> list[Prediction]:
    """The classes of all rows of a batch, in their order.

    Args:
        features: of the repeated rows, (n, d).
        rows: numbers of the rows of each task.
        repeated: numbers of the repeated rows of each network.
        tasks: the networks of each task.
    """
    found: dict[int, Prediction] = {}
    for task, voices in tasks.items():
        scores = [voice.head.logits(features[repeated[task, number]]) for number, voice in enumerate(voices)]
        pooled = pool(scores, [voice.weight for voice in voices])
        found |= zip(rows[task].tolist(), voices[0].head.predictions(pooled), strict=True)
    return [found[row] for row in range(len(found))]
