"""Rows of a CSV or JSONL file: a text, a label and, where there are several, a domain."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from smatter.errors import InvalidSupport

MAX_CHARACTERS = 100_000
MAX_LABEL_CHARACTERS = 1_000
MAX_FILE_BYTES = 256_000_000
_MISSING = frozenset({"nan", "NaN"})
"""How table programs write a cell that had no value."""


@dataclass(frozen=True)
class RawRow:
    """A row as it stands in its file.

    Args:
        where: its place, for messages.
        cells: its values by column.
    """

    where: str
    cells: dict[str, Any]


def raw_rows(path: Path) -> Iterator[RawRow]:
    """The rows of a file with the columns, or keys, `text`, `label` and perhaps `domain`; others are ignored."""
    if path.suffix.lower() not in READERS:
        raise InvalidSupport(f"{path} is neither a folder nor a .csv or .jsonl file; convert it")
    if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
        raise InvalidSupport(f"{path} is no regular file of up to {MAX_FILE_BYTES // 1_000_000} MB; give fewer rows")
    return READERS[path.suffix.lower()](path)


def text_and_label(path: Path, row: RawRow) -> tuple[str, str]:
    """Text and label of a row; one that is missing or too long is refused."""
    where, text, label = f"{path}, {row.where}", row.cells.get("text"), name_in(row.cells.get("label"))
    if not isinstance(text, str) or not text.strip() or text in _MISSING:
        raise InvalidSupport(f"{where}: no text; fill it in or delete the row")
    if len(text) > MAX_CHARACTERS:
        raise InvalidSupport(f"{where}: {len(text)} characters, above {MAX_CHARACTERS}; shorten the text")
    if not label:
        raise InvalidSupport(f"{where}: no label; fill it in or delete the row")
    if len(label) > MAX_LABEL_CHARACTERS:
        raise InvalidSupport(f"{where}: a label of {len(label)} characters; are text and label exchanged?")
    if not _is_unicode(text) or not _is_unicode(label):
        raise InvalidSupport(f"{where}: half a character, which no file can hold; save the text again")
    return text, label


def name_in(cell: Any) -> str:
    """A label or domain as a name; empty if it is none."""
    name = cell.strip() if isinstance(cell, str) else str(cell) if type(cell) is int else ""
    return "" if name in _MISSING else name


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _csv(path: Path) -> Iterator[RawRow]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            columns = reader.fieldnames
            if not columns:
                raise InvalidSupport(f"{path} is empty; write a line `text,label` and a row per example")
            for column in ("text", "label"):
                if columns.count(column) != 1:
                    raise InvalidSupport(f"{path} needs one column {column!r}; its first line must name text and label")
            if columns.count("domain") > 1:
                raise InvalidSupport(f"{path} has two columns 'domain'; delete one")
            for row in reader:
                yield RawRow(f"line {reader.line_num}", row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidSupport(f"{path} is not CSV in UTF-8 ({str(error)[:200]}); save it as such") from None


def _jsonl(path: Path) -> Iterator[RawRow]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"line {number}"
            try:
                row = json.loads(line.decode("utf-8-sig"), parse_constant=refuse)
            except (ValueError, RecursionError) as error:
                reason = " ".join(str(error).split())[:200]
                raise InvalidSupport(f"{path}, {where}: not valid JSON ({reason}); write one object a line") from None
            if not isinstance(row, dict) or "text" not in row:
                raise InvalidSupport(f'{path}, {where}: not an object {{"text": ..., "label": ...}}; write it so')
            yield RawRow(where, row)


READERS = {".csv": _csv, ".jsonl": _jsonl}
