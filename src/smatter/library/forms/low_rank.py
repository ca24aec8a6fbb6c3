"""Low-rank delta to the base: left (m, rank) times right (rank, n) for matrices, all other tensors as they are."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smatter.compose.execute import as_float32, blend
from smatter.files.reading import NUMPY_DTYPES, Array
from smatter.library.forms import PartReader, Parts
from smatter.records import TensorSpec


@dataclass(frozen=True)
class LowRank:
    """Lossy; keeps the best approximation of each delta of a given rank (Eckart-Young)."""

    rank: int = 16
    exact = False

    def encode(self, spec: TensorSpec, source: Array, base: Array) -> Parts:
        """Parts `left` and `right`, or `values` where a factorisation would not be smaller."""
        n_rows, n_columns = matrix_shape(spec)
        if self.rank * (n_rows + n_columns) * 4 >= spec.n_bytes:
            return {"values": (spec, source)}
        delta = as_float32(source, spec.dtype).astype(np.float64) - as_float32(base, spec.dtype)
        delta = delta.reshape(n_rows, n_columns)
        # The leading eigenvectors of the smaller Gram matrix span the best subspace.
        if n_rows <= n_columns:
            left = np.linalg.eigh(delta @ delta.T)[1][:, ::-1][:, : self.rank]
            right = left.T @ delta
        else:
            right = np.linalg.eigh(delta.T @ delta)[1][:, ::-1][:, : self.rank].T
            left = delta @ right.T
        return {
            "left": (TensorSpec("F32", left.shape), np.ascontiguousarray(left, np.float32)),
            "right": (TensorSpec("F32", right.shape), np.ascontiguousarray(right, np.float32)),
        }

    def decode(self, spec: TensorSpec, parts: PartReader, base: Callable[[], Array], start: int, stop: int) -> Array:
        """Base plus the product, summed rank by rank in a fixed order, so that blocks do not matter."""
        if parts.has("values"):
            return parts.part("values", spec.dtype, spec.shape).reshape(-1)[start:stop]
        n_rows, n_columns = matrix_shape(spec)
        left = parts.part("left", "F32")
        if left.ndim != 2 or left.shape[0] != n_rows or not left.shape[1]:
            raise parts.refuse("has a left factor of the wrong shape")
        right = parts.part("right", "F32", (left.shape[1], n_columns))
        rows = slice(start // n_columns, -(-stop // n_columns))
        product = left[rows, :1] * right[:1]
        for rank in range(1, left.shape[1]):
            product += left[rows, rank : rank + 1] * right[rank : rank + 1]
        offset = rows.start * n_columns
        out = np.empty(stop - start, NUMPY_DTYPES[spec.dtype])
        correction = product.reshape(-1)[start - offset : stop - offset]
        blend([base(), correction], [spec.dtype, "F32"], [1.0, 1.0], out, spec.dtype)
        return out


def matrix_shape(spec: TensorSpec) -> tuple[int, int]:
    """A tensor as a matrix: its first side by all the others; a vector as a single row."""
    if len(spec.shape) < 2:
        return 1, spec.n_elements
    return spec.shape[0], spec.n_elements // max(spec.shape[0], 1)
