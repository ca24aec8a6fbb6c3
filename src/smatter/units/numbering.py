"""The one numbering of a network's parameters and of its units: module after module, in the partition's order.

A module's units are its groups, in their order, and then its rest, if any of its parameters lies in no group. Router
and experts number the units of all modules through; runtimes, profiles and budgets number those of a module from zero.
`Numbering` turns one into the other, so that whatever a router opens a runtime can serve.

A correction D is linear in how far each unit is open, D = sum_u open_u D_u; what its units are, a `Layout` says: groups
of parameters (a head, some neurons, some channels), single parameters, or rank components of a low-rank change to a
matrix (multi-source paper, section 6).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidSettings
from smatter.records import Partition, TensorSpec
from smatter.settings import UnitKind
from smatter.units.groups import Group, find_groups

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

    def zeros(self) -> Tensor:
        """A vector that changes nothing, (n_parameters,)."""
        return torch.zeros(self.n_parameters)

    @cached_property
    def unit_of(self) -> Tensor:
        """The unit of each parameter, numbered through all modules, (n_parameters,)."""
        # It stays in memory, so its numbers are no longer than the parameters themselves.
        result = torch.full((self.n_parameters,), -1, dtype=torch.int32)
        for module, where in self.modules.items():
            units = self.units[module]
            for number, group in enumerate(units.groups, units.first):
                for part in group.slices:
                    if part.tensor in self.tensors:
                        whole = result[self.tensors[part.tensor]].view(self.specs[part.tensor].shape)
                        whole.narrow(part.axis, part.start, part.stop - part.start).fill_(number)
            rest = result[where]
            rest[rest < 0] = units.first + len(units.groups)
        return result

    def by_module(self, values: Sequence[float]) -> dict[str, list[float]]:
        """A number for each unit, as a router has them, as lists of the modules' own units."""
        return {
            module: [float(value) for value in values[own.first : own.first + own.n_units]]
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
        for name, where in self.tensors.items():
            values = vector[where].numpy()
            indices = np.flatnonzero(values)
            if indices.size and 3 * indices.size >= values.size:  # an index takes as much as two values
                dense[name] = values.reshape(self.specs[name].shape).copy()
            elif indices.size:
                elements[name] = Elements(indices.astype(np.int64), values[indices].copy())
        return Residual(elements, dense) if elements or dense else None


class Layout(Protocol):
    """How values that are learnt become D, (n_parameters,)."""

    @property
    def n_parameters(self) -> int:
        """Parameters of the network."""
        ...

    @property
    def unit_of(self) -> Tensor:
        """The unit of each value, (n_values,), numbered from zero."""
        ...

    def first_values(self, generator: torch.Generator) -> Tensor:
        """Values to begin with, (n_values,), at which D is zero and the loss has a gradient."""
        ...

    def expand(self, values: Tensor, open_: Tensor) -> Tensor:
        """D of some values, (n_values,), and of how far each unit is open, (n_units,); differentiable in both."""
        ...

    def strengths(self, values: Tensor) -> Tensor:
        """The norm of each D_u, (n_units,)."""
        ...


@dataclass(frozen=True)
class Masked:
    """Units that are parameters of their own; the values are what is added to them.

    Args:
        unit_of: the unit of each parameter, (n_parameters,).
    """

    unit_of: Tensor

    @property
    def n_parameters(self) -> int:
        """Parameters of the network."""
        return len(self.unit_of)

    def first_values(self, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Nothing is added."""
        return torch.zeros(self.n_parameters)

    def expand(self, values: Tensor, open_: Tensor) -> Tensor:
        """Each value as far as its unit is open."""
        return values * open_[self.unit_of]

    def strengths(self, values: Tensor) -> Tensor:
        """The norm of the values of each unit."""
        squares = torch.zeros(int(self.unit_of.max()) + 1).index_add(0, self.unit_of, values.square())
        return squares.sqrt()


@dataclass(frozen=True)
class Matrix:
    """A matrix in the vector of all parameters: where it begins, and its sides."""

    start: int
    n_rows: int
    n_columns: int


@dataclass(frozen=True)
class RankLayout:
    """Units that are rank components: to each matrix is added B diag(open) A.

    The values hold, matrix after matrix, the columns of B and then the rows of A.

    Args:
        n_parameters: of the network.
        matrices: those that are changed, at least one.
        rank: components of each.
    """

    n_parameters: int
    matrices: Sequence[Matrix]
    rank: int

    @cached_property
    def unit_of(self) -> Tensor:
        """The component of each value."""
        parts = []
        for number, matrix in enumerate(self.matrices):
            own = torch.arange(self.rank) + number * self.rank
            parts += [own.repeat_interleave(matrix.n_rows), own.repeat_interleave(matrix.n_columns)]
        return torch.cat(parts)

    def first_values(self, generator: torch.Generator) -> Tensor:
        """B is zero and A is random."""
        parts = []
        for matrix in self.matrices:
            parts.append(torch.zeros(self.rank * matrix.n_rows))
            parts.append(torch.randn(self.rank * matrix.n_columns, generator=generator) / matrix.n_columns**0.5)
        return torch.cat(parts)

    def expand(self, values: Tensor, open_: Tensor) -> Tensor:
        """B diag(open) A where the matrices are, zero elsewhere."""
        pieces, position = [], 0
        for number, (matrix, left, right) in enumerate(self._factors(values)):
            pieces.append(values.new_zeros(matrix.start - position))
            own = open_[number * self.rank : (number + 1) * self.rank]
            pieces.append(((left * own[:, None]).T @ right).flatten())
            position = matrix.start + matrix.n_rows * matrix.n_columns
        return torch.cat([*pieces, values.new_zeros(self.n_parameters - position)])

    def strengths(self, values: Tensor) -> Tensor:
        """The norm of each component."""
        return torch.cat([left.norm(dim=1) * right.norm(dim=1) for _, left, right in self._factors(values)])

    def _factors(self, values: Tensor) -> list[tuple[Matrix, Tensor, Tensor]]:
        """Each matrix with the columns of B, (rank, n_rows), and the rows of A, (rank, n_columns)."""
        found, position = [], 0
        for matrix in self.matrices:
            middle = position + self.rank * matrix.n_rows
            end = middle + self.rank * matrix.n_columns
            left, right = values[position:middle].view(self.rank, -1), values[middle:end].view(self.rank, -1)
            found.append((matrix, left, right))
            position = end
        return found


def make_layout(numbering: Numbering, units: UnitKind, rank: int) -> Layout:
    """The units of a network.

    Args:
        numbering: of its parameters and groups.
        units: of which kind.
        rank: components of each matrix that has more, where these are the units.
    """
    if units == "elements":
        return Masked(torch.arange(numbering.n_parameters, dtype=torch.int32))
    if units == "groups":
        return Masked(numbering.unit_of)
    matrices = []
    for name, where in numbering.tensors.items():
        spec = numbering.specs[name]
        n_columns = spec.n_elements // spec.shape[0] if spec.shape else 1
        if min(spec.n_elements // n_columns, n_columns) > rank:
            matrices.append(Matrix(where.start, spec.shape[0], n_columns))
    if not matrices:
        raise InvalidSettings(f"no matrix of the network has a rank above {rank}: give a smaller --rank")
    return RankLayout(numbering.n_parameters, matrices, rank)
