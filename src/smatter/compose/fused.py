"""The weighted sum of R arrays in one pass over memory, compiled by numba (the extra `fast`).

Up to four sources of the result's own dtype are summed straight into it. More, or mixed, go tile by tile, in groups
of four, through float32 accumulators that stay in the first-level cache. Either way the order is the one given, each
sum is rounded once, and nothing is fused or reordered (numba's defaults), so the result
equals that of `blend_blocked` bit for bit on every machine.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from smatter.files.reading import Array

TILE = 8192
CODES = {"F32": 0, "BF16": 1, "F16": 2}


def blend_fused(
    sources: Sequence[Array], dtypes: Sequence[str], weights: Sequence[float], out: Array, out_dtype: str
) -> None:
    """Write sum_r weights[r] * sources[r] to `out`; see `execute.blend` for the arguments."""
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
def _extended_half(_context: Any, _bits: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def _truncated_half(_context: Any, _value: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.fptrunc(arguments[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


@njit(nogil=True, cache=True)
def _float_from_half(bits: Any) -> Any:
    return _extended_half(bits)


@njit(nogil=True, cache=True)
def _half_from_float(value: Any) -> Any:
    return _truncated_half(value)


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
def _unchanged(value: Any) -> Any:
    return value


def _make_sum(load: Any, kind: Any, store: Any, out_kind: Any, is_fresh: bool) -> Any:
    """A sum of up to four scaled sources of one dtype, added to what the target holds or written over it.

    Several streams at a time keep more of the memory's lanes busy than one after the other.

    Args:
        load: turns a stored value of a source to float32.
        kind: how numpy sees a source.
        store: turns float32 to a stored value of the target.
        out_kind: how numpy sees the target.
        is_fresh: start from -0.0, which leaves every sum as it is; 0.0 would lose the sign of -0.0.
    """

    @njit(nogil=True, cache=True)
    def add(addresses: Any, weights: Any, shift: Any, out_address: Any, size: Any) -> None:
        out = carray(_pointer(out_address), (size,), out_kind)
        zero = np.float32(-0.0)
        a, u = carray(_pointer(addresses[0] + shift), (size,), kind), weights[0]
        if addresses.size == 1:
            for i in range(size):
                total = zero if is_fresh else out[i]
                out[i] = store(total + u * load(a[i]))
            return
        b, v = carray(_pointer(addresses[1] + shift), (size,), kind), weights[1]
        if addresses.size == 2:
            for i in range(size):
                total = zero if is_fresh else out[i]
                out[i] = store((total + u * load(a[i])) + v * load(b[i]))
            return
        c, w = carray(_pointer(addresses[2] + shift), (size,), kind), weights[2]
        if addresses.size == 3:
            for i in range(size):
                total = zero if is_fresh else out[i]
                out[i] = store(((total + u * load(a[i])) + v * load(b[i])) + w * load(c[i]))
            return
        d, x = carray(_pointer(addresses[3] + shift), (size,), kind), weights[3]
        for i in range(size):
            total = zero if is_fresh else out[i]
            out[i] = store((((total + u * load(a[i])) + v * load(b[i])) + w * load(c[i])) + x * load(d[i]))

    return add


_add_single = _make_sum(_unchanged, np.float32, _unchanged, np.float32, is_fresh=False)
_add_brain = _make_sum(_float_from_brain, np.uint16, _unchanged, np.float32, is_fresh=False)
_add_half = _make_sum(_float_from_half, np.uint16, _unchanged, np.float32, is_fresh=False)
_sum_single = _make_sum(_unchanged, np.float32, _unchanged, np.float32, is_fresh=True)
_sum_brain = _make_sum(_float_from_brain, np.uint16, _brain_from_float, np.uint16, is_fresh=True)
_sum_half = _make_sum(_float_from_half, np.uint16, _half_from_float, np.uint16, is_fresh=True)


@njit(nogil=True, cache=True)
def _blend(addresses: Any, codes: Any, weights: Any, out_address: Any, out_code: Any, n_elements: Any) -> None:
    if addresses.size <= 4 and (codes == out_code).all():
        if out_code == 0:
            _sum_single(addresses, weights, np.uint64(0), out_address, n_elements)
        elif out_code == 1:
            _sum_brain(addresses, weights, np.uint64(0), out_address, n_elements)
        else:
            _sum_half(addresses, weights, np.uint64(0), out_address, n_elements)
        return
    total = np.empty(TILE, np.float32)
    for start in range(0, n_elements, TILE):
        size = min(TILE, n_elements - start)
        total[:] = -0.0
        first = 0
        while first < addresses.size:
            last = first + 1
            while last < min(first + 4, addresses.size) and codes[last] == codes[first]:
                last += 1
            group, shares = addresses[first:last], weights[first:last]
            if codes[first] == 0:
                _add_single(group, shares, np.uint64(4 * start), np.uint64(total.ctypes.data), size)
            elif codes[first] == 1:
                _add_brain(group, shares, np.uint64(2 * start), np.uint64(total.ctypes.data), size)
            else:
                _add_half(group, shares, np.uint64(2 * start), np.uint64(total.ctypes.data), size)
            first = last
        if out_code == 0:
            single = carray(_pointer(out_address + np.uint64(4 * start)), (size,), np.float32)
            for i in range(size):
                single[i] = total[i]
        else:
            short = carray(_pointer(out_address + np.uint64(2 * start)), (size,), np.uint16)
            if out_code == 1:
                for i in range(size):
                    short[i] = _brain_from_float(total[i])
            else:
                for i in range(size):
                    short[i] = _half_from_float(total[i])
