"""Where a demonstration is: known without torch, so that a place that is taken is told at once."""

import json
from pathlib import Path

from smatter.errors import SmatterError
from smatter.files.hashing import file_digest
from smatter.files.reading import read_small_json
from smatter.files.writing import write_file

RECORD = "demo.json"
"""What a demonstration has written: only while a folder holds just that may it be replaced."""


def keep_record(folder: Path) -> None:
    """Note what a demonstration has written, when all is there."""
    write_file(folder / RECORD, json.dumps(_contents(folder), indent=1).encode())


def is_demo(folder: Path) -> bool:
    """Whether a folder holds an earlier demonstration as it was written, and nothing else."""
    if not (folder / RECORD).is_file():
        return False
    try:
        told = read_small_json(folder / RECORD)
        return bool(told == _contents(folder))
    except SmatterError:  # what cannot be read is not what was written
        return False


def _contents(folder: Path) -> dict[str, str]:
    """Digest of each file; folders and links by what they are."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name != RECORD:
            kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
            found[name] = file_digest(path) if kind == "file" else kind
    return found
