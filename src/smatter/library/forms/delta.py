"""Exact delta to the base: the exclusive or of the bits, byte plane by byte plane, deflated where that helps.

A fine-tuned weight shares its sign, exponent and leading mantissa bits with the base's, so the high byte
planes are nearly all zero and deflate to little; the low ones are noise and stay as they are.
"""

import zlib
from collections.abc import Callable

import numpy as np

from smatter.files.reading import NUMPY_DTYPES, Array
from smatter.library.forms import PartReader, Parts
from smatter.records import ITEM_SIZES, TensorSpec

BLOCK = 1 << 18
WORTHWHILE = 0.95


class Delta:
    """Lossless; a range is decoded from the blocks it touches alone."""

    exact = True

    def encode(self, spec: TensorSpec, source: Array, base: Array) -> Parts:
        """Parts `planes` (bytes) and `index`, where each plane of each block begins."""
        changed = source.view(np.uint8) ^ base.view(np.uint8)
        bytes_of_element = changed.reshape(-1, ITEM_SIZES[spec.dtype])
        chunks, index = [], [0]
        for start in range(0, spec.n_elements, BLOCK):
            for plane in bytes_of_element[start : start + BLOCK].T:
                raw = plane.tobytes()
                packed = zlib.compress(raw, 1)
                chunks.append(packed if len(packed) < WORTHWHILE * len(raw) else raw)
                index.append(index[-1] + len(chunks[-1]))
        planes = np.frombuffer(b"".join(chunks), np.uint8)
        return {
            "planes": (TensorSpec("U8", planes.shape), planes),
            "index": (TensorSpec("I64", (len(index),)), np.array(index, np.int64)),
        }

    def decode(self, spec: TensorSpec, parts: PartReader, base: Callable[[], Array], start: int, stop: int) -> Array:
        """Undo the exclusive or on the blocks that hold start..stop."""
        width = ITEM_SIZES[spec.dtype]
        n_blocks = -(-spec.n_elements // BLOCK)
        planes = parts.part("planes", "U8").reshape(-1)
        index = parts.part("index", "I64", (n_blocks * width + 1,))
        first, last = start // BLOCK, -(-stop // BLOCK)
        changed = np.empty((min(last * BLOCK, spec.n_elements) - first * BLOCK, width), np.uint8)
        for block in range(first, last):
            rows = changed[(block - first) * BLOCK : (block - first + 1) * BLOCK]
            for byte in range(width):
                begin, end = int(index[block * width + byte]), int(index[block * width + byte + 1])
                if not 0 <= begin <= end <= planes.size:
                    raise parts.refuse("has an index that leads outside its values")
                rows[:, byte] = _inflate(planes[begin:end], len(rows), parts)
        wanted = changed[start - first * BLOCK : stop - first * BLOCK]
        return (wanted.reshape(-1) ^ base().view(np.uint8)).view(NUMPY_DTYPES[spec.dtype])


def _inflate(stored: Array, size: int, parts: PartReader) -> Array:
    if stored.size == size:
        return stored
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(stored.tobytes(), size)  # never more than expected, whatever the data claims
    except zlib.error:
        raw = b""
    if len(raw) != size or not inflater.eof:
        raise parts.refuse("has values that do not inflate to its size")
    return np.frombuffer(raw, np.uint8)
