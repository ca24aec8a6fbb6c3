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
    {"devices"}, {"posterior"}, {"route"}, {"align"}, {"methods"}, {"cache"}, {"adapted"}, {"steps"}, {"pipeline"},
    {"train"}, {"evaluate"}, {"report"}, {"demo"}, {"cli", "service", "cluster", "estimators"},
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


def test_no_file_imports_itself_by_a_detour() -> None:
    """Within a room too: the graph of files has no cycle, imports for type checkers included."""
    name_of = {path: ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in FILES}
    files = {name.removesuffix(".__init__"): path for path, name in name_of.items()}
    needed: dict[str, set[str]] = {}
    for name, path in files.items():
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & files.keys()
        needed[name] = found - {name, "smatter"}
    while needed:
        free = {name for name, others in needed.items() if not others & needed.keys()}
        assert free, f"a cycle among {sorted(needed)}"
        needed = {name: others for name, others in needed.items() if name not in free}


def test_files_are_short_and_most_of_them_shorter() -> None:
    lengths = sorted(len(path.read_text().splitlines()) for path in FILES)
    assert lengths[len(lengths) // 2] <= 120


@pytest.mark.parametrize("path", sorted((SOURCE / "cli").glob("*.py")), ids=lambda path: path.name)
def test_commands_only_parse_call_and_print(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno and node.end_lineno - node.lineno < 40, f"{path.name}: {node.name}"


CONVENTION = {"adapt", "compose", "demo", "export", "list_", "main", "profile", "solve", "train"}
"""Functions of the command line are called like their commands."""


def test_public_names_are_defined_once() -> None:
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1 and name not in CONVENTION}
    assert not twice


def test_many_arguments_are_named() -> None:
    """Six or more values in a row say nothing of themselves; compiled code and lists of parts are exceptions."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and not any(isinstance(each, ast.Starred) for each in node.args):
                what = ast.unparse(node.func)
                assert len(node.args) < 6 or what in ("_blend", "page.page"), f"{path}:{node.lineno} {what}"


def test_no_ten_lines_stand_twice() -> None:
    seen: dict[tuple[str, ...], str] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                body = [line for statement in node.body for line in ast.unparse(statement).splitlines()]
                for start in range(len(body) - 9):
                    key = tuple(line.strip() for line in body[start : start + 10])
                    where = f"{path.name}: {node.name}"
                    assert seen.setdefault(key, where).partition(".<locals>")[0] == where or node.col_offset, (
                        where,
                        key,
                    )


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


def test_adapting_imports_no_statistics_and_no_optimizer() -> None:
    """Together they take a second, which is what adapting on a small network takes itself."""
    assert not imported_modules("import smatter.pipeline") & {"scipy.stats", "scipy.optimize"}


def test_every_public_name_exists() -> None:
    import smatter

    for name in smatter.__all__:
        assert getattr(smatter, name).__doc__
        assert name not in RANK, "a room of this name would hide it"
