"""The one numbering of a network's parameters and of its units: module after module, in the partition's order.

A module's units are its groups, in their order, and then its rest, if any of its parameters lies in no group. Router
and experts number the units of all modules through; runtimes, profiles and budgets number those of a module from zero.
`Numbering` turns one into the other, so that whatever a router opens a runtime can serve.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smatter.compose.residual import Elements, Residual
from smatter.records import Partition, TensorSpec
from smatter.units.groups import Group, find_groups

REST = ":rest"
"""Ends the name of what lies outside of a module's groups: norms, convolutions, biases."""


@dataclass(frozen=True)
class ModuleUnits:
    """The units of one module.

    Args:
        first: number of its first unit among those of all modules.
        groups: its groups.
        has_rest: whether one more unit is what lies outside of them.
    """

    first: int
    groups: tuple[Group, ...]
    has_rest: bool

    def __len__(self) -> int:
        return len(self.groups) + self.has_rest


@dataclass(frozen=True)
class Numbering:
    """Where each parameter lies in the vector of all, and which unit it is of.

    Args:
        specs: the tensors that take part, by name on disk.
        tensors: where each of them lies in the vector, module after module.
        modules: where each module that has any lies; one slice.
        units: of each of these modules.
    """

    specs: Mapping[str, TensorSpec]
    tensors: Mapping[str, slice]
    modules: Mapping[str, slice]
    units: Mapping[str, ModuleUnits]

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
        used = specs.keys() if used is None else used
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
                in_groups = sum(
                    _n_elements(specs[part.tensor], part.index)
                    for group in own
                    for part in group.slices
                    if part.tensor in tensors
                )
                modules[module] = slice(begin, position)
                units[module] = ModuleUnits(first, own, in_groups < position - begin)
                first += len(units[module])
        return cls({name: specs[name] for name in tensors}, tensors, modules, units)

    @property
    def n_parameters(self) -> int:
        """Length of the vector."""
        return max((where.stop for where in self.modules.values()), default=0)

    @property
    def n_units(self) -> int:
        """Units of all modules."""
        return sum(map(len, self.units.values()))

    def zeros(self) -> Tensor:
        """A vector that changes nothing, (n_parameters,)."""
        return torch.zeros(self.n_parameters)

    @cached_property
    def unit_of(self) -> Tensor:
        """The unit of each parameter, numbered through all modules, (n_parameters,)."""
        result = torch.full((self.n_parameters,), -1)
        for module, where in self.modules.items():
            units = self.units[module]
            for number, group in enumerate(units.groups, units.first):
                for part in group.slices:
                    if part.tensor in self.tensors:
                        result[self.tensors[part.tensor]].view(self.specs[part.tensor].shape)[part.index] = number
            rest = result[where]
            rest[rest < 0] = units.first + len(units.groups)
        return result

    def by_module(self, values: Sequence[float]) -> dict[str, list[float]]:
        """A number for each unit, as a router has them, as lists of the modules' own units."""
        return {
            module: [float(value) for value in values[own.first : own.first + len(own)]]
            for module, own in self.units.items()
        }

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

    def residual(self, vector: Tensor) -> Residual:
        """A vector as a dense residual of the tensors where it is not zero; views, not copies."""
        parts = {name: vector[where].reshape(self.specs[name].shape) for name, where in self.tensors.items()}
        return Residual(dense={name: part.numpy() for name, part in parts.items() if bool(part.any())})

    def compact(self, vector: Tensor) -> Residual | None:
        """A vector as a recipe holds it: single elements where they take less room than the tensor; None if zero."""
        elements, dense = {}, {}
        for name, values in self.residual(vector).dense.items():
            indices = np.flatnonzero(values)
            if 3 * indices.size < values.size:  # an index takes as much as two values
                elements[name] = Elements(indices.astype(np.int64), values.reshape(-1)[indices].copy())
            else:
                dense[name] = values.copy()
        return Residual(elements, dense) if elements or dense else None


def _n_elements(spec: TensorSpec, index: tuple[slice, ...]) -> int:
    """How many elements of a tensor a slice has."""
    return math.prod(len(range(*cut.indices(size))) for cut, size in zip(index, spec.shape, strict=False)) * math.prod(
        spec.shape[len(index) :]
    )
