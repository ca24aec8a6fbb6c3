"""Renderings that no source is trained on: inverted, outlines only, on a texture, on a colour, in dots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smatter.tasks.shifts.aim import (
    Floats,
    Pictures,
    PictureShift,
    border_colour,
    distance_from,
    largest_channel,
    lightness,
    rounded,
)

TEXTURE_STRENGTH = 0.55
SATURATION = 0.3
"""Of coloured grounds; people read figures on purer colours too, but at 0.5 the sources of Signs hardly do."""
LIGHTEST = 110.0
"""Grey that white turns into on a coloured ground; black stays."""
N_CELLS = 9.0
"""Dots of a halftone screen along a side: cells of three and a half pixels where it has 32."""
MOST_INK = 0.72
"""How much of a cell the dot of a black place covers, so that it stays a dot."""
SHARPNESS = 4.0
"""How steeply a dot's rim turns from black to white."""


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
        opacity = (distance_from(ground, pictures) / 128).clip(0, 1)
        return rounded(texture + opacity * (pictures - texture))


@dataclass(frozen=True)
class GrayOnColour(PictureShift):
    """The figure in dark shades of grey on a coloured ground, whose hue is each picture's own.

    Wherever a picture has the colour of its border, also inside, it gets the new ground.
    """

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Grey figures on colours."""
        hue = 6 * generator.random((len(pictures), 1, 1, 1), np.float32)
        pure = (np.abs((hue + np.array([0, 4, 2], np.float32)) % 6 - 3) - 1).clip(0, 1)
        colour = 255 * (1 - SATURATION * (1 - pure))
        grey = LIGHTEST * lightness(pictures)
        opacity = (distance_from(border_colour(pictures), pictures) / 128).clip(0, 1)
        return rounded(colour + opacity * (grey - colour))


@dataclass(frozen=True)
class Halftone(PictureShift):
    """Black dots on white, the larger the darker the place, in a screen of random angle and phase for each picture."""

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Pictures printed in dots."""
        n, height, width, _ = pictures.shape
        rows, columns = (np.arange(size, dtype=np.float32) / min(height, width) for size in (height, width))
        turn = np.float32(2 * np.pi)
        angle, *phases = turn * generator.random((3, n, 1, 1), np.float32)
        across = np.cos(angle) * columns + np.sin(angle) * rows[:, None]
        along = np.cos(angle) * rows[:, None] - np.sin(angle) * columns
        # From 0 in the middle of a dot to 1 between dots; a dot is where it is below the ink of the place.
        waves = (np.cos(turn * N_CELLS * way + phase) for way, phase in zip((across, along), phases, strict=True))
        screen = (2 - sum(waves)) / 4
        ink = MOST_INK * (1 - lightness(pictures))
        dots = (SHARPNESS * (ink - screen[..., None])).clip(0, 1)
        return np.repeat(rounded(255 - 255 * dots), 3, axis=-1)


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
