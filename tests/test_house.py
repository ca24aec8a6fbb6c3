"""The rules of the house: imports point one way, start-up is lean, files stay readable."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_suites import picture_suite, write_tree

from smatter.tasks.packed import write_packed

SOURCE = Path(__file__).parents[1] / "src" / "smatter"
ORDER = [
    {"errors"}, {"records"}, {"settings"}, {"files"}, {"algebra"}, {"solve"}, {"linear"},
    {"compose", "scores", "budget", "certify"}, {"backbones"}, {"units"}, {"library"}, {"tasks"}, {"live"}, {"runtime"},
    {"devices"}, {"route"}, {"align"}, {"methods"}, {"cache"}, {"pipeline"}, {"train"}, {"evaluate"},
    {"report"}, {"demo"}, {"cli", "service", "cluster", "estimators"},
]  # fmt: skip
"""Each room may import from itself and from rooms above it here, which is to say below it in the house."""
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("smatter.") and "__" not in name}
    return rooms


@pytest.mark.parametrize(
    "path", [path for path in FILES if not room_of(path).startswith("__")], ids=lambda path: path.name
)
def test_imports_point_one_way(path: Path) -> None:
    room = room_of(path)
    for other in imported_rooms(path) - {room}:
        assert RANK[other] < RANK[room], f"{room} may not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_outgrows_a_reader(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("room", ["algebra", "compose", "solve", "linear", "budget", "certify", "scores", "units"])
def test_pure_rooms_touch_no_disk_no_clock_no_global_randomness(room: str) -> None:
    forbidden = {"os", "pathlib", "time", "random", "shutil", "tempfile", "io"}
    for path in (SOURCE / room).rglob("*.py") if (SOURCE / room).exists() else []:
        tree = ast.parse(path.read_text())
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {module.split(".")[0] for module in modules} & forbidden, path


def imported_modules(code: str) -> set[str]:
    program = f"import sys; {code}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    return set(done.stdout.split("\n"))


HEAVY = {"torch", "transformers", "numba", "scipy", "sklearn", "plotly", "fastapi", "ray", "pandas"}


def test_importing_smatter_is_lean() -> None:
    assert not imported_modules("import smatter") & (HEAVY | {"numpy", "pydantic"})


def test_help_and_list_import_no_torch(make_library) -> None:
    library = make_library()
    for words in (["--help"], ["library", "--help"], ["library", "list", str(library.folder)]):
        loaded = imported_modules(f"from smatter.cli.main import main; assert main({words!r}) == 0")
        assert not loaded & HEAVY, words


def test_suites_are_shown_and_drawn_from_without_torch(tmp_path: Path) -> None:
    write_packed(tmp_path / "suite", picture_suite())
    suite, tree = str(tmp_path / "suite"), str(write_tree(tmp_path / "tree", {"photo": "abc", "sketch": "abc"}))
    task = ["--split", "all", "--way", "2", "--shot", "1", "-o", str(tmp_path / "out")]
    for words in (["list"], ["show", suite], ["show", tree], ["task", tree, *task]):
        loaded = imported_modules(f"from smatter.cli.main import main; assert main({['suite', *words]!r}) == 0")
        assert not loaded & HEAVY, words


def test_composing_needs_no_torch_with_the_extra(make_library, tmp_path: Path) -> None:
    library = make_library()
    words = ["compose", str(library.folder), "--weights", "a=.5,b=.5", "-o", str(tmp_path / "out")]
    loaded = imported_modules(f"from smatter.cli.main import main; assert main({words!r}) == 0")
    assert "numba" in loaded and not loaded & {"torch", "transformers"}


def test_every_public_name_exists() -> None:
    import smatter

    for name in smatter.__all__:
        assert getattr(smatter, name).__doc__
        assert name not in RANK, "a room of this name would hide it"
