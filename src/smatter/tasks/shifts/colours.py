"""Colours lost, or as another camera sees them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smatter.tasks.shifts.aim import Floats, Pictures, PictureShift, lightness, rounded
from smatter.tasks.shifts.corruptions import Corruption

TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
"""From red, green and blue to lightness and the two axes of colour of the NTSC standard; grey has no colour there."""


@dataclass(frozen=True)
class Grayscale(PictureShift):
    """Shades of grey, as light as the colours were."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:  # noqa: ARG002
        """Grey pictures."""
        return np.repeat(rounded(255 * lightness(pictures)), 3, axis=-1)


@dataclass(frozen=True)
class ColourJitter(Corruption):
    """Every picture with a brightness, contrast, saturation and hue of its own.

    Contrast is around the picture's mean; brightness multiplies, and so darkens white but cannot change black. Grey
    pictures have neither hue nor saturation: of them, brightness and contrast change alone.
    """

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Pictures in other colours."""
        extent = self.level((0.1, 0.2, 0.3, 0.4, 0.6))
        turn = 2 * np.pi * self.level((0.02, 0.05, 0.1, 0.2, 0.5))
        around = 2 * generator.random((4, len(pictures), 1, 1, 1), np.float32) - 1
        brightness, contrast, saturation = 1 + np.float32(extent) * around[:3]
        colours = _turned(turn * around[3].ravel(), saturation.ravel())
        recoloured = np.einsum("nij,nhwj->nhwi", colours, pictures.astype(np.float32))
        mean = recoloured.mean(axis=(1, 2, 3), keepdims=True)
        return rounded(brightness * (mean + contrast * (recoloured - mean)))


def _turned(angles: Floats, saturations: Floats) -> Floats:
    """Matrices that turn the hue of colours and scale their saturation, lightness unchanged, (n, 3, 3)."""
    change = np.zeros((len(angles), 3, 3))
    change[:, 0, 0] = 1
    change[:, 1, 1] = change[:, 2, 2] = saturations * np.cos(angles)
    change[:, 2, 1] = saturations * np.sin(angles)
    change[:, 1, 2] = -change[:, 2, 1]
    return np.asarray(np.linalg.inv(TO_YIQ) @ change @ TO_YIQ, np.float32)
