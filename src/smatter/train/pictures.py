"""Labelled pictures to train on, and how they are varied while a network sees them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from smatter.errors import InvalidSuite
from smatter.tasks.splits import Split
from smatter.tasks.suite import Suite

WHITE = 1.0


@dataclass(frozen=True)
class Pictures:
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
    def of(cls, suite: Suite, split: Split, shares: Mapping[str, float], every: int = 1) -> Pictures:
        """The pictures of a split of some domains.

        Args:
            suite: where they are.
            split: whose classes are taken.
            shares: how often a picture of each domain is drawn, in proportion.
            every: take one class in so many.
        """
        values, sizes, domain_of = [], [], []
        for number, name in enumerate(shares):
            domain = suite.domain(name)
            classes = suite.classes(domain, split)[::every]
            if not classes:
                raise InvalidSuite(f"domain {name!r} has no classes in split {split!r}: leave it out")
            for each in classes:
                values.append(np.asarray(domain.store.take(range(each.start, each.stop))))
                sizes.append(len(each))
                domain_of.append(number)
        pixels = torch.from_numpy(np.concatenate(values)).permute(0, 3, 1, 2).contiguous()
        first = torch.tensor([0, *sizes]).cumsum(0)
        share = torch.tensor(list(shares.values()), dtype=torch.float64)
        return cls(pixels, first, torch.tensor(domain_of), share / share.sum())

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.domain_of)

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Pictures, (n, 3, height, width) in [0, 1], and their classes: domain by share, then class, then picture."""
        weight = (self.shares / torch.bincount(self.domain_of).double())[self.domain_of]
        labels = torch.multinomial(weight, n, replacement=True, generator=generator)
        sizes = self.first.diff()[labels]
        places = self.first[labels] + (torch.rand(n, generator=generator, dtype=torch.float64) * sizes).long()
        return self.values[places].float() / 255, labels


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


def domain_shares(names: Sequence[str]) -> dict[str, float]:
    """Equal shares."""
    return dict.fromkeys(names, 1 / len(names))
