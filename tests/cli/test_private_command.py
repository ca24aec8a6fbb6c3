"""`smatter adapt --method private`: what is printed and written tells nothing of the examples but the weights."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from small_routers import make_router

from smatter.cli.main import main
from smatter.library.library import Library
from smatter.route.ledger import read_ledger
from smatter.tasks.suite import Suite


def shots(folder: Path, names: tuple[str, str], seed: int) -> Path:
    for label, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            colour = (40 * number + 20, (200 if label else 30) - seed, 90 + seed)
            Image.new("RGB", (8, 8), colour).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory, tiny_library: Library, tiny_suite: Suite) -> Path:
    return make_router(tiny_library, tiny_suite, tmp_path_factory.mktemp("private") / "router")[0]


@pytest.mark.parametrize("options", [[], ["--json"], ["--diagnostics"], ["--head", "ridge"]])
def test_other_examples_change_nothing_but_the_weights(
    tiny_library: Library, router: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    told = []
    for number, names in enumerate((("anna", "berta"), ("x-ray positive", "x-ray negative"))):
        support = shots(tmp_path / f"s{number}", names, 20 * number)
        recipe = tmp_path / "task.safetensors"
        words = ["adapt", tiny_library.folder, support, "--router", router, "--method", "private", "-o", recipe]
        ledger = ["--set", f"ledger={tmp_path / f'{number}.json'}"]
        assert main([*map(str, words), "--replace", *ledger, *options]) == 0
        out = capsys.readouterr().out
        assert not any(name in out for name in names)
        sources = "|".join(tiny_library.names)
        lines = sorted(re.sub(rf"nearest to ({sources})|[0-9.]+(e-?[0-9]+)?|[a-f0-9]{{64}}", "#", out).splitlines())
        told.append([" ".join(line.split()) for line in lines])
        written = recipe.read_bytes()
        assert not any(word.encode() in written for word in (*names, str(tmp_path), "ledger"))
    if "--diagnostics" not in options and "--json" not in options:
        assert "s# #" in " ".join(told[0])
    assert told[0] == told[1]


def test_releases_are_counted_in_the_ledger_and_their_total_is_said(
    tiny_library: Library, router: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    support, ledger = shots(tmp_path / "s", ("a", "b"), 0), tmp_path / "ledger.json"
    words = ["adapt", tiny_library.folder, support, "--router", router, "--method", "private"]
    main([*map(str, words), "--json"])
    alone = json.loads(capsys.readouterr().out)
    assert alone["privacy"] == {"epsilon": 1.0, "delta": 1e-5} and "ledger=FILE" in alone["notes"][1]
    for number in (1, 2):
        assert main([*map(str, words), "--set", f"ledger={ledger}", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["privacy"]["total_n_releases"] == number == len(read_ledger(ledger))
        assert told["privacy"]["total_added"] == number
        assert told["classes"] == [] and told["seconds"] is None
    assert told["privacy"]["total_epsilon"] < 2
    assert main([*map(str, words), "--set", f"ledger={ledger}"]) == 0
    assert "3 releases in the ledger, together (" in capsys.readouterr().out
    ledger.write_text("{}")
    assert main([*map(str, words), "--set", f"ledger={ledger}"]) == 2
    assert "not a ledger" in capsys.readouterr().err and ledger.read_text() == "{}"


def test_a_release_is_noted_before_it_is_made(
    tiny_library: Library, router: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    support, ledger = shots(tmp_path / "s", ("a", "b"), 0), tmp_path / "ledger.json"

    def crash(*_: object) -> None:
        assert len(read_ledger(ledger)) == 1
        raise MemoryError

    monkeypatch.setattr("smatter.route.private.release", crash)
    words = ["adapt", tiny_library.folder, support, "--router", router, "--method", "private"]
    assert main([*map(str, words), "--set", f"ledger={ledger}"]) == 2
    assert len(read_ledger(ledger)) == 1
