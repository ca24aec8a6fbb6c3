"""Characters drawn in fonts: a class is a character, an example is the character in one family."""

import io
import unicodedata
from collections.abc import Iterator

import numpy as np
from download import Cache, Package
from families import Script
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont
from tiles import Domain, Draft, Pixels, fit, inked_box, limited, quantise, without_alike, without_doubles

SIZE = 160
CUTS = ((400, "normal"), (800, "italic"), (300, "normal"), (700, "normal"), (400, "italic"), (100, "normal"))
"""Wanted weight and slope, by turns: families with several show more than their regular one."""


class Face:
    """One family in one cut, whose characters are spread over several subset files."""

    def __init__(self, package: Package, weight: int, slope: str = "normal", sample: str = "") -> None:
        self.package = package
        about = package.json("metadata.json")
        self.id, self.family = about["id"], about["family"]
        self.weight = min(about["weights"], key=lambda held: (abs(held - weight), held))
        self.slope = "normal"
        self.subset_of = {
            code: name.strip("[]") for name, ranges in package.json("unicode.json").items() for code in _codes(ranges)
        }
        # Slanted files often lack the script that the upright ones were drawn for.
        if sample and self._member(self.subset_of.get(ord(sample), ""), slope) in package:
            self.slope = slope
        self._fonts: dict[str, tuple[ImageFont.FreeTypeFont, set[int]] | None] = {}

    @property
    def style(self) -> str:
        """Family, weight and slope, as the suite names it."""
        weight = "" if self.weight == 400 else f" {self.weight}"
        return f"{self.family}{weight}{'' if self.slope == 'normal' else ' italic'}"

    def draw(self, character: str) -> Pixels | None:
        """The character, dark on white; None where the font has no drawing of it."""
        opened = self._open(self.subset_of.get(ord(character), ""))
        if opened is None or ord(character) not in opened[1]:
            return None
        font = opened[0]
        left, top, right, bottom = (int(edge) for edge in font.getbbox(character))
        if right <= left or bottom <= top:
            return None
        image = Image.new("L", (right - left + 8, bottom - top + 8), 255)
        ImageDraw.Draw(image).text((4 - left, 4 - top), character, fill=0, font=font)
        tile = fit(image, inked_box(np.asarray(image) < 215))
        return None if tile is None else quantise(tile)

    def _member(self, subset: str, slope: str) -> str:
        return f"files/{self.id}-{subset}-{self.weight}-{slope}.woff2"

    def _open(self, subset: str) -> tuple[ImageFont.FreeTypeFont, set[int]] | None:
        if subset not in self._fonts:
            member = self._member(subset, self.slope)
            self._fonts[subset] = None
            if member in self.package:
                content = self.package.read(member)
                codes = set(TTFont(io.BytesIO(content), lazy=True).getBestCmap())
                font = ImageFont.truetype(io.BytesIO(content), SIZE, layout_engine=ImageFont.Layout.BASIC)
                self._fonts[subset] = font, codes
        return self._fonts[subset]


def _codes(ranges: str) -> Iterator[int]:
    for part in ranges.split(","):
        first, _, last = part.strip().removeprefix("U+").partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


def key_of(text: str) -> str:
    """The key of a concept that has code points of its own."""
    return "u" + "-".join(f"{ord(character):04x}" for character in text)


def script_domain(script: Script, cache: Cache) -> Domain:
    """Draw, select and name one domain of characters."""
    draft = Draft()
    for character in script.characters:
        key = key_of(character)
        draft.names[key] = f"{character} {unicodedata.name(character).capitalize()}"
        draft.tiles[key] = []
    packages = [cache.package("npm", f"@fontsource/{family}") for family in script.families]
    drawn_by: dict[str, str] = {}
    for number, package in enumerate(packages):
        face = Face(package, *CUTS[number % len(CUTS)], sample=script.characters[0])
        drawn_by[face.style] = package.name
        for character in script.characters:
            key = key_of(character)
            draft.add(key, draft.names[key], face.style, face.draw(character))
        package.close()
    groups = limited(without_alike(without_doubles(draft.groups())), script.n_examples, least=8)
    used = {drawn_by[tile.style] for group in groups for tile in group.tiles}
    return Domain(script.name, script.title, script.role, tuple(groups), tuple(sorted(used)))
