"""Bad pictures at five severities: noise, blur, JPEG, occlusion, low contrast."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np

from smatter.tasks.shifts.aim import Floats, Pictures, PictureShift, check_count, integers, rounded


@dataclass(frozen=True)
class Corruption(PictureShift):
    """A defect of pictures.

    Args:
        severity: from 1, hardly seen, to 5, hard to read.
    """

    severity: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("severity", self.severity, 5)

    def level(self, levels: tuple[float, float, float, float, float]) -> float:
        """The one that belongs to the severity."""
        return levels[self.severity - 1]


@dataclass(frozen=True)
class GaussianNoise(Corruption):
    """Noise of every pixel and channel alone."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Pictures with noise."""
        deviation = 255 * self.level((0.04, 0.08, 0.13, 0.2, 0.3))
        return rounded(pictures + deviation * normal(pictures.size, generator).reshape(pictures.shape))


@dataclass(frozen=True)
class Blur(Corruption):
    """A Gaussian blur, as wide relative to the picture whatever its size."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:  # noqa: ARG002
        """Blurred pictures."""
        _, height, width, channels = pictures.shape
        deviation = self.level((0.5, 0.8, 1.1, 1.5, 2.0)) / 32
        down = _blurring(height, deviation * height)
        across = np.kron(_blurring(width, deviation * width), np.eye(channels, dtype=np.float32))
        lines = pictures.reshape(-1, height, width * channels).astype(np.float32)
        return rounded(down @ (lines @ across.T)).reshape(pictures.shape)


@dataclass(frozen=True)
class Jpeg(Corruption):
    """Lossy compression. The pixels depend a little on the version of the JPEG library that Pillow has."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:  # noqa: ARG002
        """Pictures saved and read again."""
        height = pictures.shape[1]
        whole = np.pad(pictures, ((0, 0), (0, -height % 8), (0, 0), (0, 0)), mode="edge")
        quality = int(self.level((50, 30, 18, 10, 5)))
        n_strip = max(1, 65_000 // whole.shape[1])  # a JPEG has up to 65,535 rows
        strips = [_saved(whole[start : start + n_strip], quality) for start in range(0, len(whole), n_strip)]
        return np.concatenate(strips)[:, :height]


@dataclass(frozen=True)
class Occlusion(Corruption):
    """A grey square somewhere in every picture."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Pictures with a part hidden."""
        n, height, width, _ = pictures.shape
        side = max(1, round(self.level((0.2, 0.3, 0.4, 0.5, 0.6)) * min(height, width)))
        tops, lefts = (integers(size - side + 1, (n, 1, 1), generator) for size in (height, width))
        rows, columns = np.arange(height)[:, None], np.arange(width)
        inside = (rows >= tops) & (rows < tops + side) & (columns >= lefts) & (columns < lefts + side)
        return np.where(inside[..., None], np.uint8(128), pictures)


@dataclass(frozen=True)
class LowContrast(Corruption):
    """Every pixel closer to the picture's mean."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:  # noqa: ARG002
        """Pale pictures."""
        kept = np.float32(self.level((0.6, 0.4, 0.25, 0.15, 0.08)))
        mean = pictures.mean(axis=(1, 2, 3), keepdims=True, dtype=np.float32)
        return rounded(mean + kept * (pictures - mean))


def _saved(pictures: Pictures, quality: int) -> Pictures:
    """Pictures saved as one strip and read again: blocks of 8 x 8 pixels know nothing of each other."""
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.fromarray(pictures.reshape(-1, *pictures.shape[2:])).save(file, "JPEG", quality=quality, subsampling=0)
    with PIL.Image.open(file, formats=["JPEG"]) as image:
        return np.asarray(image).reshape(pictures.shape)


def normal(n: int, generator: np.random.Generator) -> Floats:
    """Normal random numbers from uniform ones (Box and Muller, 1958)."""
    half = -(-n // 2)
    radius = np.sqrt(-2 * np.log(1 - generator.random(half, np.float32)))
    angle = np.float32(2 * math.pi) * generator.random(half, np.float32)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]


def _blurring(size: int, deviation: float) -> Floats:
    """The matrix that blurs a line of pixels; beyond its ends, the line goes on as its last pixel."""
    reach = math.ceil(3 * deviation)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / deviation) ** 2)
    matrix = np.zeros((size, size), np.float32)
    places = np.arange(size)[:, None]
    np.add.at(matrix, (places, (places + offsets).clip(0, size - 1)), weights / weights.sum())
    return matrix
