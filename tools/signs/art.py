"""Drawings kept as SVG in Iconify packages, by icon name or by the characters they stand for."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import resvg_py
from download import Cache, Package
from PIL import Image
from tiles import Pixels, fit, inked_box, quantise

CANVAS = 128
COLOUR_SIDE = 28


@dataclass(frozen=True)
class Drawing:
    """An SVG body with its box."""

    body: str
    left: float
    top: float
    width: float
    height: float
    transform: str = ""

    def svg(self) -> str:
        """A complete document with black as the current colour."""
        body = f'<g transform="{self.transform}">{self.body}</g>' if self.transform else self.body
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" color="#000" '
            f'viewBox="{self.left} {self.top} {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}">{body}</svg>'
        )


class IconSet:
    """One Iconify package."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.prefix = package.name.partition("/")[2]
        self._data = package.json("icons.json")

    @classmethod
    def of(cls, cache: Cache, prefix: str) -> "IconSet":
        """The set with this prefix."""
        return cls(cache.package("npm", f"@iconify-json/{prefix}"))

    @cached_property
    def names(self) -> list[str]:
        """Icons and aliases that are shown to users."""
        icons = [name for name, icon in self._data["icons"].items() if not icon.get("hidden")]
        return icons + [name for name, alias in self._data.get("aliases", {}).items() if not alias.get("hidden")]

    @cached_property
    def _characters(self) -> dict[str, str]:
        pairs = self.package.json("chars.json").items() if "chars.json" in self.package else ()
        return {"-".join(part for part in codes.split("-") if part != "fe0f"): name for codes, name in pairs}

    @cached_property
    def _known(self) -> set[str]:
        return {*self._data["icons"], *self._data.get("aliases", {})}

    def find(self, codes: str, names: Iterable[str]) -> str | None:
        """The icon of an emoji: by code points such as 1f600 without variation selector, else by a usual name."""
        return self._characters.get(codes) or next((name for name in names if name in self._known), None)

    def drawing(self, name: str) -> Drawing | None:
        """The drawing of an icon; aliases are followed once, mirrored ones are left out."""
        alias = self._data.get("aliases", {}).get(name)
        if alias and set(alias) - {"parent"}:
            return None
        icon = self._data["icons"].get(alias["parent"] if alias else name)
        if icon is None:
            return None
        default = self._data.get("width", 16), self._data.get("height", 16)
        return Drawing(
            icon["body"], icon.get("left", 0), icon.get("top", 0),
            icon.get("width", default[0]), icon.get("height", default[1]),
        )  # fmt: skip

    def draw(self, name: str, colour: bool = False) -> Pixels | None:
        """The icon as a tile, dark on white or in its colours."""
        drawing = self.drawing(name)
        return None if drawing is None else rasterise(drawing.svg(), colour)


def rasterise(svg: str, colour: bool, side: int | None = None) -> Pixels | None:
    """A document as a tile, cropped to what it draws."""
    try:
        png = resvg_py.svg_to_bytes(svg_string=svg, width=CANVAS, skip_system_fonts=True)
    except ValueError:
        return None
    picture = Image.open(io.BytesIO(bytes(png))).convert("RGBA")
    box = inked_box(np.asarray(picture.getchannel("A")) > 24)
    flat = Image.new("RGBA", picture.size, "white")
    flat.alpha_composite(picture)
    if colour:
        return fit(flat.convert("RGB"), box, side or COLOUR_SIDE)
    tile = fit(flat.convert("L"), box, *([side] if side else []))
    return None if tile is None else quantise(tile)
