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
    """Records of a run, on disk when they are flushed.

    Args:
        path: the file; none is written without it.
        done: steps that are not done again; records of later ones are forgotten.
    """

    def __init__(self, path: Path | None, done: int) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        if path is not None and done and path.exists():
            try:
                lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
                self.records = [line for line in lines if line["step"] <= done]
            except (ValueError, TypeError, LookupError, RecursionError):
                raise UnsafeFile(f"{path} is not the log of a training: delete it, and its records are lost") from None

    def add(self, record: DataclassInstance) -> None:
        """Note a record."""
        self.records.append({"what": type(record).__name__, **asdict(record)})

    def flush(self) -> None:
        """Write all of them, in one step."""
        if self.path is not None:
            write_file(self.path, *(json.dumps(record).encode() + b"\n" for record in self.records))
