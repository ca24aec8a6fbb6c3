"""What every command shares: JSON or text, tables, progress."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from smatter.errors import AlreadyExists, NotFound

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def show(data: dict[str, Any], as_json: bool, text: Callable[[], None]) -> None:
    """Print the result for a machine, or let `text` print it for a person."""
    if as_json:
        print(json.dumps(data))
    else:
        text()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    right = [all(_is_number(row[index]) for row in rows) for index in range(len(columns))]
    for row in (columns, *rows):
        cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)]
        print("  ".join(cells).rstrip())


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell[0].isdigit() or cell[0] in "+-."


def check_new_file(path: Path, replace: bool, is_ours: Callable[[], bool], kind: str) -> None:
    """Refuse a place for a new file that is taken, unless by one of its kind that may be replaced."""
    if path.exists() or path.is_symlink():
        if not is_ours():
            raise AlreadyExists(f"{path} exists and is no {kind}; choose another name")
        if not replace:
            raise AlreadyExists(f"{path} exists already; choose another name, or say --replace")
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} does not exist; create it first")


def human_size(n_bytes: int) -> str:
    """A size for people: 1.5 kB, 440 MB.

    >>> human_size(1536), human_size(440_000_000)
    ('1.5 kB', '440.0 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes / 1e3:.1f} kB"


class Advance(Protocol):
    """Moves a bar by some bytes or steps, and may change the words beside it."""

    def __call__(self, amount: int, words: str = "", /) -> None:
        """Move on."""


@contextmanager
def progress_bar(label: str, total: int, in_bytes: bool = True) -> Iterator[Advance]:
    """A bar over bytes or steps on standard error, when that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _, __="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    words = TextColumn("{task.fields[words]}")
    columns = TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn(), words
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, words="")

        def advance(amount: int, words: str = "", /) -> None:
            progress.update(task, advance=amount, words=words)

        yield advance
