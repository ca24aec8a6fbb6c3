"""Renderings that no source is trained on, of other shapes: turned far, seen aslant, strokes thick or thin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from smatter.tasks.shifts.aim import Floats, Pictures, PictureShift, border_colour, distance_from, integers

Doubles = np.ndarray[Any, np.dtype[np.float64]]

LEAST_ANGLE, MOST_ANGLE = 45.0, 135.0
FURTHEST_CORNER = 0.25
"""How far a corner may move inwards, relative to the side; from a third on, four corners may not be convex."""
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1))
"""Down and right: where each of the neighbours of a pixel lies."""


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


@dataclass(frozen=True)
class Perspective(PictureShift):
    """Every picture seen from a point of view of its own: its corners move inwards, each on its own.

    What comes into view has the colour of the picture's border.
    """

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Pictures seen aslant."""
        from PIL.Image import Resampling, Transform, fromarray

        n, height, width, _ = pictures.shape
        corners = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
        moved = corners + FURTHEST_CORNER * generator.random((n, 4, 2)) * (1 - 2 * corners)
        size = (width, height)
        places = _projections(moved * size, np.broadcast_to(corners * size, moved.shape)).tolist()
        fills = border_colour(pictures).reshape(-1, 3).astype(int).tolist()
        seen = np.empty_like(pictures)
        for number, (place, fill) in enumerate(zip(places, fills, strict=True)):
            image = fromarray(pictures[number])
            aslant = image.transform(size, Transform.PERSPECTIVE, place, Resampling.BILINEAR, fillcolor=tuple(fill))
            seen[number] = np.asarray(aslant)
        return seen


@dataclass(frozen=True)
class StrokeThickness(PictureShift):
    """Strokes much thicker or much thinner than they were, each picture the one or the other by chance.

    A thick stroke has grown on every side by a pixel where the picture has 32. A thin one has lost as much, but for its
    middle line, so that none vanishes. What stands out from the colour of the border counts as stroke.
    """

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Pictures with other strokes."""
        is_thick = (integers(2, len(pictures), generator) == 1)[:, None, None, None]
        ground = border_colour(pictures)
        for _ in range(max(1, round(min(pictures.shape[1:3]) / 32))):
            for side in SIDES:
                pictures = np.where(is_thick, _grown(pictures, ground, side), _thinned(pictures, ground, side))
        return pictures


def _grown(pictures: Pictures, ground: Floats, side: tuple[int, int]) -> Pictures:
    """Every pixel as its neighbour where that is further from the ground."""
    neighbours = _neighbours(pictures, side)
    return np.where(distance_from(ground, neighbours) > distance_from(ground, pictures), neighbours, pictures)


def _thinned(pictures: Pictures, ground: Floats, side: tuple[int, int]) -> Pictures:
    """Every pixel as its neighbour where that is closer to the ground, except what growing back would not restore.

    That is the middle line of a stroke (Lantuejoul, 1978).
    """
    neighbours = _neighbours(pictures, side)
    before = distance_from(ground, pictures)
    thin = np.where(distance_from(ground, neighbours) < before, neighbours, pictures)
    lost = before - distance_from(ground, _grown(thin, ground, (-side[0], -side[1])))
    return np.where(lost > distance_from(ground, thin), pictures, thin)


def _neighbours(pictures: Pictures, side: tuple[int, int]) -> Pictures:
    """The neighbour of every pixel on one side; beyond the rim, the picture goes on as its last pixels."""
    rows, columns = (
        (np.arange(size) + step).clip(0, size - 1) for size, step in zip(pictures.shape[1:3], side, strict=True)
    )
    return pictures[:, rows[:, None], columns]


def _projections(seen: Doubles, pictured: Doubles) -> Doubles:
    """The eight numbers that take places in the result to places in the picture, from four of each, (n, 8).

    (a x + b y + c) / (g x + h y + 1) is a column and (d x + e y + f) / (g x + h y + 1) a row: two linear equations in
    a to h for each corner.
    """
    homogeneous = np.concatenate([seen, np.ones_like(seen[..., :1])], axis=-1)
    none = np.zeros_like(homogeneous)
    column, row = (-seen * pictured[..., axis : axis + 1] for axis in (0, 1))
    equations = np.concatenate(
        [np.concatenate([homogeneous, none, column], axis=-1), np.concatenate([none, homogeneous, row], axis=-1)],
        axis=1,
    )
    answers = np.concatenate([pictured[..., 0], pictured[..., 1]], axis=1)
    return np.linalg.solve(equations, answers[..., None])[..., 0]
