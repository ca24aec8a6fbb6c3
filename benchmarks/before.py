"""What Signs shipped before: its library and router before specialists had a common trunk, and the first router after,
whose shared change had no part that is open for every task. Taken from the history."""

import io
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from common import ROOT

COMMIT = "2c0ea9c"
"""The last that ships them. Their tensors are those of 693aa6f; since then only the files around them had changed."""

BEFORE = ROOT / ".build" / "before"
LIBRARY, ROUTER = BEFORE / "signs-library", BEFORE / "signs-router"
UNCOMMON_COMMIT = "5144175"
"""The last whose router has experts alone; it is for the library that ships."""

UNCOMMON = ROOT / ".build" / "before-common"
UNCOMMON_ROUTER = UNCOMMON / "signs-router"


def restore() -> None:
    """Put them where they belong, if they are not there."""
    _restore(COMMIT, BEFORE, (LIBRARY.name, ROUTER.name))
    _restore(UNCOMMON_COMMIT, UNCOMMON, (UNCOMMON_ROUTER.name,))


def _restore(commit: str, folder: Path, names: Sequence[str]) -> None:
    if folder.exists():
        return
    shipped = "src/smatter/shipped"
    command = ["git", "archive", commit, *(f"{shipped}/{name}" for name in names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    if done.returncode:
        raise SystemExit(f"commit {commit} is not in this clone: fetch the whole history")
    partial = folder.with_name(f"{folder.name}.partial")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as file:
        file.extractall(partial, filter="data")
    (partial / shipped).rename(folder)
