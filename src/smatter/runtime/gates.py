"""Tasks that share one delta: each opens some of its units, and keeps nothing but which and how far.

D_task = sum over units u of gate_u * delta_u
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from smatter.errors import InvalidResidual
from smatter.runtime.deltas import Add, Addend, Deltas, OwnDeltas, SeveralDeltas
from smatter.runtime.runs import OpenRows, Run, runs_of
from smatter.runtime.units import Units


@dataclass(frozen=True, eq=False)
class SharedDelta:
    """A delta of which tasks open units.

    Args:
        units: all of them.
    """

    units: Units

    @property
    def n_units(self) -> Mapping[str, int]:
        """Of each module, or of each operator."""
        return self.units.n_units

    def opened(self, gates: Mapping[str, Sequence[float]]) -> OpenUnits:
        """A task, by how far it opens each unit of some modules."""
        for module, own in gates.items():
            if len(own) != self.n_units.get(module, -1):
                n_units = self.n_units.get(module, "no")
                raise InvalidResidual(f"module {module[:100]!r} has {n_units} units, not {len(own)}: make gates anew")
            if not bool(torch.tensor(own, dtype=torch.float64).isfinite().all()):
                raise InvalidResidual("gates have NaN or Inf: whatever made them diverged")
        runs = {module: runs_of(own) for module, own in gates.items()}
        return OpenUnits(self, {module: own for module, own in runs.items() if own})

    def packed(self, gates: Mapping[str, Sequence[float]]) -> OwnDeltas:
        """The same task with a copy of its open units, all that it needs side by side: quicker, at their memory."""
        terms: dict[str, list[Addend]] = {}
        for module, runs in self.opened(gates).runs.items():
            for key, parts in self.units.at[module].items():
                if own := [term for part in parts if (term := part.packed(runs)) is not None]:
                    terms.setdefault(key, []).extend(own)
        return OwnDeltas(terms)

    def adds(self, tasks: Sequence[tuple[int, int, OpenUnits]], n_rows: int) -> Iterator[tuple[str, Add]]:
        """Keys of places, and what tasks add there together.

        Args:
            tasks: the first row of each, one beyond its last, and the task.
            n_rows: of all of them.
        """
        for module in dict.fromkeys(module for _, _, task in tasks for module in task.runs):
            own = [(start, stop, task.runs[module]) for start, stop, task in tasks if module in task.runs]
            opened = OpenRows(own, n_rows, self.n_units[module])
            for key, parts in self.units.at[module].items():
                for part in parts:
                    yield key, partial(part.add, opened)


@dataclass(frozen=True)
class OpenUnits:
    """A task that opens units of a shared delta.

    Args:
        shared: the delta.
        runs: open units of each module.
    """

    shared: SharedDelta
    runs: Mapping[str, tuple[Run, ...]]

    @property
    def n_bytes(self) -> int:
        """Memory of the task alone: three numbers for each run."""
        return sum(24 * len(own) for own in self.runs.values())

    def adds(self) -> Iterator[tuple[str, Add]]:
        """See `Deltas`."""
        return self.shared.adds([(0, 1, self)], 1)


def adds_together(segments: Sequence[tuple[int, int, Deltas]]) -> Iterator[tuple[str, int, int, Add]]:
    """Keys of places, rows, and what tasks add there; those that open the same delta do so together.

    Args:
        segments: the first row of each task, one beyond its last, and the task; in order of rows.
    """
    together: dict[SharedDelta, list[tuple[int, int, OpenUnits]]] = {}
    for start, stop, task in segments:
        for part in task.parts if isinstance(task, SeveralDeltas) else (task,):
            if isinstance(part, OpenUnits):
                together.setdefault(part.shared, []).append((start, stop, part))
                continue
            for key, add in part.adds():
                yield key, start, stop, add
    for shared, own in together.items():
        first, last = own[0][0], own[-1][1]
        for key, add in shared.adds([(start - first, stop - first, task) for start, stop, task in own], last - first):
            yield key, first, last, add
