"""Who writes to a library's folder: one at a time, and how it names what it is given."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from smatter.errors import NotFound
from smatter.files.writing import locked_folder


def path_in(library: Path, checkpoint: Path) -> str:
    """Relative where the checkpoint lies inside the library, so that both can move together; else absolute."""
    absolute = checkpoint.resolve()
    if absolute.is_relative_to(library.resolve()):
        absolute = absolute.relative_to(library.resolve())
    try:
        str(absolute).encode()
    except UnicodeEncodeError:
        raise NotFound(f"{checkpoint} has a name that is not UTF-8, as library.json needs; rename it") from None
    return str(absolute)


def name_from(folder: Path) -> str:
    """What a checkpoint is called after its folder."""
    resolved = folder.resolve()
    # In the Hugging Face cache the folder is a revision; its grandparent is models--owner--name.
    label = resolved.parent.parent.name if resolved.parent.name == "snapshots" else resolved.name
    cleaned = re.sub(r"[^A-Za-z0-9._+-]", "-", label.removeprefix("models--")).lstrip("._+-")[:100]
    return cleaned or "source"


@contextmanager
def kept_if_filled(folder: Path) -> Iterator[None]:
    """Make a folder if need be; it is gone again if nothing was put into it."""
    folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the library for one writer; a second one waits."""
    if not folder.is_dir():
        place = shlex.quote(str(folder))
        raise NotFound(f"{folder} is not a folder; make a library with `smatter library init {place} BASE`")
    with locked_folder(folder):
        yield
