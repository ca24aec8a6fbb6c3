"""Digests of files, which show tampering, and a seal that spares hashing what has not changed."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from smatter.errors import SmatterError
from smatter.files.reading import MappedFile, Stamp, read_small_json, stamp_of
from smatter.files.writing import write_file
from smatter.records import Progress, silent

CHUNK = 4 << 20
SEAL = ".smatter-seal.json"
MAX_SEAL_BYTES = 16_000_000
RACY_NANOSECONDS = 2_000_000_000
"""A file changed this shortly before it was hashed could change again within its time stamp's resolution."""


def file_digest(path: Path, progress: Progress = silent) -> str:
    """The sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            progress(len(chunk))
    return digest.hexdigest()


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

    def digest(self, file: Path | MappedFile, progress: Progress = silent) -> str:
        """The sha256 of a file, from memory where it is untouched; of what is mapped, where it is mapped."""
        path = file if isinstance(file, Path) else file.path
        key, stamped = str(path.resolve()), _Stamped.of(file)
        digest = self._recall(key, [stamped])
        if digest is None:
            digest = file_digest(file, progress) if isinstance(file, Path) else file.digest(progress)
            self._note(key, [stamped], digest)
        return digest

    def note(self, key: str, files: Sequence[MappedFile], digest: str) -> None:
        """Remember a digest of some files, unless they were touched meanwhile, or could be without a trace."""
        self._note(key, [_Stamped.of(file) for file in files], digest)

    def recall(self, key: str, files: Sequence[MappedFile]) -> str | None:
        """A digest that was noted, if the files have the same stamps still: whoever forged it cannot know these."""
        return self._recall(key, [_Stamped.of(file) for file in files])

    def _note(self, key: str, files: Sequence["_Stamped"], digest: str) -> None:
        is_settled = time.time_ns() - max(max(file.stamp[2:]) for file in files) > RACY_NANOSECONDS
        if is_settled and all(stamp_of(file.path.stat()) == file.stamp for file in files):
            self._known[key] = [*(number for file in files for number in file.stamp), digest]
            self._changed = True
        else:
            self._known.pop(key, None)

    def _recall(self, key: str, files: Sequence["_Stamped"]) -> str | None:
        known = self._known.get(key)
        if not isinstance(known, list) or known[:-1] != [number for file in files for number in file.stamp]:
            return None
        return known[-1] if isinstance(known[-1], str) else None

    _changed = False

    def save(self) -> None:
        """Keep what was learnt; a folder that cannot be written to costs a hash next time, no more."""
        if not self._changed:
            return
        try:
            write_file(self._path, json.dumps(self._known).encode())
        except (OSError, SmatterError):
            return


@dataclass(frozen=True)
class _Stamped:
    path: Path
    stamp: Stamp

    @classmethod
    def of(cls, file: Path | MappedFile) -> "_Stamped":
        return cls(file, stamp_of(file.stat())) if isinstance(file, Path) else cls(file.path, file.stamp)
