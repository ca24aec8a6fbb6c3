"""What shipped before, taken from the history: the first library and router of Signs, and a router without common part.

The first specialists had no common trunk; the router without a common part is of the library that ships.
"""

import io
import subprocess
import tarfile
from pathlib import Path

from common import ROOT

BUILD, SHIPPED = ROOT / ".build", "src/smatter/shipped"
BEFORE, PLAIN = BUILD / "before", BUILD / "plain"
LIBRARY, ROUTER = BEFORE / "signs-library", BEFORE / "signs-router"
PLAIN_ROUTER = PLAIN / "signs-router"
COMMITS = {BEFORE: ("2c0ea9c", (LIBRARY, ROUTER)), PLAIN: ("eea0a99", (PLAIN_ROUTER,))}
"""The last that ship them. Tensors of the first are those of 693aa6f; since then only the files around them changed."""


def restore() -> None:
    """Put them in their folders, where they are not there."""
    for folder, (commit, places) in COMMITS.items():
        if not folder.exists():
            _take(folder, commit, places)


def _take(folder: Path, commit: str, places: tuple[Path, ...]) -> None:
    command = ["git", "archive", commit, *(f"{SHIPPED}/{place.name}" for place in places)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    if done.returncode:
        raise SystemExit(f"commit {commit} is not in this clone: fetch the whole history")
    partial = folder.with_name(f"{folder.name}.partial")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as file:
        file.extractall(partial, filter="data")
    (partial / SHIPPED).rename(folder)
