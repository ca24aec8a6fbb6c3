"""The one arithmetic of composing: a weighted sum with a fixed order and fixed rounding."""

from collections.abc import Sequence
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smatter.files.arrays import Array


class Blend(Protocol):
    """How a weighted sum is called, whoever computes it."""

    def __call__(
        self,
        sources: Sequence[Array],
        dtypes: Sequence[str],
        weights: Sequence[float],
        out: Array,
        out_dtype: str,
    ) -> None:
        """Write the weighted sum to `out`."""


def blend(
    sources: Sequence[Array], dtypes: Sequence[str], weights: Sequence[float], out: Array, out_dtype: str
) -> None:
    """Write sum_r weights[r] * sources[r] to `out`, accumulated in float32 in the order given, rounded once.

    Uses the compiled pass where numba is installed, torch elsewhere; both give the same bits. float64 arrays
    always go through torch and accumulate in float64.

    Args:
        sources: flat contiguous arrays of equal size, at least one.
        dtypes: safetensors dtype of each source.
        weights: float32 values.
        out: flat contiguous array that receives the result; no part of a source.
        out_dtype: safetensors dtype of the result.
    """
    _kernel("F64" not in (*dtypes, out_dtype))(sources, dtypes, weights, out, out_dtype)


def as_float32(block: Array, dtype: str) -> NDArray[np.float32]:
    """A flat block as float32 values; a view where it is float32 already."""
    if dtype == "F32":
        return block
    out = np.empty(block.size, np.float32)
    blend([block], [dtype], [1.0], out, "F32")
    return out


@cache
def _kernel(compiled: bool) -> Blend:
    if compiled:
        try:
            from smatter.compose import fused
        except (ImportError, RuntimeError):  # no numba, or one that finds no place for its cache
            pass
        else:
            return fused.blend_fused
    from smatter.compose import blocked

    return blocked.blend_blocked
