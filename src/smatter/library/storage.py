"""Where a library keeps what it writes: each stored source in a folder named by the digest of its files.

A folder is written once and never written to again. It is deleted only if its files still give its name, so that
nothing of anybody else's is ever lost, and only if no entry of the manifest names it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from smatter.errors import SmatterError, UnsafeFile
from smatter.files.hashing import file_digest
from smatter.files.reading import safe_path
from smatter.files.writing import Pending, folder_named_later

STORED_FOLDER = "sources"


def folder_digest(files: Mapping[str, str]) -> str:
    """The name of a folder, from the sha256 of each of its files."""
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


@contextmanager
def stored_folder(library: Path) -> Iterator[Pending]:
    """Fill a folder of the library, whose name is to be its `folder_digest`; one that is there already is kept."""
    parent = own_folder(library)
    try:
        with folder_named_later(parent) as pending:
            yield pending
            target = parent / str(pending.name)
            if is_ours(target):
                pending.name = None
            elif target.exists() or target.is_symlink():
                raise UnsafeFile(f"{target} holds other files than its name says; move it away, and add again")
    finally:
        with suppress(OSError):
            parent.rmdir()  # refuses while there is something in it


def own_folder(library: Path) -> Path:
    """The library's folder of stored sources; made if need be, and refused if it leads elsewhere."""
    parent = library / STORED_FOLDER
    if parent.is_symlink():
        raise UnsafeFile(f"{parent} is a link; make it a folder of the library's own")
    parent.mkdir(exist_ok=True)
    return parent


def is_ours(folder: Path) -> bool:
    """Whether a folder is one that we wrote, and nobody has changed."""
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return False
    try:
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]
        return folder_digest({name: file_digest(safe_path(folder, name)) for name in names}) == folder.name
    except (OSError, SmatterError):
        return False


def discard(folder: Path) -> None:
    """Delete a stored source, if it is ours."""
    if is_ours(folder):
        for path in sorted(folder.rglob("*"), reverse=True):  # what a folder holds comes before the folder
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
        with suppress(OSError):
            folder.parent.rmdir()  # refuses while there are others
