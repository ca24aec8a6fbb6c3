"""Renderings that no source is trained on: inverted, outlines only, on a texture, turned far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smatter.tasks.shifts.aim import Floats, Pictures, PictureShift, border_colour, integers, largest_channel, rounded

LEAST_ANGLE, MOST_ANGLE = 45.0, 135.0
TEXTURE_STRENGTH = 0.55


@dataclass(frozen=True)
class Inverted(PictureShift):
    """The negative: light on dark where it was dark on light."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:  # noqa: ARG002
        """Negatives."""
        return 255 - pictures


@dataclass(frozen=True)
class Outline(PictureShift):
    """Dark lines on white where neighbouring pixels differ, in lightness or in colour; no filled shapes."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:  # noqa: ARG002
        """Line drawings."""
        wide = np.pad(pictures, ((0, 0), (0, 1), (0, 1), (0, 0)), mode="edge")
        corners = (wide[:, :-1, :-1], wide[:, 1:, :-1], wide[:, :-1, 1:], wide[:, 1:, 1:])
        step = np.maximum.reduce(corners) - np.minimum.reduce(corners)
        line = rounded(255 - np.float32(1.5) * largest_channel(step))
        return np.repeat(line, 3, axis=-1)


@dataclass(frozen=True)
class TexturedBackground(PictureShift):
    """A pattern of two colours behind each picture: wherever it has the colour of its border, also inside.

    One colour is the border's. The other is random but darker than a light border, lighter than a dark one, and mixed
    with it, so that the figure still stands out.
    """

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Pictures on a texture."""
        ground = border_colour(pictures)
        away = 150 * generator.random((len(pictures), 1, 1, 3), np.float32)
        colour = np.where(ground > 127, away, 255 - away)
        pattern = TEXTURE_STRENGTH * _patterns(pictures.shape[:3], generator)[..., None]
        texture = ground + pattern * (colour - ground)
        distance = largest_channel(np.abs(pictures - ground))
        opacity = (distance / 128).clip(0, 1)
        return rounded(texture + opacity * (pictures - texture))


@dataclass(frozen=True)
class StrongRotation(PictureShift):
    """Every picture turned by an angle of its own between 45 and 135 degrees, to either side.

    Corners that turn out of the picture are lost; those that turn in have the colour of its border.
    """

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Turned pictures."""
        from PIL.Image import Resampling, fromarray

        angles = LEAST_ANGLE + (MOST_ANGLE - LEAST_ANGLE) * generator.random(len(pictures))
        angles *= 1 - 2 * integers(2, len(pictures), generator)
        fills = border_colour(pictures).reshape(-1, 3).astype(int).tolist()
        turned = np.empty_like(pictures)
        for number, (angle, fill) in enumerate(zip(angles.tolist(), fills, strict=True)):
            image = fromarray(pictures[number]).rotate(angle, Resampling.BILINEAR, fillcolor=tuple(fill))
            turned[number] = np.asarray(image)
        return turned


def _patterns(shape: tuple[int, int, int], generator: np.random.Generator) -> Floats:
    """A pattern in [0, 1] for each picture: two waves of random direction and length, one across the other."""
    n, height, width = shape
    rows, columns = (np.arange(size, dtype=np.float32) / size for size in (height, width))
    turn = np.float32(2 * np.pi)
    pattern = np.ones(shape, np.float32)
    for _ in range(2):
        direction, phase = turn * generator.random((2, n, 1, 1), np.float32)
        waves = 1 + 6 * generator.random((n, 1, 1), np.float32)
        along = np.cos(direction) * columns + np.sin(direction) * rows[:, None]
        pattern *= np.sin(turn * waves * along + phase)
    return np.asarray((1 + pattern) / 2, np.float32)
