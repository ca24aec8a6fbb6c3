"""Where the examples of a domain lie: in a sheet of pictures, in image files, or in memory as texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from smatter.backbones.images import opaque, open_image
from smatter.errors import InvalidSuite, InvalidSupport
from smatter.tasks.suite import Inputs

COLUMNS = 64
"""Pictures in a row of a sheet."""


class Sheet:
    """Square pictures of one size, row by row in one lossless file; decoded on first use.

    Args:
        path: the file.
        n_examples: how many pictures it holds.
        side: their height and width.
    """

    def __init__(self, path: Path, n_examples: int, side: int) -> None:
        self.path, self.n_examples, self.side = path, n_examples, side

    def __len__(self) -> int:
        return self.n_examples

    @cached_property
    def digest(self) -> str:
        """Of the file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def take(self, indices: Sequence[int]) -> Inputs:
        """Pictures, (n, side, side, 3)."""
        pictures = self._pictures[np.asarray(indices, np.int64)]
        return pictures if pictures.ndim == 4 else np.repeat(pictures[..., None], 3, axis=-1)

    @cached_property
    def _pictures(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """All of them; greys without a channel, which takes a third of the memory."""
        try:
            image = open_image(self.path)
        except InvalidSupport as error:
            raise InvalidSuite(str(error)) from None
        grid = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
        n_rows = -(-self.n_examples // COLUMNS)
        if grid.shape[:2] != (n_rows * self.side, COLUMNS * self.side):
            raise InvalidSuite(
                f"{self.path} is {grid.shape[1]} x {grid.shape[0]} pixels, not {n_rows} rows of {COLUMNS} pictures of "
                f"{self.side}: build the suite again"
            )
        if grid.ndim == 3 and bool((grid == grid[..., :1]).all()):
            grid = grid[..., 0]
        tiles = grid.reshape(n_rows, self.side, COLUMNS, self.side, *grid.shape[2:]).swapaxes(1, 2)
        return np.ascontiguousarray(tiles).reshape(-1, self.side, self.side, *grid.shape[2:])[: self.n_examples]


class ImageFiles:
    """Pictures in files of their own, stretched to one size; each is decoded once.

    Args:
        paths: the files.
        names: what each is called in the suite, which its digest depends on; not where it lies.
        side: height and width of the result.
    """

    def __init__(self, paths: Sequence[Path], names: Sequence[str], side: int) -> None:
        self.paths, self.names, self.side = tuple(paths), tuple(names), side
        self._decoded: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def digest(self) -> str:
        """Of names and contents."""
        whole = hashlib.sha256()
        for name, path in zip(self.names, self.paths, strict=True):
            whole.update(f"{name}\0".encode())
            whole.update(hashlib.sha256(path.read_bytes()).digest())
        return whole.hexdigest()

    def take(self, indices: Sequence[int]) -> Inputs:
        """Pictures, (n, side, side, 3)."""
        return np.stack([self._picture(index) for index in indices])

    def _picture(self, index: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if index not in self._decoded:
            from PIL.Image import Resampling

            image = opaque(open_image(self.paths[index])).convert("RGB")
            self._decoded[index] = np.asarray(image.resize((self.side, self.side), Resampling.BOX))
        return self._decoded[index]


class Texts:
    """Texts in memory."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        """Of the texts."""
        whole = hashlib.sha256()
        for text in self.texts:
            whole.update(hashlib.sha256(text.encode()).digest())
        return whole.hexdigest()

    def take(self, indices: Sequence[int]) -> Inputs:
        """Texts by number."""
        return tuple(self.texts[index] for index in indices)
