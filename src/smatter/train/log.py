"""The log of a training run: a line of JSON for each step and each validation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smatter.errors import UnsafeFile
from smatter.files.writing import write_file

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Log:
    """Records of a run, on disk as soon as they are added.

    Args:
        path: the file; none is written without it.
        done: steps that are not done again; records of later ones are forgotten.
    """

    def __init__(self, path: Path | None, done: int) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        if path is None:
            return
        if done and path.exists():
            try:
                text = path.read_text(encoding="utf-8")
                whole = text.rpartition("\n")[0]  # a killed run may leave half a line
                lines = (json.loads(line) for line in (whole or text).splitlines())
                self.records = [line for line in lines if line["step"] <= done]
            except (ValueError, TypeError, LookupError, RecursionError):
                raise UnsafeFile(f"{path} is not the log of a training: delete it, and its records are lost") from None
        write_file(path, *(_line(record) for record in self.records))

    def add(self, record: DataclassInstance) -> None:
        """Note a record."""
        self.records.append({"what": type(record).__name__, **asdict(record)})
        if self.path is not None:
            with self.path.open("ab") as file:
                file.write(_line(self.records[-1]))

    def last(self, kind: type) -> dict[str, Any]:
        """The last record of a kind; an empty one where there is none."""
        return next((each for each in reversed(self.records) if each["what"] == kind.__name__), {})


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"
