"""The one numbering of a network's parameters and of its units: module after module, in the partition's order.

A module's units are its groups, in their order, and then its rest, if any of its parameters lies in no group. Router
and experts number the units of all modules through; runtimes, profiles and budgets number those of a module from zero.
`Numbering` turns one into the other, so that whatever a router opens a runtime can serve.

Nothing here needs torch, so that a recipe is composed without it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smatter.compose.residual import Elements, Residual
from smatter.records import Partition, TensorSpec
from smatter.units.groups import Group, find_groups

if TYPE_CHECKING:
    from torch import Tensor

    Vector = Tensor | NDArray[np.float32]

REST = ":rest"
"""Ends the name of what lies outside of a module's groups: norms, convolutions, biases."""


@dataclass(frozen=True)
class ModuleUnits:
    """The units of one module.

    Args:
        first: number of its first unit among those of all modules.
        groups: its groups.
        n_units: one more where something lies outside of them: the rest.
    """

    first: int
    groups: tuple[Group, ...]
    n_units: int


@dataclass(frozen=True)
class Numbering:
    """Where each parameter lies in the vector of all, and which unit it is of.

    Args:
        specs: the tensors that take part, by name on disk.
        tensors: where each of them lies in the vector, module after module.
        modules: where each module that has any lies; one slice.
        units: of each of these modules.
        n_parameters: length of the vector.
        n_units: units of all modules.
    """

    specs: Mapping[str, TensorSpec]
    tensors: Mapping[str, slice]
    modules: Mapping[str, slice]
    units: Mapping[str, ModuleUnits]
    n_parameters: int
    n_units: int

    @classmethod
    def of(
        cls,
        specs: Mapping[str, TensorSpec],
        config: Mapping[str, Any],
        partition: Partition,
        used: Collection[str] | None = None,
    ) -> Numbering:
        """Number a network.

        Args:
            specs: its tensors, by name on disk.
            config: the content of config.json.
            partition: its modules.
            used: tensors that take part, those that the backbone uses say; all by default.
        """
        used = frozenset(specs if used is None else used)
        groups = find_groups(specs, config, partition)
        tensors, modules, units = {}, {}, {}
        position, first = 0, 0
        for module, names in partition.modules.items():
            begin = position
            for name in names:
                if name in used:
                    tensors[name] = slice(position, position + specs[name].n_elements)
                    position = tensors[name].stop
            if position > begin:
                own = groups.get(module, ())
                slices = [part for group in own for part in group.slices if part.tensor in tensors]
                in_groups = sum(  # a slice cuts one axis and has all of the others
                    (part.stop - part.start) * specs[part.tensor].n_elements // specs[part.tensor].shape[part.axis]
                    for part in slices
                )
                n_units = len(own) + (in_groups < position - begin)
                modules[module], units[module] = slice(begin, position), ModuleUnits(first, own, n_units)
                first += n_units
        return cls(
            {name: specs[name] for name in tensors}, tensors, modules, units=units, n_parameters=position, n_units=first
        )

    @cached_property
    def unit_of(self) -> NDArray[np.int32]:
        """The unit of each parameter, numbered through all modules, (n_parameters,)."""
        # It stays in memory, so its numbers are no longer than the parameters themselves.
        result = np.full(self.n_parameters, -1, np.int32)
        for module, where in self.modules.items():
            units = self.units[module]
            for number, group in enumerate(units.groups, units.first):
                for part in group.slices:
                    if part.tensor in self.tensors:
                        whole = result[self.tensors[part.tensor]].reshape(self.specs[part.tensor].shape)
                        whole[part.index] = number
            rest = result[where]
            rest[rest < 0] = units.first + len(units.groups)
        return result

    def active(self, residual: Residual) -> dict[str, float]:
        """Share of each module's groups that a residual touches, and 1 for each rest, by name; none where it is zero.

        A group or a rest counts as a whole if any number in it is touched.
        """
        touched = {name: residual.in_full(name, self.specs[name].shape) != 0 for name in residual.tensors}
        found: dict[str, float] = {}
        for module, own in self.units.items():
            slices = [[part for part in group.slices if part.tensor in touched] for group in own.groups]
            n_active = sum(any(bool(touched[part.tensor][part.index].any()) for part in each) for each in slices)
            if n_active:
                found[module] = n_active / len(own.groups)
            for part in (part for each in slices for part in each):
                touched[part.tensor][part.index] = False  # what is left is the rest
            where = self.modules[module]
            names = (name for name in touched if where.start <= self.tensors[name].start < where.stop)
            if any(bool(touched[name].any()) for name in names):
                found[module + REST] = 1.0
        return found

    def residual(self, vector: Vector) -> Residual:
        """A vector as a dense residual of the tensors where it is not zero; views, not copies."""
        array = np.asarray(vector)
        parts = {name: array[where].reshape(self.specs[name].shape) for name, where in self.tensors.items()}
        return Residual(dense={name: part for name, part in parts.items() if part.any()})

    def compact(self, vector: Vector) -> Residual | None:
        """A vector as a recipe holds it: single elements where they take less room than the tensor; None if zero."""
        elements, dense, array = {}, {}, np.asarray(vector)
        for name, where in self.tensors.items():
            values = array[where]
            indices = np.flatnonzero(values)
            if indices.size and 3 * indices.size >= values.size:  # an index takes as much as two values
                dense[name] = values.reshape(self.specs[name].shape).copy()
            elif indices.size:
                elements[name] = Elements(indices.astype(np.int64), values[indices].copy())
        return Residual(elements, dense) if elements or dense else None


@dataclass(frozen=True)
class Matrix:
    """A matrix in the vector of all parameters: its tensor, where it begins, and its sides."""

    tensor: str
    start: int
    n_rows: int
    n_columns: int


def find_matrices(numbering: Numbering, rank: int) -> list[Matrix]:
    """The tensors that a change of this rank can be a part of, as matrices: those of a larger rank."""
    found = []
    for name, where in numbering.tensors.items():
        spec = numbering.specs[name]
        n_columns = spec.n_elements // spec.shape[0] if spec.shape else 1
        if min(spec.n_elements // n_columns, n_columns) > rank:
            found.append(Matrix(name, where.start, spec.shape[0], n_columns))
    return found
