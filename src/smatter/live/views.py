"""Augmented views of the only example of a class, so that it can be left out and still be recognised.

Every example gets the same random changes: the result does not depend on the order of the examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from smatter.backbones.network import Inputs

N_VIEWS = 8
"""Rows of a one-shot class, the unchanged example among them."""

SEED = 20_240_229
MAX_SHIFT = 0.08
MAX_ANGLE = 0.15
MAX_BRIGHTNESS = 0.15
MAX_CONTRAST = 0.2
NOISE = 0.05
DROPPED_WORDS = 0.15
_PERIOD = 512
"""Word k of a text shares its luck with word k + 512."""


def default_generator() -> torch.Generator:
    """A generator that gives the same views every time."""
    return torch.Generator().manual_seed(SEED)


def image_views(pixels: Tensor, n_views: int = N_VIEWS, generator: torch.Generator | None = None) -> Tensor:
    """Slightly moved, turned, brightened, contrasted and noisy copies, (n, n_views, c, h, w); the first is unchanged.

    Args:
        pixels: prepared pictures, (n, c, h, w).
        n_views: rows per picture, at least one.
        generator: source of randomness; a fixed one by default.
    """
    generator = generator or default_generator()

    def between(limit: float) -> list[float]:
        return (limit * (2 * torch.rand(n_views - 1, generator=generator) - 1)).tolist()

    right, down = between(2 * MAX_SHIFT), between(2 * MAX_SHIFT)  # the grid of a picture runs from -1 to 1
    angles, brightness, contrast = between(MAX_ANGLE), between(MAX_BRIGHTNESS), between(MAX_CONTRAST)
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    views = [pixels]
    for x, y, angle, light, stretch in zip(right, down, angles, brightness, contrast, strict=True):
        turn = torch.tensor(angle)
        matrix = torch.stack(
            [
                torch.stack([turn.cos(), -turn.sin(), torch.tensor(x)]),
                torch.stack([turn.sin(), turn.cos(), torch.tensor(y)]),
            ]
        )
        grid = affine_grid(matrix.to(pixels).expand(len(pixels), 2, 3), list(pixels.shape), align_corners=False)
        moved = grid_sample(pixels, grid, padding_mode="border", align_corners=False)
        noise = NOISE * torch.randn(pixels.shape[1:], generator=generator).to(pixels)
        views.append((moved - mean) * (1 + stretch) + mean + light + noise)
    return torch.stack(views, dim=1)


def text_views(texts: Sequence[str], n_views: int = N_VIEWS, generator: torch.Generator | None = None) -> list[str]:
    """Copies with some words left out, text after text, n_views of each; the first is unchanged.

    Args:
        texts: the originals.
        n_views: rows per text, at least one.
        generator: source of randomness; a fixed one by default.
    """
    kept = _kept(n_views, generator).tolist()
    rows: list[str] = []
    for text in texts:
        words = text.split()
        rows.append(text)
        for luck in kept:
            left = [word for position, word in enumerate(words) if luck[position % _PERIOD]]
            rows.append(" ".join(left or words[:1]))
    return rows


def token_views(inputs: Inputs, n_views: int = N_VIEWS, generator: torch.Generator | None = None) -> Inputs:
    """As `text_views` for texts that are token numbers already: left-out tokens are masked."""
    mask = inputs["attention_mask"]
    kept = _kept(n_views, generator)[:, torch.arange(mask.shape[1]) % _PERIOD]
    kept[:, 0] = True
    all_kept = torch.cat([torch.ones_like(kept[:1]), kept]).to(mask)
    return {
        "input_ids": inputs["input_ids"].repeat_interleave(n_views, dim=0),
        "attention_mask": (mask.unsqueeze(1) * all_kept).flatten(0, 1),
    }


def _kept(n_views: int, generator: torch.Generator | None) -> Tensor:
    luck = torch.rand(n_views - 1, _PERIOD, generator=generator or default_generator())
    return luck >= DROPPED_WORDS
