"""Inputs without labels, one after another: from a folder of pictures, a file of texts, or a stream of lines."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from smatter.errors import InvalidSupport, NotFound
from smatter.files.reading import regular_file_size
from smatter.records import printable
from smatter.tasks.given import Kind
from smatter.tasks.rows import LONGEST_CELL, MAX_CHARACTERS, READERS, checked_text, loose_rows
from smatter.tasks.support import SUFFIXES

MAX_QUERIES = 20_000
"""Inputs that may help each other: their features are in memory together."""

LINES = ".txt"
LONGEST_LINE = 4 * MAX_CHARACTERS
"""Bytes: a character of UTF-8 has up to four."""
SHORT, LONGEST_ERROR = 100, 1000


@dataclass(frozen=True)
class Input:
    """Something to predict.

    Args:
        name: what it is called where predictions are printed: the path of a picture, or the text itself.
        value: the path or the text; None where it cannot be read.
        error: why it cannot, in one line.
    """

    name: str
    value: Path | str | None
    error: str = ""


def input_kind(path: Path) -> Kind:
    """What a folder or a file holds; other files are refused."""
    if not path.exists():
        raise NotFound(f"{path} does not exist; give pictures or texts, or - for lines of standard input")
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        return "images"
    if path.suffix.lower() in (*READERS, LINES):
        return "texts"
    known = ", ".join((*SUFFIXES, *READERS))
    raise InvalidSupport(f"{path} is neither a folder nor a {known} or {LINES} file; convert it")


def count_inputs(path: Path) -> int:
    """How many there are; at least one, else it is refused. Texts are read for it, pictures are not."""
    n_inputs = sum(1 for _ in read_inputs(path))
    if not n_inputs:
        told = f"pictures ({', '.join(SUFFIXES)})" if path.is_dir() else "texts"
        raise InvalidSupport(f"{path} holds no {told}; add some")
    return n_inputs


def read_inputs(path: Path) -> Iterator[Input]:
    """Read inputs in order, those that cannot be read among them.

    Args:
        path: a folder, whose pictures are found at any depth and sorted (hidden ones, and folders that are links,
            are left out); a picture; a .csv or .jsonl file with a column or key `text`; or a .txt file of lines.
    """
    if input_kind(path) == "images":
        for picture in _pictures(path) if path.is_dir() else (path,):
            yield _picture(picture, os.fsencode(picture).decode(errors="backslashreplace"))
    elif path.suffix.lower() == LINES:
        regular_file_size(path)
        with path.open("rb") as file:
            yield from read_lines(file, "texts", f"{path}, ")
    else:
        for row in loose_rows(path, ("text",), LONGEST_CELL):
            yield _unreadable("", row.mistake) if row.mistake else _text(f"{path}, {row.where}", row.text)


def read_lines(file: BinaryIO, kind: Kind, prefix: str = "") -> Iterator[Input]:
    """Read an input per line, and no line before it is asked for.

    Args:
        file: the lines, in UTF-8; it may have no end.
        kind: whether a line is a text or the path of a picture.
        prefix: goes before the number of a line in messages.
    """
    return (_line(f"{prefix}line {number}", line, kind) for number, line in enumerate(_lines(file), 1))


def one_line(error: Exception | str) -> str:
    """What an error says in one line of printable characters."""
    return printable(" ".join(str(error).split())[:LONGEST_ERROR])


def _pictures(folder: Path) -> Iterator[Path]:
    """Paths of the pictures below a folder, sorted; only folders on the way to the next one are in memory."""
    waiting = _entries(folder)
    while waiting:
        entry = waiting.pop()
        if entry.is_dir(follow_symlinks=False):
            try:
                waiting += _entries(Path(entry.path))
            except OSError:  # a folder that may not be looked into is told like a picture that may not
                yield Path(entry.path)
        elif (path := Path(entry.path)).suffix.lower() in SUFFIXES:
            yield path


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder and not hidden, the first at the end."""
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    return sorted(visible, key=lambda entry: entry.name, reverse=True)


def _line(where: str, line: bytes, kind: Kind) -> Input:
    name = _shown(line.decode(errors="backslashreplace"))
    if len(line) > LONGEST_LINE:
        return _unreadable(name, f"{where}: more than {MAX_CHARACTERS} characters; shorten it")
    if kind == "images":
        return _picture(Path(os.fsdecode(line)), name) if line else _unreadable("", f"{where}: no path; fill it in")
    try:
        return _text(where, line.decode())
    except UnicodeDecodeError:
        return _unreadable(name, f"{where}: not in UTF-8; save the text again")


def _picture(path: Path, name: str) -> Input:
    """A picture, if that is a file; its content is looked at by whoever decodes it."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)  # to open a pipe would be to wait for it
    except FileNotFoundError:
        return _unreadable(name, f"{name} does not exist; check the path")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return _unreadable(name, f"{name[:SHORT]} cannot be read ({reason}); check the path")
    return Input(name, path) if is_file else _unreadable(name, f"{name} is a folder, pipe or device; give a file")


def _text(where: str, cell: Any) -> Input:
    try:
        return Input(cell, checked_text(where, cell))
    except InvalidSupport as error:
        return _unreadable(_shown(cell) if isinstance(cell, str) else "", error)


def _unreadable(name: str, error: Exception | str) -> Input:
    return Input(name, None, one_line(error))


def _shown(text: str) -> str:
    """A text that any file can hold; of one that is too long only the beginning."""
    shown = text if len(text) <= MAX_CHARACTERS else f"{text[:SHORT]}..."
    return shown.encode(errors="backslashreplace").decode()


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines without their ends; of one that is longer than `LONGEST_LINE`, a little more than that."""
    mark = b"\xef\xbb\xbf"  # some programs begin a file of UTF-8 with it
    while part := file.readline(LONGEST_LINE + 6):
        line = part
        while part and not part.endswith(b"\n"):
            part = file.readline(LONGEST_LINE)
        yield line.removeprefix(mark).removesuffix(b"\n").removesuffix(b"\r")
        mark = b""
