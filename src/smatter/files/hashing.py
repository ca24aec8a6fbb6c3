"""Digests of files, which show tampering, and a seal that spares hashing what has not changed."""

import hashlib
import json
import time
from pathlib import Path

from smatter.errors import SmatterError
from smatter.files.reading import read_small_json
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

    def digest(self, path: Path, progress: Progress = silent) -> str:
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
