"""Tasks that share one delta: each opens some of its units, and keeps nothing but which and how far.

    D_task = sum over units u of far_u * delta_u

The units of a module are its groups, and one more for all that lies outside of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import torch
from torch import Tensor

from smatter.backbones.groups import Group
from smatter.errors import InvalidResidual
from smatter.records import Partition
from smatter.runtime.deltas import Add, Again, Bias, Columns, OwnDeltas, Rows, Scale, Term, n_bytes
from smatter.runtime.packing import whole_term
from smatter.runtime.places import Place

Run = tuple[int, int, float]
"""Units that follow each other and are open equally far: the first, one beyond the last, how far."""


def runs_of(far: Sequence[float]) -> tuple[Run, ...]:
    """How far each unit of a module is open, closed ones included, as runs.

    >>> runs_of([0.0, 0.5, 0.5, 0.0, 1.0])
    ((1, 3, 0.5), (4, 5, 1.0))
    """
    found, start = [], 0
    for value, same in groupby(far):
        stop = start + len(list(same))
        if value:
            found.append((start, stop, float(value)))
        start = stop
    return tuple(found)


@dataclass(frozen=True)
class _Cut:
    """A linear operator of the shared delta, and where units lie in it.

    Args:
        matrix: what the weight differs by, (n_in, n_out): BLAS is quicker with inputs first.
        bias: likewise; of an operator that reads its units it is apart.
        axis: 0 where the operator reads units, 1 where it computes them.
        first: the first unit that it has a part of.
        starts: for each part of a fused operator, where each unit begins along the axis, and where the last ends.
    """

    matrix: Tensor
    bias: Tensor | None
    axis: int
    first: int
    starts: Sequence[Sequence[int]]

    def add(self, runs: Sequence[Run], inputs: Tensor, outputs: Tensor) -> None:
        for start, width, far in self._ranges(runs):
            part = self.matrix.narrow(self.axis, start, width)
            if self.axis == 0:
                outputs.addmm_(inputs.narrow(1, start, width), part, alpha=far)
                continue
            own = outputs.narrow(1, start, width)
            own.addmm_(inputs, part, alpha=far)
            if self.bias is not None:
                own.add_(self.bias.narrow(0, start, width), alpha=far)

    def packed(self, runs: Sequence[Run]) -> Term | None:
        ranges = sorted(self._ranges(runs))
        if not ranges:
            return None
        index = torch.cat([torch.arange(start, start + width) for start, width, _ in ranges])
        widths, gates = torch.tensor([width for _, width, _ in ranges]), [far for *_, far in ranges]
        far = torch.tensor(gates, dtype=self.matrix.dtype).repeat_interleave(widths)
        values = self.matrix.index_select(self.axis, index)
        if self.axis == 0:
            return Columns(index, values * far[:, None])
        bias = None if self.bias is None else self.bias[index] * far
        return Rows(index, values * far, bias)

    def _ranges(self, runs: Sequence[Run]) -> Iterator[tuple[int, int, float]]:
        """Start, width and gate of what is open along the axis."""
        n_units = len(self.starts[0]) - 1
        for begin, end, far in runs:
            low, high = max(begin - self.first, 0), min(end - self.first, n_units)
            if low < high:
                for starts in self.starts:
                    yield starts[low], starts[high] - starts[low], far


@dataclass(frozen=True)
class _Rest:
    """What lies outside of groups at a place.

    Args:
        unit: its number in the module.
        term: what is added.
    """

    unit: int
    term: Again | Bias | Scale

    def add(self, runs: Sequence[Run], inputs: Tensor, outputs: Tensor) -> None:
        for first, last, far in runs:
            if first <= self.unit < last:
                self.term.add(inputs, outputs, far)

    def packed(self, runs: Sequence[Run]) -> Term | None:
        far = next((far for first, last, far in runs if first <= self.unit < last), 0.0)
        return self.term.times(far) if far else None


class SharedDelta:
    """A delta of which tasks open units.

    Args:
        values: what each tensor differs by, by name on disk; see `dense_values`.
        places: of the network, by names of tensors on disk.
        groups: of each module.
        partition: the modules.
        base: the tensors that tasks share.
    """

    def __init__(
        self,
        values: Mapping[str, Tensor],
        places: Mapping[str, Place],
        groups: Mapping[str, Sequence[Group]],
        partition: Partition,
        base: Mapping[str, Tensor],
    ) -> None:
        values = {disk: tensor.to(base[disk].dtype) for disk, tensor in values.items()}
        self.n_bytes = n_bytes(*values.values())
        self.n_units = {module: len(groups.get(module, ())) + 1 for module in partition.modules}
        self._at: dict[str, dict[str, list[_Cut | _Rest]]] = {module: {} for module in partition.modules}
        for place in dict.fromkeys(places[disk] for disk in values):
            module = partition.module_of(place.key)
            own = {name: values[disk] for name, disk in place.tensors.items() if disk in values}
            rest = self.n_units[module] - 1
            parts: list[_Cut | _Rest] = []
            if place.kind != "linear":
                if any(
                    part.tensor in place.tensors.values() for group in groups.get(module, ()) for part in group.slices
                ):
                    raise InvalidResidual(f"{place.key!r} cannot be opened group by group: leave it out of the delta")
                parts = [_Rest(rest, whole_term(place, own, base))]
            else:
                parts = _linear_parts(place, own, groups.get(module, ()), base)
            self._at[module][place.key] = parts

    def opened(self, far: Mapping[str, Sequence[float]]) -> OpenUnits:
        """A task, by how far it opens each unit of some modules."""
        for module, own in far.items():
            if len(own) != self.n_units.get(module, -1):
                n_units = self.n_units.get(module, "no")
                raise InvalidResidual(f"module {module[:100]!r} has {n_units} units, not {len(own)}: make gates anew")
            if not bool(torch.tensor(own, dtype=torch.float64).isfinite().all()):
                raise InvalidResidual("gates have NaN or Inf: whatever made them diverged")
        runs = {module: runs_of(own) for module, own in far.items()}
        return OpenUnits(self, {module: own for module, own in runs.items() if own})

    def packed(self, far: Mapping[str, Sequence[float]]) -> OwnDeltas:
        """The same task with a copy of its open units, all that it needs side by side: quicker, at their memory."""
        terms: dict[str, list[Term]] = {}
        for module, runs in self.opened(far).runs.items():
            for key, parts in self._at[module].items():
                if own := [term for part in parts if (term := part.packed(runs)) is not None]:
                    terms[key] = own
        return OwnDeltas(terms)

    def adds(self, runs: Mapping[str, tuple[Run, ...]]) -> Iterator[tuple[str, Add]]:
        """Keys of places, and what is added there."""
        for module, own in runs.items():
            for key, parts in self._at[module].items():
                for part in parts:
                    yield key, partial(part.add, own)


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
        return self.shared.adds(self.runs)


def _linear_parts(
    place: Place, values: Mapping[str, Tensor], groups: Sequence[Group], base: Mapping[str, Tensor]
) -> list[_Cut | _Rest]:
    """A linear operator by units; a bias that lies outside of groups is apart."""
    weight, rest = place.tensors["weight"], len(groups)
    bias = values.get("bias")
    matrix = values["weight"] if "weight" in values else torch.zeros_like(base[weight])
    matrix = (matrix if place.is_transposed else matrix.T).contiguous()
    slices = {
        number: own
        for number, group in enumerate(groups)
        if (own := [part for part in group.slices if part.tensor == weight])
    }
    if not slices:
        return [_Cut(matrix, bias, 1, rest, [[0, matrix.shape[1]]])]
    first, last = min(slices), max(slices)
    axis = slices[first][0].axis if place.is_transposed else 1 - slices[first][0].axis
    starts = [
        [*(slices[number][part].start for number in range(first, last + 1)), slices[last][part].stop]
        for part in range(len(slices[first]))
    ]
    if axis == 1:
        return [_Cut(matrix, bias, 1, first, starts)]
    cut: list[_Cut | _Rest] = [_Cut(matrix, None, 0, first, starts)]
    return cut if bias is None else [*cut, _Rest(rest, Bias(bias))]
