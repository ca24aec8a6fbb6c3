"""Sixty mistakes of a first hour: each one line, code 2, nothing written."""

import shlex
import shutil
from pathlib import Path

import pytest
from newcomers import MISTAKES, SUPPORT, make_place

from smatter.cli.main import main
from smatter.demo.story import draw_task
from smatter.files.hashing import SEAL
from smatter.tasks.export import write_task
from smatter.tasks.open import SHIPPED, open_suite


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    demo, place = tmp_path_factory.mktemp("demo"), tmp_path_factory.mktemp("place")
    for name in ("library", "router"):
        shutil.copytree(SHIPPED / f"signs-{name}", demo / name)
    (demo / "tasks").mkdir()
    write_task(demo / "tasks" / "thai", draw_task(open_suite("signs"), "thai", 0))
    make_place(demo, place)
    words = ["adapt", place / "library", place / SUPPORT, "--weights", "uniform", "-o", place / "t.safetensors"]
    assert main([str(word) for word in words]) == 0
    return place


def test_there_are_sixty() -> None:
    assert len(set(MISTAKES)) == 60


def files_of(place: Path) -> list[Path]:
    """All but the seals, which any command that verifies files may write once these are old enough."""
    return sorted(path for path in place.rglob("*") if path.name != SEAL)


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line(place: Path, capsys, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.chdir(place)
    before = files_of(place)
    assert main(shlex.split(words)) == 2
    told = capsys.readouterr()
    assert told.err.startswith("smatter: ") and told.err.count("\n") == 1 and not told.out
    assert files_of(place) == before
