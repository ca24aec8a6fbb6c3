"""A library out of checkpoints that a tool has trained."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from smatter.files.writing import new_folder
from smatter.library.edit import add_source, init_library


def write_library(work: Path, names: Sequence[str], out: Path) -> None:
    """A library with copies of the checkpoints in a folder; the first is the base. An older library is replaced."""
    with new_folder(out, replace=True) as folder:
        for name in names:
            shutil.copytree(work / name, folder / name)
        init_library(folder, folder / names[0])
        for name in names[1:]:
            add_source(folder, folder / name)
