"""What a task adds to a base that it shares with others, place by place.

    y = W x + b,      y[rows] += R x + r,      y += C x[columns],      y += B (A x),      y += S x,      y += c

Rows belong to groups that an operator computes (a head's queries, some neurons), columns to groups that it reads.
Rank components are pairs of a column of B and a row of A; S has single elements. What is linear in its parameters
otherwise (a norm, a convolution) is applied once more, with what they differ by.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import torch
from torch import Tensor, nn

from smatter.runtime.places import with_parameters

Add = Callable[[Tensor, Tensor], None]
"""Adds something to a module's outputs, in place, given its inputs."""

Gate = float | Tensor
"""How far something is open, for all rows alike or for each; it then broadcasts to the outputs."""


class Deltas(Protocol):
    """All that a task adds."""

    @property
    def n_bytes(self) -> int:
        """Memory of the task."""
        ...

    def adds(self) -> Iterator[tuple[str, Add]]:
        """Keys of places, and what is added there."""
        ...


class Addend(Protocol):
    """Something that is added to the outputs of a module."""

    @property
    def n_bytes(self) -> int:
        """Memory."""
        ...

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Add it in place; of a linear operator (n, n_in) and (n, n_out)."""
        ...


@dataclass(frozen=True)
class OwnDeltas:
    """What belongs to one task alone.

    Args:
        terms: by the keys of places.
    """

    terms: Mapping[str, Sequence[Addend]]

    @property
    def n_bytes(self) -> int:
        """Memory of the task."""
        return sum(term.n_bytes for terms in self.terms.values() for term in terms)

    def adds(self) -> Iterator[tuple[str, Add]]:
        """See `Deltas`."""
        for key, terms in self.terms.items():
            for term in terms:
                yield key, term.add


@dataclass(frozen=True)
class SeveralDeltas:
    """What a task adds in several ways.

    Args:
        parts: all of them.
    """

    parts: Sequence[Deltas]

    @property
    def n_bytes(self) -> int:
        """Memory of the task."""
        return sum(part.n_bytes for part in self.parts)

    def adds(self) -> Iterator[tuple[str, Add]]:
        """See `Deltas`."""
        return chain.from_iterable(part.adds() for part in self.parts)


class Rows:
    """Outputs that change by themselves.

    Args:
        index: which, (k,), increasing.
        values: their weights, (n_in, k): BLAS is quicker with inputs first.
        bias: and biases, (k,), if any.
    """

    def __init__(self, index: Tensor, values: Tensor, bias: Tensor | None = None) -> None:
        self.index, self.values, self.bias = index, values, bias
        self._start = _start(index)

    @property
    def n_bytes(self) -> int:
        """Memory."""
        return n_bytes(self.index, self.values, self.bias)

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """See `Addend`. Neighbours, as of one head, are added without a copy."""
        if self._start is None:
            own = inputs @ self.values if self.bias is None else torch.addmm(self.bias, inputs, self.values)
            outputs.index_add_(1, self.index, own)
            return
        own = outputs.narrow(1, self._start, len(self.index)).addmm_(inputs, self.values)
        if self.bias is not None:
            own.add_(self.bias)


class Columns:
    """Inputs that are read otherwise.

    Args:
        index: which, (k,), increasing.
        values: what each adds to all outputs, (k, n_out).
    """

    def __init__(self, index: Tensor, values: Tensor) -> None:
        self.index, self.values = index, values
        self._start = _start(index)

    @property
    def n_bytes(self) -> int:
        """Memory."""
        return n_bytes(self.index, self.values)

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """See `Addend`. Neighbours are read without a copy."""
        if self._start is None:
            read = inputs.index_select(1, self.index)
        else:
            read = inputs.narrow(1, self._start, len(self.index))
        outputs.addmm_(read, self.values)


def _start(index: Tensor) -> int | None:
    """The first, if they are neighbours."""
    return int(index[0]) if bool((index.diff() == 1).all()) else None


@dataclass(frozen=True)
class RankFactors:
    """Rank components.

    Args:
        right: the transpose of A, (n_in, rank).
        left: the transpose of B, (rank, n_out).
    """

    right: Tensor
    left: Tensor

    @property
    def n_bytes(self) -> int:
        """Memory."""
        return n_bytes(self.left, self.right)

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """See `Addend`."""
        outputs.addmm_(inputs @ self.right, self.left)


with warnings.catch_warnings():  # torch says once that these are in beta
    warnings.simplefilter("ignore")
    torch.ones(1, 1).to_sparse_csr()


class ScatteredElements:
    """Single elements.

    Args:
        matrix: with zeros elsewhere, (n_out, n_in).
    """

    def __init__(self, matrix: Tensor) -> None:
        found = matrix.to_sparse_csr()
        rows, columns = found.crow_indices().int(), found.col_indices().int()  # half the memory, and quicker
        self._matrix = torch.sparse_csr_tensor(rows, columns, found.values(), found.shape, check_invariants=False)

    @property
    def n_bytes(self) -> int:
        """Memory."""
        return n_bytes(self._matrix.values(), self._matrix.col_indices(), self._matrix.crow_indices())

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """See `Addend`."""
        outputs.add_((self._matrix @ inputs.T).T)


@dataclass(frozen=True)
class Bias:
    """The same for all rows.

    Args:
        values: one row of the outputs.
    """

    values: Tensor

    @property
    def n_bytes(self) -> int:
        """Memory."""
        return n_bytes(self.values)

    def add(self, inputs: Tensor, outputs: Tensor, gate: Gate = 1.0) -> None:  # noqa: ARG002
        """See `Addend`; `gate` multiplies it."""
        _add_times(outputs, self.values, gate)

    def times(self, gate: float) -> Bias:
        """Multiplied once and for all."""
        return Bias(self.values * gate)


@dataclass(frozen=True)
class Again:
    """A module that is linear in its parameters, with what they differ by.

    Args:
        module: with those parameters.
    """

    module: nn.Module

    @property
    def n_bytes(self) -> int:
        """Memory."""
        return n_bytes(*self.module.parameters(recurse=False))

    def add(self, inputs: Tensor, outputs: Tensor, gate: Gate = 1.0) -> None:
        """See `Addend`; `gate` multiplies it."""
        _add_times(outputs, self.module(inputs), gate)

    def times(self, gate: float) -> Again:
        """Multiplied once and for all."""
        parameters = {name: own.data * gate for name, own in self.module.named_parameters(recurse=False)}
        return Again(with_parameters(self.module, parameters))


@dataclass(frozen=True)
class Scale:
    """Outputs times one plus something. Its inputs are the outputs before any scale, so that several add up.

    Args:
        values: for each output, (n_out,).
    """

    values: Tensor

    @property
    def n_bytes(self) -> int:
        """Memory."""
        return n_bytes(self.values)

    def add(self, inputs: Tensor, outputs: Tensor, gate: Gate = 1.0) -> None:
        """See `Addend`; `gate` multiplies it."""
        outputs.addcmul_(inputs, self.values * gate)

    def times(self, gate: float) -> Scale:
        """Multiplied once and for all."""
        return Scale(self.values * gate)


def _add_times(outputs: Tensor, values: Tensor, gate: Gate) -> None:
    if isinstance(gate, Tensor):
        outputs.addcmul_(values, gate)
    else:
        outputs.add_(values, alpha=gate)


def n_bytes(*tensors: Tensor | None) -> int:
    """Memory of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
