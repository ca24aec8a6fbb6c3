"""The demonstration: it ends in a page, in tasks that commands take, and in a model that loads."""

import json
from pathlib import Path

import pytest

from smatter.cli.main import main
from smatter.demo.story import TASKS, draw_task
from smatter.library.library import open_library
from smatter.tasks.open import open_suite
from smatter.tasks.support import read_support


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "out"
    assert main(["demo", "-o", str(folder), "--json"]) == 0
    return folder


def test_it_leaves_a_page_tasks_a_library_and_a_model(folder: Path) -> None:
    from transformers import AutoModel

    assert {path.name for path in folder.iterdir()} == {
        "demo.json",
        "index.html",
        "library",
        "model",
        "router",
        "tasks",
    }
    text = (folder / "index.html").read_text()
    library = open_library(folder / "library")
    assert all(name in text for name in (*TASKS, *library.names))
    for name in TASKS:
        assert len(read_support(folder / "tasks" / name / "support").class_names) == 5
    assert AutoModel.from_pretrained(folder / "model").config.model_type == "convnext"


def test_its_tasks_have_classes_that_no_source_has_seen() -> None:
    suite = open_suite("signs")
    for task, domains in TASKS.items():
        names = draw_task(suite, task, 0).class_names
        tested = {each.name for name in domains for each in suite.classes(suite.domain(name), "test")}
        assert {name.split(": ")[-1] if len(domains) > 1 else name for name in names} <= tested


def test_it_tells_the_same_story_again_and_replaces_only_itself(folder: Path, capsys) -> None:
    assert main(["demo", "-o", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["tasks"]
    assert told.keys() == TASKS.keys()
    for story in told.values():
        assert sum(story["weights"].values()) == pytest.approx(1, abs=1e-6)
        assert all(0 <= share <= 1 for share in story["accuracies"].values())
    table = folder / "router" / "router.json"
    for path in (folder / "thai.safetensors", table, folder / "library" / "mine" / "weights.bin"):
        before = path.read_bytes() if path.exists() else None  # the README has people write beside the demo's own
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        assert main(["demo", "-o", str(folder)]) == 2
        assert "give another place" in capsys.readouterr().err
        assert path.read_text() == "mine"
        path.unlink() if before is None else path.write_bytes(before)
    assert main(["demo", "-o", str(folder)]) == 2, "a folder that somebody made is theirs, too"
