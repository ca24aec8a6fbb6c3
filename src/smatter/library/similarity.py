"""How far sources lie from the base and from each other: module by module, matrix by matrix, row by row."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smatter.compose.execute import Reader, as_float32, ranges
from smatter.records import Partition, Progress, TensorSpec, silent

NEAR_DUPLICATE = 0.05
"""Two sources closer than this share of the longer delta hardly give a mixture anything to choose."""

ASTRAY = 0.5
"""A row whose cosine to the base's row is below this may be another row of the base: see `library.kinship`."""

CHUNK = 1 << 17
"""Elements of every source side by side: sixteen sources in float64 stay in the last cache."""


@dataclass(frozen=True)
class Similarity:
    """Inner products of the sources, module by module.

    Args:
        names: the sources; the first is the base.
        modules: the modules.
        deltas: inner products of (source - base), (n_modules, n_sources, n_sources).
        cross: inner products of source and base, (n_modules, n_sources).
        squares: squared norms of the sources, (n_modules, n_sources).
        matrices: cosine of each source to the base in each matrix, (n_sources,) each, by name on disk.
        astray: numbers of the rows that are `ASTRAY`, by source and matrix; only where there are some.
    """

    names: tuple[str, ...]
    modules: tuple[str, ...]
    deltas: NDArray[np.float64]
    cross: NDArray[np.float64]
    squares: NDArray[np.float64]
    matrices: Mapping[str, NDArray[np.float64]]
    astray: Mapping[tuple[str, str], NDArray[np.int64]]

    @cached_property
    def cosine_to_base(self) -> NDArray[np.float64]:
        """Cosine of each source to the base in each module, (n_modules, n_sources); 1 where both are zero."""
        return _cosine(self.cross, self.squares)

    @cached_property
    def overall_cosine(self) -> NDArray[np.float64]:
        """Cosine to the base over all modules, (n_sources,)."""
        return _cosine(self.cross.sum(axis=0), self.squares.sum(axis=0))

    @cached_property
    def distance(self) -> NDArray[np.float64]:
        """Distance of two sources relative to the longer of their deltas, (n_sources, n_sources); 0 for equal ones."""
        gram = self.deltas.sum(axis=0)
        norms = np.diag(gram)
        apart = np.sqrt(np.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0))
        longer = np.sqrt(np.maximum(norms[:, None], norms[None, :]))
        return np.where(longer > 0, apart / np.where(longer > 0, longer, 1), 0)

    @cached_property
    def clusters(self) -> tuple[tuple[str, ...], ...]:
        """Sources grouped so that near-duplicates are together; the number of groups is how many are distinct."""
        group = list(range(len(self.names)))
        for first, second in np.argwhere(np.triu(self.distance < NEAR_DUPLICATE, 1)):
            merged, other = group[first], group[second]
            group = [merged if member == other else member for member in group]
        return tuple(
            tuple(name for name, member in zip(self.names, group, strict=True) if member == leader)
            for leader in dict.fromkeys(group)
        )


def measure(
    reader: Reader,
    names: tuple[str, ...],
    specs: Mapping[str, TensorSpec],
    partition: Partition,
    progress: Progress = silent,
) -> Similarity:
    """Inner products over all matrices, in one pass over the sources.

    Vectors (biases, norms) are left out: norm weights start at one, so that they look alike in networks that
    have nothing in common. A module of vectors alone keeps them.

    Args:
        reader: where the sources are.
        names: the sources, the base first.
        specs: tensors that take part.
        partition: their modules.
        progress: told the bytes read.
    """
    n_sources, n_modules = len(names), len(partition.modules)
    deltas = np.zeros((n_modules, n_sources, n_sources))
    cross, squares = np.zeros((n_modules, n_sources)), np.zeros((n_modules, n_sources))
    matrices, astray = {}, {}
    for index, tensors in enumerate(partition.modules.values()):
        for tensor in _matrices(tensors, specs):
            spec = specs[tensor]
            width = spec.n_elements // max(spec.shape[0], 1) if len(spec.shape) > 1 else 0
            has_rows = 0 < width <= CHUNK
            found = _Rows(n_sources)
            for start, stop in ranges(spec.n_elements, CHUNK // width * width if has_rows else CHUNK):
                block = np.empty((n_sources, stop - start))  # float64: squares of large weights fit
                for row, name in zip(block, names, strict=True):
                    row[:] = as_float32(reader.read(name, tensor, start, stop), reader.spec(name, tensor).dtype)
                found.add(block.reshape(n_sources, -1, width if has_rows else stop - start))
                block -= block[0].copy()
                deltas[index] += block @ block.T
                progress(n_sources * (stop - start) * 4)
            if sum(size > 1 for size in spec.shape) > 1:  # a class token is a vector, however it is shaped
                matrices[tensor] = _cosine(found.cross.sum(axis=1), found.squares.sum(axis=1))
            if has_rows:
                rows = _cosine(found.cross.T, found.squares.T)
                for column in np.flatnonzero((rows < ASTRAY).any(axis=0)):
                    astray[names[column], tensor] = np.flatnonzero(rows[:, column] < ASTRAY)
            cross[index] += found.cross.sum(axis=1)
            squares[index] += found.squares.sum(axis=1)
    return Similarity(
        names, tuple(partition.modules), deltas, cross=cross, squares=squares, matrices=matrices, astray=astray
    )


class _Rows:
    """Inner products of the rows of one matrix, block by block: with the base's rows, and with themselves."""

    def __init__(self, n_sources: int) -> None:
        self._cross, self._squares = [np.zeros((n_sources, 0))], [np.zeros((n_sources, 0))]

    def add(self, block: NDArray[np.float64]) -> None:
        """Take in some rows, (n_sources, n_rows, width)."""
        self._cross.append(np.einsum("rnd,nd->rn", block, block[0]))
        self._squares.append(np.einsum("rnd,rnd->rn", block, block))

    @property
    def cross(self) -> NDArray[np.float64]:
        """Each source's rows times the base's, (n_sources, n_rows)."""
        return np.concatenate(self._cross, axis=1)

    @property
    def squares(self) -> NDArray[np.float64]:
        """Squared norms of the rows, (n_sources, n_rows)."""
        return np.concatenate(self._squares, axis=1)


def _matrices(tensors: tuple[str, ...], specs: Mapping[str, TensorSpec]) -> list[str]:
    floating = [name for name in tensors if specs[name].is_floating]
    return [name for name in floating if len(specs[name].shape) > 1] or floating


def _cosine(cross: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.sqrt(squares * squares[..., :1])
    return np.where(norms > 0, cross / np.where(norms > 0, norms, 1), 1.0)
