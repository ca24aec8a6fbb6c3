"""`smatter profile` as a person types it."""

import json
from pathlib import Path

import pytest
from small_runtimes import make_library

from smatter.cli.main import main

MLP = "encoder.layer.0.mlp"


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    make_library("vit", folder)
    return folder


def run(capsys, *words: object) -> dict:
    code = main(["profile", *map(str, words), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def refused(capsys, *words: object) -> str:
    assert main(["profile", *map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


def test_measure_then_adjust_and_show(vit: Path, capsys, tmp_path: Path) -> None:
    here, page = tmp_path / "here.json", tmp_path / "page.html"
    told = run(capsys, vit, "-o", here, "--batch", 2, "--seconds", 1, "--report", page)
    assert told["method"] == "stacks" and told["unit"] == "ms" and told["quality"]["n_tested"] == 40
    assert "<svg" in page.read_text() and json.loads(here.read_text())["base"] == told["base"]
    careful = run(
        capsys, vit, "-o", tmp_path / "careful.json", "--batch", 2, "--threads", 2, "--from", here, "--margin", 2
    )
    assert careful["base"] == pytest.approx(2 * told["base"]) and careful["fingerprint"]["threads"] == 2
    words = ["profile", str(vit), "-o", str(tmp_path / "corrected.json"), "--batch", "4", "--from", str(here)]
    for _ in range(5):  # on a busy machine points may not fit any profile, which is told; then one measures again
        if main([*words, "--points", "18", "--json"]) == 0:
            break
        assert "do not fit the profile" in capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["record"]["corrected_with_points"] == 18
    assert (
        main(["profile", str(vit), "-o", str(here), "--replace", "--batch", "2", "--method", "micro-benchmarks"]) == 0
    )
    text = capsys.readouterr().out
    assert MLP in text and "nothing is promised" in text


def test_other_units(vit: Path, capsys, tmp_path: Path) -> None:
    counted = run(capsys, vit, "-o", tmp_path / "bytes.json", "--method", "bytes")
    assert counted["unit"] == "bytes" and counted["method"] == "counted"
    table = tmp_path / "energy.json"
    table.write_text(json.dumps({"unit": "mJ", "base": 10, "modules": {MLP: [1, 1, 1, 2, 3]}}))
    assert run(capsys, vit, "-o", tmp_path / "mj.json", "--table", table)["unit"] == "mJ"
    ranks = run(capsys, vit, "-o", tmp_path / "ranks.json", "--method", "bytes", "--rank", 4)
    assert ranks["fingerprint"]["rank"] == 4 and "encoder.layer.0.intermediate.dense.weight" in ranks["costs"]


def test_mistakes_are_one_line(vit: Path, capsys, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    out.write_text("{}")
    assert "is no profile" in refused(capsys, vit, "-o", out)
    free = tmp_path / "free.json"
    assert "name it with --from" in refused(capsys, vit, "-o", free, "--margin", 2)
    assert "there is no profile" in refused(capsys, vit, "-o", free, "--from", tmp_path / "none.json")
    assert "is not a profile" in refused(capsys, vit, "-o", free, "--from", out)
    assert "cannot both be" in refused(capsys, vit, "-o", free, "--report", free)
    assert "a delta of 0.0099 or more" in refused(capsys, vit, "-o", free, "--delta", 0.001)
    assert "between 0 and 1" in refused(capsys, vit, "-o", free, "--quantile", 2)
    assert "there is no table" in refused(capsys, vit, "-o", free, "--table", tmp_path / "none.json")
    assert "does not exist" in refused(capsys, vit, "-o", tmp_path / "nowhere" / "p.json")
    (tmp_path / "t.json").write_text("{}")
    assert "leave out --quantile" in refused(capsys, vit, "-o", free, "--from", out, "--margin", 2, "--quantile", 0.9)
    assert "name it with --from" in refused(capsys, vit, "-o", free, "--points", 20)
    assert "leave out --method" in refused(capsys, vit, "-o", free, "--table", out, "--method", "bytes")
    assert "leave out --method" in refused(capsys, vit, "-o", free, "--from", out, "--table", tmp_path / "t.json")
    assert "is not a table" in refused(capsys, vit, "-o", free, "--table", tmp_path / "t.json")
    assert "no inputs of length 3" in refused(capsys, vit, "-o", free, "--length", 3)
    assert not free.exists()
