"""Grey pictures as PNG, with nothing but the standard library."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def grey_png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG of (height, width) grey values.

    >>> grey_png(np.zeros((2, 3), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row starts with its filter: none

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
