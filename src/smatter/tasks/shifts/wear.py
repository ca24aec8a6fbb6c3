"""Signs as they are met: turned, slanted, near or far, faded and grainy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smatter.tasks.shifts.aim import Pictures, border_colour, rounded
from smatter.tasks.shifts.corruptions import Corruption, normal


@dataclass(frozen=True)
class Worn(Corruption):
    """Every picture turned, slanted, zoomed, moved and faded by a little of its own, and grainy.

    What comes into view has the colour of the picture's border, towards which it also fades. At severity 4: up to 20
    degrees, a fifth of slant and of zoom, a tenth of the side, two fifths of the contrast left, noise of a tenth.
    """

    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Worn pictures."""
        from PIL.Image import Resampling, Transform, fromarray

        n, height, width, _ = pictures.shape

        def around(extent: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            return np.asarray(extent * (2 * generator.random(n) - 1))

        angle = np.radians(around(self.level((5, 10, 15, 20, 30))))
        zoom = 1 + around(self.level((0.05, 0.1, 0.15, 0.2, 0.3)))
        slant = around(self.level((0.05, 0.1, 0.15, 0.2, 0.3)))
        right, down = (around(self.level((0.03, 0.05, 0.08, 0.1, 0.12)) * side) for side in (width, height))
        cosine, sine = zoom * np.cos(angle), zoom * np.sin(angle)
        # From a place in the result to one in the picture, around its middle.
        along, across = (width - 1) / 2, (height - 1) / 2
        left = along + right - cosine * along - (slant - sine) * across
        top = across + down - sine * along - cosine * across
        places = np.stack([cosine, slant - sine, left, sine, cosine, top], axis=1).tolist()
        ground = border_colour(pictures)
        moved = np.empty_like(pictures)
        for number, (place, fill) in enumerate(zip(places, ground.reshape(-1, 3).astype(int).tolist(), strict=True)):
            image = fromarray(pictures[number])
            turned = image.transform(image.size, Transform.AFFINE, place, Resampling.BILINEAR, fillcolor=tuple(fill))
            moved[number] = np.asarray(turned)
        least = self.level((0.9, 0.75, 0.6, 0.4, 0.3))
        contrast = (least + (1 - least) * generator.random((n, 1, 1, 1))).astype(np.float32)
        grain = 255 * self.level((0.02, 0.04, 0.07, 0.1, 0.15))
        noise = grain * normal(pictures.size, generator).reshape(pictures.shape)
        return rounded(ground + contrast * (moved - ground) + noise)
