"""Where the examples of a domain lie: in a sheet of pictures, a file of texts, or in memory as either."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from smatter.backbones.images import MAX_IMAGE_BYTES, open_image
from smatter.errors import InvalidSuite, InvalidSupport
from smatter.files.reading import read_small_file
from smatter.tasks.rows import MAX_FILE_BYTES, raw_rows, text_and_label
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
        return hashlib.sha256(read_small_file(self.path, MAX_IMAGE_BYTES)).hexdigest()

    def take(self, indices: Sequence[int]) -> Inputs:
        """Pictures, (n, side, side, 3)."""
        pictures = self._pictures[np.asarray(indices, np.int64)]
        if pictures.ndim == 4:
            return pictures
        coloured = np.empty((*pictures.shape, 3), np.uint8)
        for channel in range(3):  # seven times faster than one assignment of all three
            coloured[..., channel] = pictures
        return coloured

    def __getstate__(self) -> dict[str, Any]:
        """Without the pictures: another process decodes them itself rather than being sent them."""
        return {name: value for name, value in self.__dict__.items() if name != "_pictures"}

    @cached_property
    def _pictures(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """All of them; greys without a channel, which takes a third of the memory."""
        try:
            image = open_image(self.path)
        except InvalidSupport as error:
            raise InvalidSuite(str(error)) from None
        grid = np.asarray(image)
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


class Pictures:
    """Pictures in memory.

    Args:
        pictures: (n, side, side, 3).
        files: digests of the files that they were read from, which do not depend on the decoder.
    """

    def __init__(self, pictures: np.ndarray[Any, np.dtype[np.uint8]], files: Sequence[bytes]) -> None:
        self.pictures, self.files = pictures, tuple(files)

    def __len__(self) -> int:
        return len(self.pictures)

    @cached_property
    def digest(self) -> str:
        """Of the size and the files."""
        return hashlib.sha256(b"".join([f"{self.pictures.shape[1:]}".encode(), *self.files])).hexdigest()

    def take(self, indices: Sequence[int]) -> Inputs:
        """Pictures, (n, side, side, 3)."""
        return self.pictures[np.asarray(indices, np.int64)]


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


class TextFile:
    """Texts in a JSONL file, in the order of their classes; read on first use.

    Args:
        path: the file; a row is an object with `text` and `label`, so that it is a table of its own too.
        labels: name of the class of each text.
    """

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        self.path, self.labels = path, tuple(labels)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def digest(self) -> str:
        """Of the file."""
        return hashlib.sha256(read_small_file(self.path, MAX_FILE_BYTES)).hexdigest()

    def take(self, indices: Sequence[int]) -> Inputs:
        """Texts by number."""
        return tuple(self._texts[index] for index in indices)

    def __getstate__(self) -> dict[str, Any]:
        """Without the texts: another process reads them itself rather than being sent them."""
        return {name: value for name, value in self.__dict__.items() if name != "_texts"}

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        try:
            some = islice(raw_rows(self.path), len(self.labels) + 1)  # a file that has more is refused for that
            rows = [text_and_label(self.path, row) for row in some]
        except InvalidSupport as error:
            raise InvalidSuite(str(error)) from None
        if tuple(label for _, label in rows) != self.labels:
            raise InvalidSuite(
                f"{self.path} does not hold the {len(self.labels)} texts that its suite lists: build the suite again"
            )
        return tuple(text for text, _ in rows)
