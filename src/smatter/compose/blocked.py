"""The weighted sum of R arrays without compiling, in blocks that stay in cache; the reference for `fused`.

numpy scales and adds; torch, imported only then, converts the sixteen-bit dtypes.
"""

from collections.abc import Sequence

import numpy as np

from smatter.files.reading import NUMPY_DTYPES, Array, as_torch
from smatter.records import TensorSpec

BLOCK = 262_144
"""Elements per block: large enough that calls cost little, small enough for the last cache."""


def blend_blocked(
    sources: Sequence[Array], dtypes: Sequence[str], weights: Sequence[float], out: Array, out_dtype: str
) -> None:
    """Write sum_r weights[r] * sources[r] to `out`; see `execute.blend` for the arguments.

    Scales and adds in two operations, never one: a fused multiply-add rounds differently. Accumulates in
    float32, or in float64 where a float64 array takes part.
    """
    precision = "F64" if "F64" in (*dtypes, out_dtype) else "F32"
    factors = np.array(weights, NUMPY_DTYPES[precision])
    totals, scaleds = (np.empty(min(BLOCK, out.size), NUMPY_DTYPES[precision]) for _ in range(2))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, out.size, BLOCK):
            target = out[start : start + BLOCK]
            total = target if out_dtype == precision else totals[: target.size]
            scaled = scaleds[: target.size]
            for r, (source, dtype) in enumerate(zip(sources, dtypes, strict=True)):
                block = source[start : start + BLOCK]
                if dtype != precision:
                    block = _convert(block, dtype, scaled, precision)
                if r == 0:
                    np.multiply(block, factors[r], out=total)
                else:
                    np.add(total, np.multiply(block, factors[r], out=scaled), out=total)
            if total is not target:
                _convert(total, precision, target, out_dtype)


def _convert(values: Array, dtype: str, out: Array, out_dtype: str) -> Array:
    """Round values to another dtype, to nearest even, into `out`."""
    target = as_torch(out, TensorSpec(out_dtype, out.shape))
    target.copy_(as_torch(values, TensorSpec(dtype, values.shape)))
    return out
