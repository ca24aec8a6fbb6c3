"""Digests of files and of contents, and a seal that spares hashing what has not changed.

Two digests serve two ends. A file's sha256 shows tampering. A source's content digest covers names, dtypes,
shapes and values alone, so it is the same whole or sharded, and in every exact storage form: recipes use it.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from smatter.compose.arrays import Array, all_finite
from smatter.compose.execute import Progress, ranges
from smatter.errors import SmatterError, UnsafeFile
from smatter.library.headers import read_small_json
from smatter.library.writing import write_file
from smatter.records import TensorSpec

CHUNK = 4 << 20
SEAL = ".smatter-seal.json"
MAX_SEAL_BYTES = 16_000_000
RACY_NANOSECONDS = 2_000_000_000
"""A file changed this shortly before it was hashed could change again within its time stamp's resolution."""


class Tensors(Protocol):
    """Anything that gives blocks of named tensors."""

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """Dtype and shape of each, by name on disk."""
        ...

    def read(self, name: str, start: int, stop: int) -> Array:
        """Elements start..stop of a tensor, flat."""
        ...


def file_digest(path: Path, progress: Progress | None = None) -> str:
    """The sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            if progress:
                progress(len(chunk))
    return digest.hexdigest()


def content_digest(
    source: Tensors, names: Mapping[str, TensorSpec], what: str, progress: Progress | None = None
) -> str:
    """The sha256 of the named tensors, each by name, dtype, shape and values; refuses NaN and Inf on the way.

    Args:
        source: where the values come from.
        names: the tensors to cover; others are left out.
        what: the source, for messages.
        progress: told the bytes read.
    """
    leaves = []
    for name in sorted(names):
        if name not in source.tensors:
            raise UnsafeFile(f"{what} lacks {name!r}; remove the source and add it again")
        spec = source.tensors[name]
        digest = hashlib.sha256()
        for start, stop in ranges(spec.n_elements):
            block = source.read(name, start, stop)
            if not all_finite(block, spec.dtype):
                raise UnsafeFile(f"{what}: tensor {name!r} has NaN or Inf; it would spoil every mixture: leave it out")
            digest.update(block.data.cast("B"))
            if progress:
                progress(block.nbytes)
        leaves.append([name, spec.dtype, list(spec.shape), digest.hexdigest()])
    return hashlib.sha256(json.dumps(leaves, separators=(",", ":")).encode()).hexdigest()


class Seal:
    """Remembers, beside the manifest, which files had which sha256 at which size and times.

    A convenience of this machine, never the truth: the manifest's digests are. A file whose size, inode and
    times are as they were when it was last hashed is taken to be unchanged; any other is hashed again.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / SEAL
        self._known: dict[str, list[object]] = {}
        try:
            known = read_small_json(self._path, MAX_SEAL_BYTES)
        except (OSError, ValueError):
            return
        if isinstance(known, dict):
            self._known = known

    def digest(self, path: Path, progress: Callable[[int], None] | None = None) -> str:
        """The sha256 of a file, from memory where the file is untouched."""
        key, stamp = str(path.resolve()), _stamp(path)
        known = self._known.get(key)
        if isinstance(known, list) and known[:-1] == stamp and isinstance(known[-1], str):
            return known[-1]
        digest = file_digest(path, progress)
        if _stamp(path) == stamp and time.time_ns() - max(stamp[2:]) > RACY_NANOSECONDS:
            self._known[key] = [*stamp, digest]
            self._changed = True
        else:
            self._known.pop(key, None)
        return digest

    _changed = False

    def save(self) -> None:
        """Keep what was learnt; a folder that cannot be written to costs a hash next time, no more."""
        if not self._changed:
            return
        try:
            write_file(self._path, json.dumps(self._known).encode())
        except (OSError, SmatterError):
            return


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
