"""A reusable place in memory for one network, for a process that composes task after task."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from smatter.compose.execute import Reader, execute
from smatter.compose.plan import Plan, Step
from smatter.errors import InvalidRecipe
from smatter.files.arrays import NUMPY_DTYPES, Array, as_torch
from smatter.records import Progress, TensorSpec, silent

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64


class Arena:
    """Memory for every tensor of a network, allocated once; each `fill` overwrites the last.

    Fresh pages cost several times what reused ones do, so the second task in an arena composes faster than
    the first. Tensors from `tensors()` are views: they change with the next `fill`.
    """

    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self.specs = dict(specs)
        offsets, end = {}, 0
        for name, spec in self.specs.items():
            offsets[name] = end
            end += -(-spec.n_bytes // ALIGNMENT) * ALIGNMENT
        memory = np.empty(end + ALIGNMENT, np.uint8)
        shift = -memory.ctypes.data % ALIGNMENT
        self._arrays: dict[str, Array] = {
            name: memory[shift + offset : shift + offset + self.specs[name].n_bytes].view(
                NUMPY_DTYPES[self.specs[name].dtype]
            )
            for name, offset in offsets.items()
        }

    def fill(self, plan: Plan, reader: Reader, threads: int = 1, progress: Progress = silent) -> "Arena":
        """Compute a plan into this arena; returns the arena."""
        if plan.specs != self.specs:
            raise InvalidRecipe("this arena was made for another network: make one from the plan's own specs")
        execute(plan, reader, self, threads, progress)
        return self

    def array(self, name: str) -> Array:
        """One tensor as a flat numpy view (bfloat16 as bits)."""
        return self._arrays[name]

    def tensors(self) -> "dict[str, torch.Tensor]":
        """All tensors as torch views, by name on disk."""
        return {name: as_torch(self._arrays[name], spec) for name, spec in self.specs.items()}

    def buffer(self, step: Step, start: int, stop: int) -> Array:
        """The arena's own memory: blocks are computed in place."""
        return self._arrays[step.tensor][start:stop]

    def done(self, step: Step, start: int, stop: int, block: Array) -> None:
        """Nothing to move."""
