"""Pictures side by side, as PNG."""

import io
from pathlib import Path
from typing import Any

import numpy as np


def contact_sheet(pictures: np.ndarray[Any, np.dtype[np.uint8]], n_columns: int, gap: int = 2) -> bytes:
    """A PNG of pictures, (n, height, width, 3), row by row on white.

    >>> contact_sheet(np.zeros((3, 4, 4, 3), np.uint8), 2)[:4]
    b'\\x89PNG'
    """
    from PIL import Image

    n, height, width, _ = pictures.shape
    n_rows = -(-n // n_columns)
    page = np.full((n_rows * (height + gap) - gap, n_columns * (width + gap) - gap, 3), 255, np.uint8)
    for index, picture in enumerate(pictures):
        top, left = (index // n_columns) * (height + gap), (index % n_columns) * (width + gap)
        page[top : top + height, left : left + width] = picture
    stream = io.BytesIO()
    Image.fromarray(page).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def thumbnail(picture: Any, side: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A picture, or the path of one, in the middle of a white square, (side, side, 3)."""
    from PIL import Image, ImageOps

    from smatter.backbones.images import open_image

    image = (open_image(Path(picture)) if isinstance(picture, str | Path) else picture).convert("RGB")
    image = ImageOps.pad(image, (side, side), Image.Resampling.BILINEAR, color=(255, 255, 255))
    return np.asarray(image, np.uint8)
