"""What the units of a correction D are while it is learnt: D is linear in how far each is open, D = sum_u open_u D_u.

Groups of parameters (a head, some neurons, some channels), single parameters, or rank components of a low-rank change
to a matrix (multi-source paper, section 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.settings.training import UnitKind
from smatter.units.numbering import Matrix, Numbering, find_matrices


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
        return Masked(torch.from_numpy(numbering.unit_of))
    matrices = find_matrices(numbering, rank)
    if not matrices:
        raise InvalidSettings(f"no matrix of the network has a rank above {rank}: give a smaller --rank")
    return RankLayout(numbering.n_parameters, matrices, rank)
