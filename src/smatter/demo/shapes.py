"""Pictures for the demonstration: six shapes in three styles, drawn from their distance functions."""

from collections.abc import Callable

import torch
from torch import Tensor

SIZE = 20
"""Side of a picture in pixels."""


def _disc(x: Tensor, y: Tensor) -> Tensor:
    return torch.hypot(x, y) - 0.75


def _square(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x.abs(), y.abs()) - 0.65


def _triangle(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(0.866 * x.abs() + 0.5 * y, -y) - 0.42


def _bar(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x.abs() - 0.9, y.abs() - 0.28)


def _cross(x: Tensor, y: Tensor) -> Tensor:
    return torch.minimum(_bar(x, y), _bar(y, x))


def _half_disc(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(_disc(x, y), y - 0.1)


SHAPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "disc": _disc, "square": _square, "triangle": _triangle, "bar": _bar, "cross": _cross, "half disc": _half_disc,
}  # fmt: skip
"""Signed distance to each shape's edge, negative inside."""

STYLES = ("chalk", "ink", "wire")


def draw(style: str, n_pictures: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random pictures of one style and the numbers of their shapes.

    chalk is bright on dark, ink dark on bright stripes, wire only an outline; place, size and angle vary, and
    all have noise.

    Args:
        style: one of `STYLES`.
        n_pictures: how many.
        generator: source of randomness.

    Returns:
        pictures (n_pictures, 3, SIZE, SIZE) around zero, and labels (n_pictures,).
    """

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n_pictures, 1, 1, generator=generator)

    labels = torch.randint(len(SHAPES), (n_pictures,), generator=generator)
    axis = torch.linspace(-1, 1, SIZE)
    row, column = torch.meshgrid(axis, axis, indexing="ij")
    angle, scale = uniform(-0.5, 0.5), uniform(0.5, 0.8)
    x0, y0 = (column - uniform(-0.25, 0.25)) / scale, (row - uniform(-0.25, 0.25)) / scale
    x, y = angle.cos() * x0 - angle.sin() * y0, angle.sin() * x0 + angle.cos() * y0
    distances = torch.stack([shape(x, y) for shape in SHAPES.values()])
    distance = distances[labels, torch.arange(n_pictures)]
    inside = torch.sigmoid(-14 * distance)
    if style == "chalk":
        picture = inside
    elif style == "ink":
        stripes = 0.5 * torch.sin(9 * (column * uniform(-1, 1).cos() + row * uniform(-1, 1).sin()) + uniform(0, 6))
        picture = 1 + stripes - (1 + stripes) * inside
    elif style == "wire":
        picture = torch.exp(-((distance / 0.16) ** 2))
    else:
        raise KeyError(style)
    noise = 0.25 * torch.randn(picture.shape, generator=generator)
    return (picture - 0.5 + noise).unsqueeze(1).expand(-1, 3, -1, -1).contiguous(), labels
