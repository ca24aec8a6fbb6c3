"""Sixty mistakes of a first hour, as words of a command, and a place where each can be made.

Places: `library` (a base, `latin` and `emoji` in it), `router`, `tasks/thai` with `support` and `query`,
`t.safetensors`, a recipe, `tree`, a suite too small to train on, `full`, somebody's folder, `notes.txt`, somebody's
file.
"""

import shutil
from pathlib import Path

SUPPORT = "tasks/thai/support"

MISTAKES = (
    "adapt",
    "adapt library",
    "adapt nowhere tasks/thai/support",
    "adapt library nowhere",
    "adapt library tasks/thai",
    "adapt library tasks",
    "adapt tasks/thai/support library",
    "adapt library/base tasks/thai/support",
    "adapt full tasks/thai/support",
    "adapt library notes.txt",
    "adapt library full",
    "adapt library tasks/thai/support --router nowhere",
    "adapt library tasks/thai/support --router tree",
    "adapt library tasks/thai/support --router library",
    "adapt library tasks/thai/support --method routr",
    "adapt library tasks/thai/support --method router",
    "adapt library tasks/thai/support --method solver --router router",
    "adapt library tasks/thai/support --methods solver",
    "adapt library tasks/thai/support --set steps",
    "adapt library tasks/thai/support --set temperatur=1",
    "adapt library tasks/thai/support --set temperature=cold",
    "adapt library tasks/thai/support --weights nobody",
    "adapt library tasks/thai/support --weights latin=.5,emoji=.4",
    "adapt library tasks/thai/support --weights latin:.5",
    "adapt library tasks/thai/support --weights latin --method evidence",
    "adapt library tasks/thai/support --no-experts",
    "adapt library tasks/thai/support --passes 3",
    "adapt library tasks/thai/support --mix predictions --passes 99",
    "adapt library tasks/thai/support --mix predictions --branch nowhere",
    "adapt library tasks/thai/support --head tree",
    "adapt library tasks/thai/support -o t.safetensors",
    "adapt library tasks/thai/support -o notes.txt --replace",
    "adapt library tasks/thai/support -o no/where.safetensors",
    "adapt library tasks/thai/support --queries nowhere",
    "adapt library tasks/thai/support --cache notes.txt",
    "adapt library tasks/thai/support --refit nowhere",
    "adapt library --refit t.safetensors",
    "adapt library tasks/thai/support --report notes.txt",
    "solve library nowhere",
    "solve library tasks/thai/support --elements 3 --modules 1",
    "predict t.safetensors tasks/thai/query",
    "predict nowhere tasks/thai/query --library library",
    "predict t.safetensors nowhere --library library",
    "predict library tasks/thai/query --library library",
    "predict notes.txt tasks/thai/query --library library",
    "compose library",
    "compose library --weights latin=.5",
    "compose library --weights latin=.5,ghost=.5",
    "compose library --recipe nowhere",
    "library init library library/base",
    "library init new nowhere",
    "library init new library/base full",
    "library init no/where library/base",
    "library add nowhere library/latin",
    "library add library library/latin",
    "library remove library ghost",
    "library remove library base",
    "library list full",
    "train library tree -o new-router",
    "evaluate library nowhere",
)


def make_place(demo: Path, place: Path) -> None:
    """Lay out what the mistakes are made in.

    Args:
        demo: folder of a demonstration.
        place: an empty folder.
    """
    for name in ("library", "router", "tasks"):
        shutil.copytree(demo / name, place / name)
    shutil.copytree(demo / "library" / "latin", place / "checkpoints" / "novel")
    for name in ("a", "b", "c"):
        shutil.copytree(next((demo / "tasks" / "thai" / "support").iterdir()), place / "tree" / "photo" / name)
    (place / "full").mkdir()
    (place / "full" / "mine.txt").write_text("mine")
    (place / "notes.txt").write_text("mine")
