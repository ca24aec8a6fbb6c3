"""One call from wherever examples are to a suite."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from smatter.errors import InvalidSuite, NotFound, SmatterError
from smatter.records import Progress, silent
from smatter.tasks.assemble import Omissions, hold_out
from smatter.tasks.folders import find_files, read_folders
from smatter.tasks.lists import TaskList, read_list
from smatter.tasks.packed import is_packed, read_packed
from smatter.tasks.suite import Suite
from smatter.tasks.tables import read_table

SHIPPED = Path(__file__).parents[1] / "shipped"
"""Suites that come with the package, a folder each."""


LISTS = "lists"
"""Folder of a shipped suite with its frozen lists of tasks."""


def shipped_suites() -> tuple[str, ...]:
    """Names of the suites that come with the package."""
    return tuple(sorted(path.name for path in SHIPPED.glob("*") if is_packed(path)))


def open_suite(
    where: str | Path,
    ood: Sequence[str] = (),
    side: int | None = None,
    name: str | None = None,
    progress: Progress = silent,
) -> Suite:
    """Open a suite; warn of files, classes and rows that had to be left out.

    Args:
        where: the name of a suite that is shipped (`./signs` is a folder of that name); a folder that
            `smatter suite build` wrote; a folder tree `domain/class/*.png`, or `class/*.png` for a single domain; or a
            CSV or JSONL file with the columns `text`, `label` and, for several domains, `domain`.
        ood: names of the domains to hold out, instead of those that the suite itself holds out.
        side: for a folder tree, pixels to which its pictures are stretched; by default the median of their longer
            sides, at most 224.
        name: for a tree or a table, what to call the suite; its own name by default.
        progress: called with 1 for every image file that is read.
    """
    path = SHIPPED / where if isinstance(where, str) and where in shipped_suites() else Path(where)
    if not path.exists():
        known = ", ".join(shipped_suites()) or "none"
        raise NotFound(f"{path} does not exist; give a folder, a .csv or .jsonl file, or a shipped suite ({known})")
    omitted = Omissions()
    if path.is_dir() and is_packed(path):
        if side is not None or name is not None:
            raise InvalidSuite(f"{path} is built already; its size and name cannot be chosen any more")
        suite = read_packed(path)
    else:
        try:
            if path.is_dir():
                suite = read_folders(path, omitted, name, side, progress)
            else:
                suite = read_table(path, omitted, name)
        except SmatterError:
            omitted.warn()  # what was left out may be why too little remains
            raise
        omitted.warn()
    return hold_out(suite, ood) if ood else suite


def open_list(suite: str, name: str, final: bool = False) -> TaskList:
    """Open a frozen list of tasks that is shipped with a suite; see `read_list`."""
    path = SHIPPED / suite / LISTS / f"{name}.json"
    if not path.exists():
        known = sorted(each.stem for each in path.parent.glob("*.json"))
        near = ", ".join(get_close_matches(name, known, n=5, cutoff=0)) or "none"
        raise NotFound(f"no list {name!r} is among the {len(known)} shipped with {suite!r}; the nearest: {near}")
    return read_list(path, _read_once(SHIPPED / suite), final)


@cache
def _read_once(folder: Path) -> Suite:
    """A shipped suite, whose sheets all of its lists then share."""
    return read_packed(folder)


def n_files(where: str | Path) -> int:
    """How many image files `open_suite` would read, for a bar of progress."""
    if where in shipped_suites() or not Path(where).is_dir() or is_packed(Path(where)):
        return 0
    return sum(len(each) for classes in find_files(Path(where), Omissions()).values() for each in classes.values())
