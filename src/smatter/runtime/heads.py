"""Heads of the tasks of a runtime: each row of a batch is named by its own task's head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from smatter.backbones.heads import Head
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

    def predictions(self, features: Tensor) -> Predictions:
        """The classes of a task's rows, given their features, (n, d)."""
        assert self._record is not None and self._coefficients is not None
        return Predictions.of(self._coefficients.logits(features.float()), self._record)


def name_rows(features: Tensor, members: Mapping[str, Tensor], heads: Mapping[str, TaskHead]) -> list[Prediction]:
    """The classes of all rows of a batch, in their order.

    Args:
        features: of all rows, (n, d).
        members: numbers of the rows of each task.
        heads: of these tasks.
    """
    found: dict[int, Prediction] = {}
    for task, rows in members.items():
        found |= zip(rows.tolist(), heads[task].predictions(features[rows]), strict=True)
    return [found[row] for row in range(len(features))]
