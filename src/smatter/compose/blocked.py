"""The weighted sum of R arrays with torch alone, in blocks that stay in cache; the reference for `fused`."""

from collections.abc import Sequence

import torch

from smatter.compose.arrays import Array, as_torch
from smatter.records import TensorSpec

BLOCK = 262_144
"""Elements per block: large enough that calling torch costs little, small enough for the last cache."""


@torch.inference_mode()
def blend(
    sources: Sequence[Array], dtypes: Sequence[str], weights: Sequence[float], out: Array, out_dtype: str
) -> None:
    """Write sum_r weights[r] * sources[r] to `out`; see `kernel.blend` for the arguments.

    Scales and adds in two operations, never one: a fused multiply-add rounds differently. Accumulates in
    float32, or in float64 where a float64 array takes part.
    """
    precision = torch.float64 if "F64" in (*dtypes, out_dtype) else torch.float32
    factors = [torch.tensor(weight, dtype=precision) for weight in weights]
    # Cut into blocks all at once: slicing one by one costs as much as the arithmetic.
    columns = [
        as_torch(array, TensorSpec(dtype, array.shape)).split(BLOCK)
        for array, dtype in zip([*sources, out], [*dtypes, out_dtype], strict=True)
    ]
    size = min(BLOCK, out.size)
    totals, scaleds = torch.empty(size, dtype=precision), torch.empty(size, dtype=precision)
    for *blocks, target in zip(*columns, strict=True):
        in_place = target.dtype == precision
        total, scaled = target if in_place else totals[: target.numel()], scaleds[: target.numel()]
        for r, (block, factor) in enumerate(zip(blocks, factors, strict=True)):
            if block.dtype != precision:
                block = scaled.copy_(block)
            if r == 0:
                torch.mul(block, factor, out=total)
            else:
                total.add_(torch.mul(block, factor, out=scaled))
        if not in_place:
            target.copy_(total)
