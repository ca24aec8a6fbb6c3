"""Rows of a CSV or JSONL file: a text and, where they are needed, a label and a domain."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

from smatter.errors import InvalidSupport

MAX_CHARACTERS = 100_000
MAX_LABEL_CHARACTERS = 1_000
MAX_FILE_BYTES = 256_000_000
LONGEST_CELL = 100 * MAX_CHARACTERS
"""Beyond it a cell is no text that is too long, but a quotation mark that was never closed."""
LONGEST_ROW = 10_000_000
"""Characters of a row of CSV with all of its cells, each of which takes 50 bytes of memory beside its text."""
LONGEST_OBJECT = 4_000_000
"""Bytes of a line of JSONL: as values in memory it may take twenty times as much."""
LABELLED = ("text", "label")
_MISSING = frozenset({"nan", "NaN"})
"""How table programs write a cell that had no value."""


@dataclass(frozen=True)
class RawRow:
    """A row as it stands in its file.

    Args:
        where: its place, for messages.
        cells: its values by column.
        mistake: why it has none, where it is no row.
    """

    where: str
    cells: dict[str, Any]
    mistake: str = ""

    @property
    def text(self) -> Any:
        """What stands in its column `text`; None where a table program wrote that there is nothing."""
        cell = self.cells.get("text")
        return None if isinstance(cell, str) and cell in _MISSING else cell


def raw_rows(path: Path) -> Iterator[RawRow]:
    """The rows of a file with the columns, or keys, `text`, `label` and perhaps `domain`; others are ignored."""
    return map(_sound, loose_rows(path, LABELLED))


def loose_rows(path: Path, needed: tuple[str, ...], longest: int | None = None) -> Iterator[RawRow]:
    """The rows of a file, with their mistakes; a file that cannot be cut into rows is refused.

    Args:
        path: a .csv or .jsonl file.
        needed: columns that it must have once; others are ignored.
        longest: characters of a cell of CSV; by default what the csv module allows.
    """
    if path.suffix.lower() not in READERS:
        raise InvalidSupport(f"{path} is neither a folder nor a .csv or .jsonl file; convert it")
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidSupport(f"{path} is no regular file of up to {MAX_FILE_BYTES // 1_000_000} MB; give fewer rows")
    return READERS[path.suffix.lower()](path, needed, longest)


def text_and_label(path: Path, row: RawRow) -> tuple[str, str]:
    """Text and label of a row; one that is missing or too long is refused."""
    where = f"{path}, {row.where}"
    return checked_text(where, row.text), checked_label(where, row.cells.get("label"))


def checked_label(where: str, cell: Any) -> str:
    """A label; one that is missing or too long is refused.

    Args:
        where: its place, for messages.
        cell: what stands there.
    """
    label = name_in(cell)
    if not label:
        raise InvalidSupport(f"{where}: no label; fill it in or delete the row")
    if len(label) > MAX_LABEL_CHARACTERS:
        raise InvalidSupport(f"{where}: a label of {len(label)} characters; are text and label exchanged?")
    _check_unicode(where, label)
    return label


def checked_text(where: str, text: Any) -> str:
    """A text; one that is missing or too long is refused.

    Args:
        where: its place, for messages.
        text: what stands there.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidSupport(f"{where}: no text; fill it in or delete the row")
    if len(text) > MAX_CHARACTERS:
        raise InvalidSupport(f"{where}: {len(text)} characters, above {MAX_CHARACTERS}; shorten the text")
    _check_unicode(where, text)
    return text


def name_in(cell: Any) -> str:
    """A label or domain as a name; empty if it is none."""
    name = cell.strip() if isinstance(cell, str) else str(cell) if type(cell) is int else ""
    return "" if name in _MISSING else name


def _check_unicode(where: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSupport(f"{where}: half a character, which no file can hold; save the text again") from None


def _sound(row: RawRow) -> RawRow:
    if row.mistake:
        raise InvalidSupport(row.mistake)
    return row


def _csv(path: Path, needed: tuple[str, ...], longest: int | None) -> Iterator[RawRow]:
    # Where bad rows are let through, bytes that are not UTF-8 become halves of characters, which a row is told for.
    with path.open(encoding="utf-8-sig", newline="", errors="surrogateescape" if longest else "strict") as file:
        lines = _Lines(file)
        reader = csv.DictReader(lines, strict=True)
        try:
            columns = reader.fieldnames
            if not columns:
                raise InvalidSupport(f"{path} is empty; write a line `{','.join(needed)}` and a row per example")
            for column in needed:
                if columns.count(column) != 1:
                    told = " and ".join(needed)
                    raise InvalidSupport(f"{path} needs one column {column!r}; its first line must name {told}")
            if needed == LABELLED and columns.count("domain") > 1:
                raise InvalidSupport(f"{path} has two columns 'domain'; delete one")
            lines.n_characters = 0
            while row := _next(reader, longest):
                lines.n_characters = 0
                yield RawRow(f"line {reader.line_num}", row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidSupport(f"{path} is not CSV in UTF-8 ({str(error)[:200]}); save it as such") from None


class _Lines:
    """Lines of a file, as long as those of one row are not too long together; whoever has the row counts anew."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.n_characters = file, 0

    def __iter__(self) -> Iterator[str]:
        while line := self.file.readline(LONGEST_ROW + 1):
            self.n_characters += len(line)
            if self.n_characters > LONGEST_ROW:
                raise csv.Error(f"a row of more than {LONGEST_ROW} characters: is a quotation mark never closed?")
            yield line


def _next(reader: csv.DictReader[str], longest: int | None) -> dict[str | Any, Any] | None:
    """The next row, if any. The limit on cells is the csv module's own, for all readers: it is put back at once."""
    usual = csv.field_size_limit()
    csv.field_size_limit(longest or usual)
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(usual)


def _jsonl(path: Path, needed: tuple[str, ...], _longest: int | None) -> Iterator[RawRow]:
    shape = ", ".join(f'"{name}": ...' for name in needed)

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_OBJECT + 1), b""), 1):
            if len(line) > LONGEST_OBJECT:
                raise InvalidSupport(f"{path}, line {number}: more than {LONGEST_OBJECT} bytes; shorten the object")
            if not line.strip():
                continue
            where = f"line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig"), parse_constant=refuse)
            except (ValueError, RecursionError) as error:
                reason = " ".join(str(error).split())[:200]
                yield RawRow(where, {}, f"{path}, {where}: not valid JSON ({reason}); write one object a line")
                continue
            if isinstance(row, dict) and "text" in row:
                yield RawRow(where, row)
            else:
                yield RawRow(where, {}, f"{path}, {where}: not an object {{{shape}}}; write it so")


READERS = {".csv": _csv, ".jsonl": _jsonl}
