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

ASTRAY, ALIKE = 0.5, 0.9
"""A row may be another row of the base (see `library.kinship`) if its cosine to the base's is below `ASTRAY` once the
base's mean row, which all rows of an embedding may share, is taken off both; and below `ALIKE` before."""

NARROWEST = 16
"""Elements of a row, at least, before it is looked at: narrower ones are like some other row by chance."""

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
    def scatter(self) -> float:
        """How far sources lie from their mean, relative to it: sqrt(mean_r ||theta_r - mean||^2) / ||mean||."""
        gram = self.deltas.sum(axis=0)
        apart = np.trace(gram) / len(gram) - gram.mean()
        # <theta_r, theta_s> = <delta_r, delta_s> + <theta_r, base> + <theta_s, base> - ||base||^2
        square_of_mean = gram.mean() + 2 * self.cross.sum(axis=0).mean() - self.squares[:, 0].sum()
        return float(np.sqrt(max(apart, 0) / square_of_mean)) if square_of_mean > 0 else 0.0

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
    matrices: dict[str, NDArray[np.float64]] = {}
    astray: dict[tuple[str, str], NDArray[np.int64]] = {}
    for index, tensors in enumerate(partition.modules.values()):
        for tensor in _matrices(tensors, specs):
            spec = specs[tensor]
            width = spec.n_elements // max(spec.shape[0], 1) if len(spec.shape) > 1 else 0
            has_rows = NARROWEST <= width <= CHUNK and spec.shape[0] > 1
            found = _Sums(n_sources)
            for start, stop in ranges(spec.n_elements, CHUNK // width * width if has_rows else CHUNK):
                block = np.empty((n_sources, stop - start))  # float64: squares of large weights fit
                for row, name in zip(block, names, strict=True):
                    row[:] = as_float32(reader.read(name, tensor, start, stop), reader.spec(name, tensor).dtype)
                found.add(block.reshape(n_sources, -1, width if has_rows else stop - start), has_rows)
                block -= block[0].copy()
                deltas[index] += block @ block.T
                progress(n_sources * (stop - start) * 4)
            if sum(size > 1 for size in spec.shape) > 1:  # a class token is a vector, however it is shaped
                matrices[tensor] = _cosine(found.cross, found.squares)
            if has_rows:
                rows = {name: np.concatenate(parts) for name, parts in zip(names, found.astray, strict=True)}
                astray |= {(name, tensor): numbers for name, numbers in rows.items() if len(numbers)}
            cross[index] += found.cross
            squares[index] += found.squares
    return Similarity(
        names, tuple(partition.modules), deltas, cross=cross, squares=squares, matrices=matrices, astray=astray
    )


class _Sums:
    """Inner products of the sources in one matrix, and which of their rows are astray, block by block."""

    def __init__(self, n_sources: int) -> None:
        self.cross, self.squares = np.zeros(n_sources), np.zeros(n_sources)
        self.astray: list[list[NDArray[np.int64]]] = [[] for _ in range(n_sources)]
        self._centre: NDArray[np.float64] | None = None
        self._n_rows = 0

    def add(self, block: NDArray[np.float64], has_rows: bool) -> None:
        """Take in a block, (n_sources, n_rows, width); without rows it is of one row."""
        cross = np.einsum("rnd,nd->rn", block, block[0])
        squares = np.einsum("rnd,rnd->rn", block, block)
        self.cross += cross.sum(axis=1)
        self.squares += squares.sum(axis=1)
        if not has_rows:
            return
        if self._centre is None:  # the first rows stand for all of them
            self._centre = block[0].mean(axis=0)
        along, length = block @ self._centre, float(self._centre @ self._centre)
        centred = _cosine((cross - along - along[0] + length).T, (squares - 2 * along + length).T)
        is_astray = (centred < ASTRAY) & (_cosine(cross.T, squares.T) < ALIKE)
        for found, rows in zip(self.astray, is_astray.T, strict=True):
            found.append(np.flatnonzero(rows) + self._n_rows)
        self._n_rows += block.shape[1]


def _matrices(tensors: tuple[str, ...], specs: Mapping[str, TensorSpec]) -> list[str]:
    floating = [name for name in tensors if specs[name].is_floating]
    return [name for name in floating if len(specs[name].shape) > 1] or floating


def _cosine(cross: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.sqrt(np.maximum(squares * squares[..., :1], 0))
    return np.where(norms > 0, cross / np.where(norms > 0, norms, 1), 1.0)
