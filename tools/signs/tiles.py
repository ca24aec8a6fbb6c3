"""Tiles of 32 by 32 pixels, the classes made of them, and what is dropped: the empty, the doubled, the alike."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import numpy as np
from PIL import Image

SIDE = 32
INK_SIDE = 26
"""Longest side of what is drawn; the rest is margin for the augmentation of later code."""
MIN_INK = 0.025
SAME = 0.985
ALIKE = 0.965

Pixels = np.ndarray
"""Grey (32, 32) or colour (32, 32, 3), uint8, white background."""


@dataclass(frozen=True)
class Tile:
    """One example: who drew it, and the pixels."""

    style: str
    pixels: Pixels

    @property
    def digest(self) -> bytes:
        """Equal for equal pixels."""
        return hashlib.sha256(self.pixels.tobytes()).digest()


@dataclass(frozen=True)
class Group:
    """One class: its name, the key of its concept, its examples."""

    name: str
    key: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Domain:
    """One domain of the suite, ready to be packed."""

    name: str
    title: str
    role: str
    groups: tuple[Group, ...]
    packages: tuple[str, ...]
    colour: bool = False

    def count(self) -> int:
        """Examples in all."""
        return sum(len(group.tiles) for group in self.groups)


@dataclass
class Draft:
    """A domain while it is drawn: examples by class key, in a fixed order."""

    names: dict[str, str] = field(default_factory=dict)
    tiles: dict[str, list[Tile]] = field(default_factory=dict)

    def add(self, key: str, name: str, style: str, pixels: Pixels | None) -> None:
        """Keep one drawing, unless there is next to nothing on it."""
        if is_drawn(pixels):
            self.names.setdefault(key, name)
            self.tiles.setdefault(key, []).append(Tile(style, pixels))

    def groups(self) -> list[Group]:
        """The classes so far."""
        return [Group(self.names[key], key, tuple(tiles)) for key, tiles in self.tiles.items()]


def ink(pixels: Pixels) -> float:
    """Mean distance from white, between 0 and 1."""
    return float(1.0 - pixels.mean() / 255.0)


def is_drawn(pixels: Pixels | None) -> TypeGuard[Pixels]:
    """Whether there is a picture with more on it than a speck."""
    return pixels is not None and ink(pixels) >= MIN_INK


def inked_box(inked: np.ndarray) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom of what is true in a mask."""
    rows, columns = np.flatnonzero(inked.any(axis=1)), np.flatnonzero(inked.any(axis=0))
    return (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1) if rows.size else None


def fit(image: Image.Image, box: tuple[int, int, int, int] | None, side: int = INK_SIDE) -> Pixels | None:
    """The part of a picture inside a box, on white, scaled to `side` and centred; None for an empty box."""
    if box is None:
        return None
    part = image.crop(box)
    scale = side / max(part.size)
    size = (max(1, round(part.width * scale)), max(1, round(part.height * scale)))
    small = part.resize(size, Image.Resampling.BOX)
    tile = Image.new(image.mode, (SIDE, SIDE), "white")
    tile.paste(small, ((SIDE - size[0]) // 2, (SIDE - size[1]) // 2))
    return np.asarray(tile)


def quantise(pixels: Pixels, levels: int = 16) -> Pixels:
    """Grey values rounded to evenly spaced levels, so that sheets stay small."""
    step = 255 / (levels - 1)
    return np.round(np.round(pixels / step) * step).astype(np.uint8)


def without_doubles(groups: Iterable[Group]) -> list[Group]:
    """No two equal pictures in a domain: a class keeps its first; a picture in two classes is in neither."""
    groups = list(groups)
    owners: dict[bytes, set[str]] = {}
    for group in groups:
        for tile in group.tiles:
            owners.setdefault(tile.digest, set()).add(group.key)
    kept = []
    for group in groups:
        first: dict[bytes, Tile] = {}
        for tile in group.tiles:
            if len(owners[tile.digest]) == 1:
                first.setdefault(tile.digest, tile)
        kept.append(replace(group, tiles=tuple(first.values())))
    return kept


def without_alike(groups: Sequence[Group]) -> list[Group]:
    """Drop what a style draws alike: c and C scaled to one size, or the small letters of a capitals-only font.

    A pair of classes that two fifths of their common styles draw alike loses its later class; a style that draws
    two other classes the same loses the later drawing.
    """
    n_groups = len(groups)
    by_style: dict[str, dict[int, Tile]] = {}
    for index, group in enumerate(groups):
        for tile in group.tiles:
            by_style.setdefault(tile.style, {}).setdefault(index, tile)
    common, alike = np.zeros((n_groups, n_groups)), np.zeros((n_groups, n_groups))
    same: dict[str, tuple[list[int], np.ndarray]] = {}
    for style, tiles in by_style.items():
        members = sorted(tiles)
        correlation = _correlation(np.stack([tiles[index].pixels for index in members]))
        common[np.ix_(members, members)] += 1
        alike[np.ix_(members, members)] += correlation > ALIKE
        same[style] = (members, correlation > SAME)
    dropped: set[int] = set()
    for later in range(n_groups):
        earlier = [index for index in range(later) if index not in dropped]
        if any(alike[index, later] >= 0.4 * max(1, common[index, later]) for index in earlier):
            dropped.add(later)
    lost: set[tuple[str, int]] = set()
    for style, (members, equal) in same.items():
        for column, later in enumerate(members):
            if any(equal[row, column] for row in range(column) if members[row] not in dropped):
                lost.add((style, later))
    return [
        replace(group, tiles=tuple(tile for tile in group.tiles if (tile.style, index) not in lost))
        for index, group in enumerate(groups)
        if index not in dropped
    ]


def _correlation(pixels: Pixels) -> np.ndarray:
    rows = pixels.reshape(len(pixels), -1).astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return rows @ rows.T


def limited(groups: Iterable[Group], most: int, least: int) -> list[Group]:
    """At most `most` examples a class, styles taken evenly; classes with fewer than `least` are dropped.

    Which styles a class keeps depends on a hash of style and key, so that no style is favoured.
    """
    kept = []
    for group in groups:
        rounds: dict[str, int] = {}
        ranked = []
        for tile in group.tiles:
            rounds[tile.style] = rounds.get(tile.style, -1) + 1
            ranked.append((rounds[tile.style], lot(f"{group.key} {tile.style}"), len(ranked)))
        chosen = sorted(position for _, _, position in sorted(ranked)[:most])
        if len(chosen) >= least:
            kept.append(replace(group, tiles=tuple(group.tiles[position] for position in chosen)))
    return kept


def lot(text: str) -> bytes:
    """A fixed random rank of a text."""
    return hashlib.sha256(text.encode()).digest()
