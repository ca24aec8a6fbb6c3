"""Where a demonstration is: known without torch, so that a place that is taken is told at once."""

from pathlib import Path

from smatter.library.manifest import MANIFEST


def is_demo(folder: Path) -> bool:
    """Whether a folder holds an earlier demonstration and nothing else, so that it may be replaced."""
    if not ((folder / "index.html").exists() and (folder / "library" / MANIFEST).exists()):
        return False
    return {path.name for path in folder.iterdir()} <= {"index.html", "library", "router", "tasks", "model"}
