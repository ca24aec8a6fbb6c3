"""What every command shares: JSON or text, tables, progress."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from smatter.errors import AlreadyExists, InvalidSettings, NotFound
from smatter.records import Progress, printable, silent

NUMERIC = ("", *"+-.0123456789")
"""How cells of a column of numbers begin."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def show(data: dict[str, Any], as_json: bool, text: Callable[[], None]) -> None:
    """Print the result for a machine, or let `text` print it for a person."""
    if as_json:
        print(json.dumps(data))
    else:
        text()


def shell(*words: object) -> str:
    """Words as a shell takes them: names with blanks are quoted.

    >>> shell("smatter adapt", "my lib")
    "'smatter adapt' 'my lib'"
    """
    return shlex.join(map(str, words))


def say(*lines: str) -> None:
    """Print lines for a person; what a name has in it that would move a cursor is shown, not done."""
    for line in lines:
        print(printable(line))


def warn(line: str) -> None:
    """Tell a person something that is no part of the result."""
    print(f"smatter: {printable(' '.join(line.split()))}", file=sys.stderr)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table, numbers to the right."""
    columns, *rows = [[printable(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    right = [all(row[index][:1] in NUMERIC for row in rows) for index in range(len(columns))]
    for row in (columns, *rows):
        cells = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)]
        print("  ".join(cells).rstrip())


def check_new_file(path: Path, replace: bool, is_ours: Callable[[], bool], kind: str) -> None:
    """Refuse a place for a new file that is taken, unless by one of its kind that may be replaced."""
    if path.exists() or path.is_symlink():
        if not is_ours():
            raise AlreadyExists(f"{path} exists and is no {kind}; choose another name")
        if not replace:
            raise AlreadyExists(f"{path} exists already; choose another name, or say --replace")
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} does not exist; create it first")


def check_page(page: Path, beside: Path | None, kind: str, replace: bool) -> None:
    """Refuse a place for an HTML page that is taken, or that the other file of the same command will take."""
    from smatter.report.page import is_page

    if beside is not None and page.resolve() == beside.resolve():
        raise InvalidSettings(f"{kind} and page cannot both be {page}: give two names")
    check_new_file(page, replace, lambda: is_page(page), "page of Smatter's")


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Words of an option that may be repeated, NAME=VALUE each, as a mapping."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip() or name.strip() in found:
            raise InvalidSettings(f"{option} {text[:80]} is not one NAME=VALUE: write NAME=VALUE, each name once")
        found[name.strip()] = value.strip()
    return found


def human_size(n_bytes: int) -> str:
    """A size for people: 1.5 kB, 440 MB.

    >>> human_size(1536), human_size(440_000_000)
    ('1.5 kB', '440.0 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes / 1e3:.1f} kB"


class Lines:
    """Progress as plain lines on standard error, one every few seconds, for logs.

    Args:
        label: what is done.
        total: how many steps there are.
        clock: tells seconds.
        every: seconds between two lines.
    """

    def __init__(
        self, label: str, total: float, clock: Callable[[], float] = time.monotonic, every: float = 5.0
    ) -> None:
        self.label, self.total, self.clock, self.every = label, total, clock, every
        self.done = self.fresh = 0.0
        self.begin = self.told = clock()

    def __call__(self, amount: float, words: str = "", /) -> None:
        """Note the amount; the first one may be what an earlier run has done, and counts for no speed."""
        now, self.done = self.clock(), self.done + amount
        if self.done == amount:
            self.begin = now
        else:
            self.fresh += amount
        if now - self.told < self.every:
            return
        self.told, left = now, ""
        if self.fresh:
            left = f", {(self.total - self.done) * (now - self.begin) / self.fresh:.0f} s left"
        line = f"{self.label} {self.done:g} of {self.total:g}{left}{': ' if words else ''}{printable(words)}"
        print(line, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(
    label: str, total: float, unit: Literal["bytes", "steps", "share"] = "bytes", *, is_long: bool = False
) -> Iterator[Progress]:
    """A bar on standard error when that is a terminal; else, of what takes long, a line every few seconds."""
    if not sys.stderr.isatty():
        yield Lines(label, total) if is_long else silent
        return
    from rich import progress as bars
    from rich.console import Console

    counts = {"bytes": bars.DownloadColumn, "steps": bars.MofNCompleteColumn, "share": bars.TaskProgressColumn}
    words = bars.TextColumn("{task.fields[words]}", markup=False)
    columns = bars.TextColumn("{task.description}"), bars.BarColumn(), counts[unit](), bars.TimeRemainingColumn(), words
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, words="")

        def advance(amount: float, words: str = "", /) -> None:
            bar.update(task, advance=amount, words=printable(words))

        yield advance
