"""A suite from a folder tree: `domain/class/picture`, or `class/picture` where there is one domain."""

from __future__ import annotations

import hashlib
import os
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smatter.backbones.images import FORMATS, open_image
from smatter.errors import InvalidSuite, InvalidSupport, NotFound
from smatter.records import Progress, silent
from smatter.tasks.assemble import Omissions, assemble, short_name
from smatter.tasks.stores import Pictures
from smatter.tasks.suite import Suite
from smatter.tasks.support import SUFFIXES

MAX_FILES = 200_000
MAX_BYTES = 2_000_000_000
"""Of all pictures in memory."""
LARGEST_SIDE = 1024
USUAL_SIDE = 224
"""Pictures are not kept larger than this unless they are asked for so: most networks take no more."""

Files = dict[str, dict[str, list[Path]]]
"""Image files by domain and class."""


@dataclass(frozen=True)
class _Picture:
    pixels: np.ndarray[Any, np.dtype[np.uint8]]
    digest: bytes


def find_files(root: Path, omitted: Omissions) -> Files:
    """The image files of a tree; how deep it is, is told by where the images are.

    Args:
        root: the folder.
        omitted: is told of files that are no images, images in no class folder, empty classes, and links out of the
            tree.
    """
    tree = _Tree(root, omitted)
    tops = tree.folders(root)
    below = {top: tree.folders(top) for top in tops}
    if any(tree.images(folder) for folders in below.values() for folder in folders):
        stray = [image for top in (root, *tops) for image in tree.images(top)]
        for top in tops:
            if not below[top] and tree.images(top):
                raise InvalidSuite(f"{top} holds images while folders beside it hold class folders; use one depth")
            if not below[top]:
                omitted.add(f"{top} has no class folders; add some or delete it")
        found = {top.name: _classes(tree, below[top], omitted) for top in tops if below[top]}
    elif any(tree.images(top) for top in tops):
        stray = tree.images(root)
        found = {root.resolve().name: _classes(tree, tops, omitted)}
    else:
        raise InvalidSuite(f"{root} holds no images in class folders; arrange them as domain/class/picture.png")
    for image in stray:
        omitted.add(f"{image} is in no class folder; put it in one")
    return found


def read_folders(
    root: Path,
    omitted: Omissions,
    name: str | None = None,
    side: int | None = None,
    progress: Progress = silent,
) -> Suite:
    """Pictures of a tree as a suite. All are decoded at once, so that damaged ones are known from the start.

    Args:
        root: the folder.
        omitted: is told of what cannot be used, and of files that repeat another of their class, which would put the
            same picture into support and query.
        name: of the suite; the folder's by default.
        side: pixels to which the pictures are stretched, in height and width; by default the median of their longer
            sides, at most 224.
        progress: called with 1 for every file.
    """
    files = find_files(root, omitted)
    paths = [path for classes in files.values() for each in classes.values() for path in each]
    if side is None:
        side = _usual_side(paths)
    if not 1 <= side <= LARGEST_SIDE:
        raise InvalidSuite(f"pictures of {side} x {side} pixels: give a size from 1 to {LARGEST_SIDE}")
    if len(paths) * side * side * 3 > MAX_BYTES:
        largest = int((MAX_BYTES / 3 / len(paths)) ** 0.5)
        raise InvalidSuite(
            f"{len(paths)} pictures of {side} x {side} pixels take more than {MAX_BYTES / 1e9:.0f} GB of memory; ask "
            f"for a size of at most {largest}"
        )
    found: dict[str, dict[str, list[_Picture]]] = {}
    for domain, classes in files.items():
        pictures = {label: _pictures(each, side, omitted, progress) for label, each in classes.items()}
        for label in (label for label, each in pictures.items() if not each):
            omitted.add(f"class {label!r} of domain {domain!r} in {root} has no image that can be read; add some")
        found[domain] = {label: each for label, each in pictures.items() if each}
    return assemble(name or short_name(root.resolve().name), "images", found, _store, str(root))


class _Tree:
    """Folders and images below a root, each folder listed once; links that lead out of it are left out."""

    def __init__(self, root: Path, omitted: Omissions) -> None:
        self.root, self.home, self.omitted = root, root.resolve(), omitted
        self.listed: dict[Path, tuple[list[Path], list[Path]]] = {}
        self.n_entries = 0

    def folders(self, folder: Path) -> list[Path]:
        return self._list(folder)[0]

    def files(self, folder: Path) -> list[Path]:
        return self._list(folder)[1]

    def images(self, folder: Path) -> list[Path]:
        return [file for file in self.files(folder) if file.suffix.lower() in SUFFIXES]

    def _list(self, folder: Path) -> tuple[list[Path], list[Path]]:
        if folder not in self.listed:
            folders, files = [], []
            for path in self._entries(folder):
                if path.is_dir():
                    folders.append(path)
                elif path.is_file():
                    files.append(path)
                else:
                    self.omitted.add(f"{path} is neither a file nor a folder; remove it")
            self.listed[folder] = folders, files
        return self.listed[folder]

    def _entries(self, folder: Path) -> list[Path]:
        paths = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self.n_entries += 1
                if self.n_entries > MAX_FILES:
                    raise InvalidSuite(f"{self.root} holds more than {MAX_FILES} files and folders; give fewer")
                if entry.name.startswith("."):
                    continue
                path = folder / entry.name
                if entry.is_symlink() and not self._is_inside(path):
                    self.omitted.add(f"{path} is a link that leads out of the folder; copy what it leads to")
                else:
                    paths.append(path)
        return sorted(paths)

    def _is_inside(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.home)
        except (OSError, RuntimeError):  # a link to itself
            return False


def _classes(tree: _Tree, folders: Sequence[Path], omitted: Omissions) -> dict[str, list[Path]]:
    found = {}
    for folder in folders:
        images = tree.images(folder)
        for file in sorted({*tree.files(folder), *tree.folders(folder)} - set(images)):
            omitted.add(f"{file} is not an image ({', '.join(SUFFIXES)}); remove it from the class folder")
        if images:
            found[folder.name] = images
        else:
            omitted.add(f"class folder {folder} is empty; add images or delete it")
    return found


def _usual_side(paths: Sequence[Path]) -> int:
    import PIL.Image

    sides = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in paths:
            try:
                with PIL.Image.open(path, formats=FORMATS) as image:
                    sides.append(max(image.size))
            except Exception:  # whatever is wrong with it is told when it is decoded
                continue
    return min(USUAL_SIDE, round(statistics.median(sides))) if sides else USUAL_SIDE


def _pictures(paths: Sequence[Path], side: int, omitted: Omissions, progress: Progress) -> list[_Picture]:
    from PIL.Image import Resampling

    first: dict[bytes, Path] = {}
    pictures = []
    for path in paths:
        progress(1)
        try:
            image = open_image(path)
        except (InvalidSupport, NotFound) as error:
            omitted.add(str(error))
            continue
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
        if digest in first:
            omitted.add(f"{path} is the same picture as {first[digest]}; delete it")
            continue
        first[digest] = path
        small = image.resize((side, side), Resampling.BILINEAR).convert("RGB")
        pictures.append(_Picture(np.asarray(small), digest))
    return pictures


def _store(pictures: Sequence[_Picture]) -> Pictures:
    return Pictures(np.stack([each.pixels for each in pictures]), [each.digest for each in pictures])
