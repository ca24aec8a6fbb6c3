"""The weighted sum of R arrays with torch alone, in blocks that stay in cache; the reference for `fused`."""

from collections.abc import Sequence

import torch

from smatter.compose.arrays import Array, as_torch
from smatter.records import TensorSpec

BLOCK = 65_536
"""Elements per block: two float32 buffers of this size fit the second-level cache."""


def blend(
    sources: Sequence[Array], dtypes: Sequence[str], weights: Sequence[float], out: Array, out_dtype: str
) -> None:
    """Write sum_r weights[r] * sources[r] to `out`; see `kernel.blend` for the arguments.

    Scales and adds in two operations, never one: a fused multiply-add rounds differently. Accumulates in
    float32, or in float64 where a float64 array takes part.
    """
    precision = torch.float64 if "F64" in (*dtypes, out_dtype) else torch.float32
    tensors = [as_torch(source, TensorSpec(dtype, source.shape)) for source, dtype in zip(sources, dtypes, strict=True)]
    target = as_torch(out, TensorSpec(out_dtype, out.shape))
    size = min(BLOCK, out.size)
    totals, scaleds = torch.empty(size, dtype=precision), torch.empty(size, dtype=precision)
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        total, scaled = totals[: stop - start], scaleds[: stop - start]
        for r, (tensor, weight) in enumerate(zip(tensors, weights, strict=True)):
            block = tensor[start:stop]
            if block.dtype != precision:
                block = scaled.copy_(block)
            if r == 0:
                torch.mul(block, weight, out=total)
            else:
                total.add_(torch.mul(block, weight, out=scaled))
        target[start:stop].copy_(total)
