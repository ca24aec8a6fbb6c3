"""The weighted sum of R arrays in one pass over memory, compiled by numba (the extra `fast`).

Tile by tile: each source's tile is scaled and added into float32 accumulators that stay in the first-level
cache, in the order given; then the tile is rounded once and stored. No fused multiply-add and no reordering
(numba's defaults), so the result equals `blocked.blend` bit for bit on every machine.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from smatter.compose.arrays import Array

TILE = 2048
CODES = {"F32": 0, "BF16": 1, "F16": 2}


def blend(
    sources: Sequence[Array], dtypes: Sequence[str], weights: Sequence[float], out: Array, out_dtype: str
) -> None:
    """Write sum_r weights[r] * sources[r] to `out`; see `kernel.blend` for the arguments."""
    _blend(
        np.array([source.ctypes.data for source in sources], np.uint64),
        np.array([CODES[dtype] for dtype in dtypes], np.int64),
        np.array(weights, np.float32),
        np.uint64(out.ctypes.data),
        CODES[out_dtype],
        out.size,
    )


@intrinsic
def _pointer(_context: Any, _address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.uint64), generate


@intrinsic
def _float_from_bits(_context: Any, _bits: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), generate


@intrinsic
def _bits_from_float(_context: Any, _value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), generate


@intrinsic
def _float_from_half(_context: Any, _bits: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def _half_from_float(_context: Any, _value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


@njit(nogil=True, cache=True)
def _float_from_brain(bits: Any) -> Any:
    return _float_from_bits(np.uint32(bits) << np.uint32(16))


@njit(nogil=True, cache=True)
def _brain_from_float(value: Any) -> Any:
    """Round to nearest, ties to even, as torch does; any NaN becomes the quiet one."""
    if value != value:
        return np.uint16(0x7FC0)
    bits = _bits_from_float(value)
    half_way = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.uint16((bits + half_way) >> np.uint32(16))


@njit(nogil=True, cache=True)
def _blend(addresses: Any, codes: Any, weights: Any, out_address: Any, out_code: Any, n_elements: Any) -> None:
    # The first term is stored, not added to zero: 0 + (-0.0) would lose the sign that a one-hot mix must keep.
    total = np.empty(TILE, np.float32)
    for start in range(0, n_elements, TILE):
        size = min(TILE, n_elements - start)
        for r in range(addresses.size):
            weight = weights[r]
            if codes[r] == 0:
                single = carray(_pointer(addresses[r] + np.uint64(4 * start)), (size,), np.float32)
                if r == 0:
                    for i in range(size):
                        total[i] = weight * single[i]
                else:
                    for i in range(size):
                        total[i] += weight * single[i]
                continue
            short = carray(_pointer(addresses[r] + np.uint64(2 * start)), (size,), np.uint16)
            if codes[r] == 1:
                if r == 0:
                    for i in range(size):
                        total[i] = weight * _float_from_brain(short[i])
                else:
                    for i in range(size):
                        total[i] += weight * _float_from_brain(short[i])
            elif r == 0:
                for i in range(size):
                    total[i] = weight * _float_from_half(short[i])
            else:
                for i in range(size):
                    total[i] += weight * _float_from_half(short[i])
        if out_code == 0:
            out_single = carray(_pointer(out_address + np.uint64(4 * start)), (size,), np.float32)
            for i in range(size):
                out_single[i] = total[i]
        else:
            out_short = carray(_pointer(out_address + np.uint64(2 * start)), (size,), np.uint16)
            if out_code == 1:
                for i in range(size):
                    out_short[i] = _brain_from_float(total[i])
            else:
                for i in range(size):
                    out_short[i] = _half_from_float(total[i])
