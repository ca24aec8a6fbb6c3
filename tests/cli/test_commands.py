"""Commands as a person types them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_networks import make_tensors, write_checkpoint

from smatter.cli.main import main


def run(capsys, *words: object) -> dict:
    code = main([*map(str, words), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    base = make_tensors(0)
    write_checkpoint(tmp_path / "base", base)
    for seed, name in enumerate(("law", "code"), 1):
        write_checkpoint(tmp_path / name, make_tensors(seed, near=base))
    return tmp_path


def test_the_way_from_folders_to_a_checkpoint(folders: Path, capsys) -> None:
    shelf = folders / "shelf"
    assert run(capsys, "library", "init", shelf, folders / "base")["base"] == "base"
    added = run(capsys, "library", "add", shelf, folders / "law", folders / "code")["added"]
    assert [entry["name"] for entry in added] == ["law", "code"]
    listed = run(capsys, "library", "list", shelf)
    assert [source["name"] for source in listed["sources"]] == ["base", "law", "code"]
    assert "encoder.layer.1.mlp" in listed["modules"]
    plan = run(capsys, "compose", shelf, "--weights", "law=.75,code=.25")
    assert plan["modules"]["embeddings"] == {"law": 0.75, "code": 0.25}
    assert run(capsys, "compose", shelf, "--weights", "law=.75,code=.25", "-o", folders / "out")["as"] == "folder"
    law, code, out = (load_file(folders / name / "model.safetensors") for name in ("law", "code", "out"))
    name = "encoder.layer.1.output.dense.weight"
    torch.testing.assert_close(out[name], 0.75 * law[name] + 0.25 * code[name])
    assert run(capsys, "library", "safe", shelf, "code") == {"safe": "code"}
    assert main(["library", "remove", str(shelf), "code"]) == 2
    assert "mark another" in capsys.readouterr().err
    assert run(capsys, "library", "remove", shelf, "law")["sources"] == ["base", "code"]
    assert run(capsys, "library", "list", shelf)["safe"] == "code"
    assert main(["library", "list", str(shelf)]) == 0
    assert "code (safe)" in capsys.readouterr().out
    assert main(["library", "safe", str(shelf), "ghost"]) == 2
    assert "no source is named 'ghost'" in capsys.readouterr().err
    assert main(["compose", str(shelf), "--recipe", str(folders / "out" / "recipe.safetensors")]) == 2
    assert "75.0%" in capsys.readouterr().err


def test_weights_from_files_global_and_per_module(folders: Path, capsys) -> None:
    shelf = folders / "shelf"
    run(capsys, "library", "init", shelf, folders / "base")
    run(capsys, "library", "add", shelf, folders / "law", folders / "code")
    (folders / "global.json").write_text(json.dumps({"law": 0.5, "code": 0.5}))
    modules = run(capsys, "library", "list", shelf)["modules"]
    rows = {module: {"law": 1.0} if "0" in module else {"code": 1} for module in modules}
    (folders / "rows.json").write_text(json.dumps(rows))
    assert run(capsys, "compose", shelf, "--weights", folders / "global.json")["modules"]["embeddings"] == {
        "law": 0.5, "code": 0.5,
    }  # fmt: skip
    plan = run(capsys, "compose", shelf, "--weights", folders / "rows.json")["modules"]
    assert plan["encoder.layer.0.mlp"] == {"law": 1.0} and plan["encoder.layer.1.mlp"] == {"code": 1.0}


def test_recipes_and_merges_are_products_too(folders: Path, capsys) -> None:
    shelf = folders / "shelf"
    run(capsys, "library", "init", shelf, folders / "base")
    run(capsys, "library", "add", shelf, folders / "law", folders / "code")
    arithmetic = ["--task-arithmetic", "law=1,code=.5", "--scale", "0.8"]
    run(capsys, "compose", shelf, *arithmetic, "--as", "recipe", "-o", folders / "mix.safetensors")
    run(capsys, "compose", shelf, *arithmetic, "--as", "mergekit", "-o", folders / "mix.yaml")
    with safe_open(folders / "mix.safetensors", "np") as file:  # a plain reader understands it
        header = json.loads(file.metadata()["smatter_recipe"])
        row = dict(zip([name for name, _ in header["sources"]], file.get_tensor("mixture")[0].tolist(), strict=True))
    assert row == pytest.approx({"base": 1 - 0.8 * 1.5, "law": 0.8, "code": 0.4})
    plans = [run(capsys, "compose", shelf, "--recipe", folders / f"mix.{kind}") for kind in ("safetensors", "yaml")]
    assert plans[0] == plans[1]


def test_a_network_nobody_knows_is_split_by_a_pattern(tmp_path: Path, capsys) -> None:
    base = {f"blocks.{i}.w": torch.randn(4, 4) for i in range(3)} | {"stem": torch.randn(5)}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        tensors = {key: tensor + 0.1 * torch.randn(tensor.shape) for key, tensor in base.items()}
        save_file(tensors, tmp_path / name / "model.safetensors")
    run(capsys, "library", "init", tmp_path / "lib", tmp_path / "one", "--modules", r"(blocks\.\d+)\.")
    run(capsys, "library", "add", tmp_path / "lib", tmp_path / "two")
    assert set(run(capsys, "library", "list", tmp_path / "lib")["modules"]) == {
        "blocks.0", "blocks.1", "blocks.2", "other",
    }  # fmt: skip
    run(capsys, "compose", tmp_path / "lib", "--weights", "one=.5,two=.5", "-o", tmp_path / "out")
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == tensors.keys()


def test_text_for_people(folders: Path, capsys) -> None:
    shelf = str(folders / "shelf")
    assert main(["library", "init", shelf, str(folders / "base")]) == 0
    assert main(["library", "add", shelf, str(folders / "law"), "--store", "int8"]) == 0
    assert main(["library", "list", shelf]) == 0
    assert main(["library", "check", shelf]) == 0
    text = capsys.readouterr().out
    assert "of the weights' norm lost" in text and "(base)" in text and "fit to mix" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], None),
        (["library", "list", "nowhere"], "smatter library init"),
        (["compose", "nowhere"], "library.json"),
        (["library", "add"], "LIB"),
        (["unknown"], "unknown"),
    ],
)
def test_mistakes_are_one_line_and_code_two(
    words: list[str], message: str | None, capsys, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(words)
    captured = capsys.readouterr()
    if message is None:
        assert code == 0 and "Usage" in captured.out
        return
    assert code == 2 and captured.err.count("\n") == 1 and message in captured.err


def test_our_own_mistakes_are_code_one(monkeypatch, capsys, tmp_path: Path) -> None:
    def broken(_folder: Path) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("smatter.library.manifest.read_manifest", broken)
    assert main(["library", "list", str(tmp_path)]) == 1
    assert "ZeroDivisionError" in (text := capsys.readouterr().err) and text.count("\n") == 1
    assert main(["library", "list", str(tmp_path), "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
