"""Eight-bit integers with one scale per output channel, for matrices; all other tensors as they are."""

from collections.abc import Callable

import numpy as np

from smatter.compose.execute import as_float32, blend
from smatter.files.reading import NUMPY_DTYPES, Array
from smatter.library.forms import PartReader, Parts
from smatter.library.forms.low_rank import matrix_shape
from smatter.records import TensorSpec


class Int8:
    """Lossy; needs no base, a quarter of float32."""

    exact = False

    def encode(self, spec: TensorSpec, source: Array, base: Array) -> Parts:  # noqa: ARG002
        """Parts `integers` and `scale` (one per row), or `values` for vectors and scalars."""
        if len(spec.shape) < 2:
            return {"values": (spec, source)}
        rows = as_float32(source, spec.dtype).reshape(matrix_shape(spec))
        scale = np.abs(rows).max(axis=1) / np.float32(127)
        safe = np.where(scale > 0, scale, np.float32(1))
        integers = np.rint(rows / safe[:, None]).clip(-127, 127).astype(np.int8)
        return {
            "integers": (TensorSpec("I8", spec.shape), integers),
            "scale": (TensorSpec("F32", scale.shape), scale),
        }

    def decode(self, spec: TensorSpec, parts: PartReader, base: Callable[[], Array], start: int, stop: int) -> Array:  # noqa: ARG002
        """Integers times the scale of their row, rounded to the tensor's dtype."""
        if parts.has("values"):
            return parts.part("values", spec.dtype, spec.shape).reshape(-1)[start:stop]
        n_rows, n_columns = matrix_shape(spec)
        integers = parts.part("integers", "I8", spec.shape).reshape(n_rows, n_columns)
        scale = parts.part("scale", "F32", (n_rows,))
        rows = slice(start // n_columns, -(-stop // n_columns))
        values = integers[rows] * scale[rows, None]
        offset = rows.start * n_columns
        out = np.empty(stop - start, NUMPY_DTYPES[spec.dtype])
        blend([values.reshape(-1)[start - offset : stop - offset]], ["F32"], [1.0], out, spec.dtype)
        return out
