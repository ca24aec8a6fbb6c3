"""Pictures are read safely, and become the same pixels one by one, in bands and in an array."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from smatter.backbones.images import Preprocessing, opaque, open_image
from smatter.errors import InvalidSupport


@pytest.mark.parametrize("side", [32, 16, 40])
@pytest.mark.parametrize("n_channels", [1, 3])
def test_an_array_is_scaled_as_its_pictures_are(side: int, n_channels: int) -> None:
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (5, 8, 8, 3), np.uint8)
    pictures = coarse.repeat(4, axis=1).repeat(4, axis=2)
    mean, std = (0.2, 0.4, 0.6)[:n_channels], (0.5, 0.25, 0.1)[:n_channels]
    wanted = Preprocessing(side, side, n_channels, mean, std)
    one_by_one = wanted.pixels([Image.fromarray(picture) for picture in pictures])
    # Pillow rounds to bytes twice on the way.
    torch.testing.assert_close(wanted.scaled(pictures), one_by_one, atol=2 / 255 / min(std), rtol=0)


def test_a_picture_with_a_palette_that_is_missing_is_refused_in_one_line(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", 8, 8, 8, 3, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + bytes(8) for _ in range(8)))
    parts = chunk(b"IHDR", size) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + parts)
    with pytest.raises(InvalidSupport, match="cannot be read as an image"):
        open_image(tmp_path / "x.png")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16", "1"])
def test_pictures_are_made_opaque_band_by_band_as_in_one_piece(mode: str) -> None:
    random = np.random.default_rng(0)
    shapes = {"RGBA": (150, 37, 4), "LA": (150, 37, 2), "P": (150, 37), "I;16": (150, 37), "1": (150, 37)}
    high, dtype = (65536, np.uint16) if mode == "I;16" else (256, np.uint8)
    image = Image.fromarray(random.integers(0, high, shapes[mode], dtype))
    if mode in ("P", "1"):
        image = image.convert(mode)
    if mode == "P":
        image.info["transparency"] = 3
    if mode == "I;16":
        expected = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    else:
        layer = image.convert("RGBA")
        expected = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    assert np.array_equal(np.asarray(opaque(image).convert("RGB")), np.asarray(expected.convert("RGB")))
