"""`smatter evaluate`, as a stranger would use it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_suites import write_tree

from smatter.cli.main import main
from smatter.library.library import Library


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    write_tree(folder / "mine", {".": "abc"}, n_each=5)
    write_tree(folder / "task" / "support", {".": "abc"}, n_each=3)
    write_tree(folder / "more", {".": "abc"}, n_each=4)
    return folder


def test_a_folder_is_scored_by_every_method_and_one_is_chosen(tiny_library: Library, place: Path, capsys) -> None:
    words = ["evaluate", str(tiny_library.folder), str(place / "mine"), "--tasks", "2", "--shot", "2"]
    words += ["--cache", str(place / "scores"), "--choose"]
    assert main([*words, "--report", str(place / "page.html")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("2 random splits of mine, 2 shots, seed 0: 18 queries; 95 % intervals over splits and exam")
    for name in ("base", "source:s1", "source:s2", "average", "evidence:predictions", "solver", "task_arithmetic"):
        assert re.search(rf"^{name} +\d+\.\d ± \d", text, re.M), name
    assert re.search(r"^use \S+: \S+ ", text, re.M) and re.search(r"^  smatter (adapt|compose) ", text, re.M)
    page = (place / "page.html").read_text()
    assert "data:image/png" in page and "named" in page and "http" not in page.replace("http-equiv", "")
    told = []
    for _ in range(2):
        assert main([*words, "--json"]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1], "kept scores give the same bytes"
    data = json.loads(told[0])
    assert data["choice"]["name"] in {row["name"] for row in data["methods"]} and len(data["tasks"]) == 2


def test_support_and_queries_apart(tiny_library: Library, place: Path, tmp_path: Path, capsys) -> None:
    words = ["evaluate", str(tiny_library.folder), str(place / "task" / "support"), str(place / "mine")]
    # Both trees begin with the same random pictures: nine of the queries are among the examples.
    with pytest.warns(UserWarning, match="left out: 9 queries"):
        assert main([*words, "--methods", "base, evidence", "--cache", str(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in data["methods"]} == {"base", "average", "evidence"}
    assert data["n_queries"] == 6 and data["intervals_over"] == "queries"


@pytest.mark.parametrize(
    "words, remedy",
    [
        (["nowhere"], "does not exist; give a folder"),
        (["mine", "--shot", "5"], "give --shot 4"),
        (["mine", "--methods", "evidense"], "like 'evidence'"),
        (["mine", "--methods", "router"], "give one that `smatter train` wrote with --router"),
        (["mine", "--router", "nowhere"], "give the router's"),
        (["mine", "more", "--list", "x"], "leave out the queries or --list"),
        (["mine", "--report", "mine"], "choose another name"),
        (["mine", "--report", "no/page.html"], "create it first"),
        (["mine", "--workers", "0"], "--workers"),
    ],
)
def test_mistakes_are_one_line_and_found_without_torch(
    tiny_library: Library, place: Path, words: list[str], remedy: str
) -> None:
    program = "import sys; from smatter.cli.main import run_program; import atexit;"
    program += "atexit.register(lambda: print('torch' in sys.modules)); run_program()"
    command = [sys.executable, "-c", program, "evaluate", str(tiny_library.folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=place)
    assert done.returncode == 2 and done.stdout == "False\n", done.stderr
    assert len(done.stderr.splitlines()) == 1 and remedy in done.stderr
