"""Units of a shared delta, that tasks open: groups of a module's parameters, or rank components of an operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from smatter.errors import InvalidResidual
from smatter.records import Partition
from smatter.runtime.deltas import Addend, Again, Bias, Columns, RankFactors, Rows, Scale
from smatter.runtime.packing import whole_term
from smatter.runtime.places import Place
from smatter.runtime.runs import OpenRows, Run
from smatter.units.groups import Group
from smatter.units.numbering import Numbering


class UnitPart(Protocol):
    """What some units do at one place."""

    def add(self, opened: OpenRows, inputs: Tensor, outputs: Tensor) -> None:
        """Add what is open to a module's outputs, in place."""
        ...

    def packed(self, runs: Sequence[Run]) -> Addend | None:
        """A copy of what is open, if anything is."""
        ...


@dataclass(frozen=True)
class Units:
    """All units of a delta.

    Args:
        n_units: of each module, or of each operator by its weight's name.
        at: what they do, by module and by the keys of places.
    """

    n_units: Mapping[str, int]
    at: Mapping[str, Mapping[str, Sequence[UnitPart]]]


@dataclass(frozen=True)
class RankComponents:
    """A delta of low rank: to the weight of each of some linear operators is added B diag(open) A.

    Args:
        factors: B, (n_out, rank), and A, (rank, n_in), by the weight's name on disk, as LoRA has them.
    """

    factors: Mapping[str, tuple[Tensor, Tensor]]

    def __post_init__(self) -> None:
        if not self.factors:
            raise InvalidResidual("a delta of low rank needs at least one operator")
        for name, (left, right) in self.factors.items():
            if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0] or not left.shape[1]:
                shapes = f"{list(left.shape)} and {list(right.shape)}"
                raise InvalidResidual(f"{shapes} of {name[:100]!r} are not B, (n_out, rank), and A, (rank, n_in)")
            if not (bool(left.isfinite().all()) and bool(right.isfinite().all())):
                raise InvalidResidual(f"the factors of {name[:100]!r} have NaN or Inf: whatever made them diverged")


@dataclass(frozen=True)
class Cut:
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

    def add(self, opened: OpenRows, inputs: Tensor, outputs: Tensor) -> None:
        """See `UnitPart`."""
        if opened.is_joint(self._n_units, len(inputs) * self.matrix.numel(), len(self.starts)):
            self._add_all(opened, inputs, outputs)
            return
        for runs, read, computed in opened.rows(inputs, outputs):
            for start, width, gate in self._ranges(runs):
                part = self.matrix.narrow(self.axis, start, width)
                if self.axis == 0:
                    computed.addmm_(read.narrow(1, start, width), part, alpha=gate)
                    continue
                own = computed.narrow(1, start, width)
                own.addmm_(read, part, alpha=gate)
                if self.bias is not None:
                    own.add_(self.bias.narrow(0, start, width), alpha=gate)

    def _add_all(self, opened: OpenRows, inputs: Tensor, outputs: Tensor) -> None:
        """All units for all rows in one product, which gates multiply where it is computed or read."""
        gates = opened.gates.index_select(1, self._unit_of).to(inputs.dtype).unsqueeze(1)
        if self.axis == 0:
            read = inputs.view(opened.n_rows, -1, inputs.shape[1]) * gates
            outputs.addmm_(read.flatten(0, 1), self.matrix)
            return
        own = inputs @ self.matrix if self.bias is None else torch.addmm(self.bias, inputs, self.matrix)
        shape = (opened.n_rows, -1, outputs.shape[1])
        outputs.view(shape).addcmul_(own.view(shape), gates)

    @property
    def _n_units(self) -> int:
        return len(self.starts[0]) - 1

    @cached_property
    def _unit_of(self) -> Tensor:
        """The unit of each row or column of the matrix."""
        found = torch.zeros(self.matrix.shape[self.axis], dtype=torch.int64)
        for starts in self.starts:
            for number, (start, stop) in enumerate(pairwise(starts), self.first):
                found[start:stop] = number
        return found

    def packed(self, runs: Sequence[Run]) -> Addend | None:
        """See `UnitPart`."""
        ranges = sorted(self._ranges(runs))
        if not ranges:
            return None
        index = torch.cat([torch.arange(start, start + width) for start, width, _ in ranges])
        widths = torch.tensor([width for _, width, _ in ranges])
        gates = torch.tensor([gate for *_, gate in ranges], dtype=self.matrix.dtype).repeat_interleave(widths)
        values = self.matrix.index_select(self.axis, index)
        if self.axis == 0:
            return Columns(index, values * gates[:, None])
        bias = None if self.bias is None else self.bias[index] * gates
        return Rows(index, values * gates, bias)

    def _ranges(self, runs: Sequence[Run]) -> Iterator[tuple[int, int, float]]:
        """Start, width and gate of what is open along the axis."""
        n_units = self._n_units
        for begin, end, gate in runs:
            low, high = max(begin - self.first, 0), min(end - self.first, n_units)
            if low < high:
                for starts in self.starts:
                    yield starts[low], starts[high] - starts[low], gate


@dataclass(frozen=True)
class Rest:
    """What lies outside of groups at a place.

    Args:
        unit: its number in the module.
        term: what is added.
    """

    unit: int
    term: Again | Bias | Scale

    def add(self, opened: OpenRows, inputs: Tensor, outputs: Tensor) -> None:
        """See `UnitPart`."""
        gates, n_each = opened.gates[:, self.unit], len(outputs) // opened.n_rows
        of_row = gates.tolist()
        own = [(start, stop, of_row[start]) for start, stop, _ in opened.tasks if of_row[start]]
        if len(own) > 1 and 2 * sum(stop - start for start, stop, _ in own) >= opened.n_rows:
            each = gates.repeat_interleave(n_each).to(outputs.dtype)
            self.term.add(inputs, outputs, each.view(-1, *[1] * (outputs.ndim - 1)))
            return
        for start, stop, gate in own:
            begin, length = start * n_each, (stop - start) * n_each
            self.term.add(inputs.narrow(0, begin, length), outputs.narrow(0, begin, length), gate)

    def packed(self, runs: Sequence[Run]) -> Addend | None:
        """See `UnitPart`."""
        gate = next((gate for first, last, gate in runs if first <= self.unit < last), 0.0)
        return self.term.times(gate) if gate else None


@dataclass(frozen=True)
class Components:
    """Rank components of a linear operator, each a unit.

    Args:
        every: all of them, open.
    """

    every: RankFactors

    def add(self, opened: OpenRows, inputs: Tensor, outputs: Tensor) -> None:
        """See `UnitPart`."""
        right, left = self.every.right, self.every.left
        if opened.is_joint(len(left), len(inputs) * (right.numel() + left.numel()), 2):
            read = (inputs @ right).view(opened.n_rows, -1, right.shape[1])
            gated = read.mul_(opened.gates.to(read.dtype).unsqueeze(1)).view(-1, right.shape[1])
            outputs.addmm_(gated, left)
            return
        for runs, given, computed in opened.rows(inputs, outputs):
            for first, last, gate in runs:
                computed.addmm_(given @ right[:, first:last], left[first:last], alpha=gate)

    def packed(self, runs: Sequence[Run]) -> Addend | None:
        """See `UnitPart`."""
        if not runs:
            return None
        right = torch.cat([self.every.right[:, first:last] * gate for first, last, gate in runs], dim=1)
        return RankFactors(right, torch.cat([self.every.left[first:last] for first, last, _ in runs]))


def rank_units(delta: RankComponents, places: Mapping[str, Place], base: Mapping[str, Tensor]) -> Units:
    """Every component of every operator is a unit.

    Args:
        delta: the components.
        places: of the network, by names of tensors on disk.
        base: the tensors that tasks share.
    """
    at: dict[str, dict[str, list[UnitPart]]] = {}
    for disk, (left, right) in delta.factors.items():
        place = places.get(disk)
        if place is None or place.kind != "linear" or place.key != disk:
            raise InvalidResidual(f"tasks that share a base have no linear operator {disk[:100]!r}: use another name")
        shape = base[disk].shape[::-1] if place.is_transposed else base[disk].shape
        if (left.shape[0], right.shape[1]) != tuple(shape):
            raise InvalidResidual(f"the factors of {disk!r} make {left.shape[0]} x {right.shape[1]}, not {list(shape)}")
        dtype = base[disk].dtype
        parts = [part.T.to(dtype, copy=True).contiguous() for part in (right, left)]
        at[disk] = {disk: [Components(RankFactors(*parts))]}
    return Units({disk: left.shape[1] for disk, (left, _) in delta.factors.items()}, at)


def group_units(
    values: Mapping[str, Tensor],
    places: Mapping[str, Place],
    numbering: Numbering,
    partition: Partition,
    base: Mapping[str, Tensor],
) -> Units:
    """The groups of a module are units, and one more is what lies outside of them, as `Numbering` has it.

    Args:
        values: what each tensor differs by, by name on disk; see `dense_values`.
        places: of the network, by names of tensors on disk.
        numbering: the units of each module.
        partition: the modules.
        base: the tensors that tasks share.
    """
    values = {disk: tensor.to(base[disk].dtype) for disk, tensor in values.items()}
    n_units = {module: units.n_units for module, units in numbering.units.items()}
    at: dict[str, dict[str, list[UnitPart]]] = {module: {} for module in n_units}
    for place in dict.fromkeys(places[disk] for disk in values):
        module = partition.module_of(place.key)
        own = {name: values[disk] for name, disk in place.tensors.items() if disk in values}
        cuts = numbering.units[module].groups
        if place.kind == "linear":
            home = partition.module_of(place.tensors["bias"]) if "bias" in own else module
            if home != module:  # a pattern of the user's has put weight and bias into different modules
                _place_bias(at[home], place, own.pop("bias"), numbering.units[home].groups)
            if "weight" in own or "bias" in own:
                at[module][place.key] = _linear_parts(place, own, cuts, base)
            continue
        if any(part.tensor in place.tensors.values() for group in cuts for part in group.slices):
            raise InvalidResidual(f"{place.key!r} cannot be opened group by group: leave it out of the delta")
        at[module][place.key] = [Rest(len(cuts), whole_term(place, own, base))]
    return Units(n_units, at)


def _place_bias(at: dict[str, list[UnitPart]], place: Place, bias: Tensor, groups: Sequence[Group]) -> None:
    """A bias that is in another module than its weight: part of that module's rest."""
    if any(part.tensor == place.tensors["bias"] for group in groups for part in group.slices):
        raise InvalidResidual(f"the bias of {place.key!r} is cut apart from its weight: leave it out of the delta")
    at[place.key] = [Rest(len(groups), Bias(bias))]


def _linear_parts(
    place: Place, values: Mapping[str, Tensor], groups: Sequence[Group], base: Mapping[str, Tensor]
) -> list[UnitPart]:
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
        return [Cut(matrix, bias, 1, rest, [[0, matrix.shape[1]]])]
    first, last = min(slices), max(slices)
    axis = slices[first][0].axis if place.is_transposed else 1 - slices[first][0].axis
    starts = [
        [*(slices[number][part].start for number in range(first, last + 1)), slices[last][part].stop]
        for part in range(len(slices[first]))
    ]
    if axis == 1:
        return [Cut(matrix, bias, 1, first, starts)]
    cut: list[UnitPart] = [Cut(matrix, None, 0, first, starts)]
    return cut if bias is None else [*cut, Rest(rest, Bias(bias))]
