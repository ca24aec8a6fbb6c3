"""Labelled pictures to train on, and how they are varied while a network sees them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from smatter.backbones.network import Inputs
from smatter.tasks.splits import Split
from smatter.tasks.suite import Suite
from smatter.train.examples import ByClass, choose_classes

WHITE = 1.0
MEAN, STD = 0.5, 0.5
PART = 256


@dataclass(frozen=True)
class TrainingPictures(ByClass):
    """Pictures in memory, class after class, domain after domain.

    Args:
        values: (n, 3, height, width), bytes.
        first: number of the first picture of each class, (n_classes + 1,); the last entry is n.
        domain_of: domain of each class, (n_classes,).
        shares: how often a picture of each domain is drawn, (n_domains,), summing to one.
    """

    values: Tensor
    first: Tensor
    domain_of: Tensor
    shares: Tensor

    @classmethod
    def of(cls, suite: Suite, split: Split, shares: Mapping[str, float], every: int = 1) -> TrainingPictures:
        """The pictures of a split of some domains; see `choose_classes`."""
        chosen = choose_classes(suite, split, shares, every)
        values = [np.asarray(domain.store.take(range(each.start, each.stop))) for domain, each in chosen.classes]
        pixels = torch.from_numpy(np.concatenate(values)).permute(0, 3, 1, 2).contiguous()
        return cls(pixels, chosen.first, chosen.domain_of, chosen.shares)

    @property
    def key(self) -> dict[str, Any]:
        """Tells what a run learnt from, for its state."""
        return {"n_classes": self.n_classes, "n_pictures": len(self.values)}

    @property
    def variation(self) -> type:
        """What can vary these examples."""
        return Variation

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Pictures, (n, 3, height, width) in [0, 1], and their classes."""
        places, labels = self.places(n, generator)
        return self.values[places].float() / 255, labels

    def parts(self) -> Iterator[Tensor]:
        """All pictures in order, in [0, 1], some at a time."""
        return (part.float() / 255 for part in self.values.split(PART))

    def prepared(self, drawn: Tensor) -> Inputs:
        """Pictures as a network wants them: between -1 and 1."""
        return {"pixel_values": (drawn - MEAN) / STD}


@dataclass(frozen=True)
class Variation:
    """How much a picture may vary; half of these where a number is an extent in both directions.

    Args:
        degrees: of rotation.
        zoom: of size, as a share.
        shift: as a share of the side.
        shear: of the axes.
        contrast: the least that may be left of the distance from white.
        noise: standard deviation added to the pixels.

    The defaults are those of `Worn` pictures of severity 4.
    """

    degrees: float = 20.0
    zoom: float = 0.2
    shift: float = 0.1
    shear: float = 0.2
    contrast: float = 0.4
    noise: float = 0.1

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Varied pictures, each in its own way; what comes into view from outside is white."""
        n = len(pixels)

        def around(extent: float) -> Tensor:
            return (2 * torch.rand(n, generator=generator) - 1) * extent

        angle, zoom = around(math.radians(self.degrees)), 1 + around(self.zoom)
        shear, right, down = around(self.shear), around(2 * self.shift), around(2 * self.shift)
        cosine, sine = angle.cos() * zoom, angle.sin() * zoom
        rows = [torch.stack([cosine, shear - sine, right], dim=1), torch.stack([sine, cosine, down], dim=1)]
        grid = affine_grid(torch.stack(rows, dim=1), list(pixels.shape), align_corners=False)
        moved = grid_sample(pixels - WHITE, grid, align_corners=False)  # zero, which is white, outside
        contrast = self.contrast + (1 - self.contrast) * torch.rand(n, 1, 1, 1, generator=generator)
        return moved * contrast + WHITE + self.noise * torch.randn(pixels.shape, generator=generator)
