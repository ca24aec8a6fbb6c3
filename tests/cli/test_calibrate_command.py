"""`smatter calibrate`, as a stranger would use it: what is refused, and what a router is known to have."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_certificates import certificate
from small_routers import make_router

from smatter.cli.main import main
from smatter.library.library import Library
from smatter.route.place import router_identity
from smatter.route.store import read_router, write_router
from smatter.tasks.suite import Suite


@pytest.fixture(scope="module")
def certified(tiny_library: Library, tiny_suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("certified")
    bare, _ = make_router(tiny_library, tiny_suite, place / "bare")
    told = certificate(router=router_identity(bare))
    write_router(place / "router", replace(read_router(bare), certificates=(told,)))
    return place / "router"


def test_certificates_are_shown(certified: Path, capsys) -> None:
    assert main(["calibrate", str(certified), "--show"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("router, on 60 tasks of some-list:") and "not for other classes" in text
    assert "sets have all classes with a probability from" in text
    assert main(["calibrate", str(certified), "some-list", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificates"][0]["delta"] == 0.05


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--show", "--rule", "map"], "the rule map has no certificate, only router"),
        (["other-list", "--show"], "certified on some-list, not on other-list"),
        ([], "give LIST and --library, or say --show"),
        (["calibration-id-1", "--library", "LIB", "--delta", "1"], "delta 1.0 is not between 0 and 1"),
        (["calibration-id-1", "--library", "LIB", "--delta", "0"], "delta 0.0 is not between 0 and 1"),
        (["calibration-id-1", "--library", "LIB", "--tasks", "3"], "3 tasks are too few"),
        (["calibration-id-1", "--library", "LIB", "--rule", "best"], "unknown decision 'best'"),
        (["calibration-id-1", "--library", "LIB", "--rule", "half:3"], "no posterior, which half:3 decides by"),
        (["validation-id-1", "--library", "LIB"], "drawn from the split 'validation'"),
        (["no-list", "--library", "LIB"], "no list 'no-list'"),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(certified: Path, tiny_library: Library, capsys, words: list[str], said: str) -> None:
    words = [str(tiny_library.folder) if word == "LIB" else word for word in words]
    assert main(["calibrate", str(certified), *words]) == 2
    found = capsys.readouterr()
    assert said in found.err and found.err.count("\n") == 1 and not found.out


def test_certificates_of_other_weights_are_not_shown(certified: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(certified, tmp_path / "router")
    table = json.loads((tmp_path / "router" / "router.json").read_text())
    table["weights"] = "0" * 64
    (tmp_path / "router" / "router.json").write_text(json.dumps(table))
    assert main(["calibrate", str(tmp_path / "router"), "--show"]) == 2
    found = capsys.readouterr()
    assert "of other weights" in found.err and found.err.count("\n") == 1 and not found.out


def test_a_router_without_certificates_says_so(certified: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(certified, tmp_path / "router")
    table = json.loads((tmp_path / "router" / "router.json").read_text())
    del table["certificates"]
    (tmp_path / "router" / "router.json").write_text(json.dumps(table))
    assert main(["calibrate", str(tmp_path / "router"), "--show"]) == 2
    assert "the rule router has no certificate: run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--drift", "FILE"], "drift is told by the scores of a router"),
        (["--on-drift", "base"], "nothing is watched for drift"),
        (["--drift", "FILE", "--router", "ROUTER", "--on-drift", "router"], "router cannot be followed instead"),
    ],
    ids=str,
)
def test_mistakes_of_watching_are_one_line(
    certified: Path, tiny_library: Library, tmp_path: Path, capsys, words: list[str], said: str
) -> None:
    from small_suites import write_tree

    places = {"FILE": tmp_path / "drift.json", "ROUTER": certified}
    words = [str(places.get(word, word)) for word in words]
    support = write_tree(tmp_path / "mine", {".": "ab"})
    assert main(["adapt", str(tiny_library.folder), str(support), *words]) == 2
    found = capsys.readouterr()
    assert said in found.err and found.err.count("\n") == 1
