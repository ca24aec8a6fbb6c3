"""`smatter compose --match` as a person types it."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smatter.cli.main import main
from smatter.library.library import Library

WEIGHTS = ["--weights", "s0=.5,s1=.3,s2=.2"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    (tmp_path / "pictures" / "deep").mkdir(parents=True)
    for number in range(6):
        pixels = generator.integers(0, 255, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / "deep" / f"{number}.png")
    return tmp_path / "pictures"


def test_a_recipe_and_a_folder_hold_the_correction(
    tiny_library: Library, pictures: Path, tmp_path: Path, capsys
) -> None:
    folder, recipe = str(tiny_library.folder), tmp_path / "matched.safetensors"
    matching = ["compose", folder, *WEIGHTS, "--match", str(pictures)]
    assert main([*matching, "--as", "recipe", "-o", str(recipe), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_corrected"] > 0
    assert main(["compose", folder, "--recipe", str(recipe), "--verify", "-o", str(tmp_path / "rebuilt")]) == 0
    assert main([*matching, "-o", str(tmp_path / "direct")]) == 0
    assert "parameters corrected to match" in capsys.readouterr().out
    direct, rebuilt = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("direct", "rebuilt"))
    assert direct == rebuilt
    assert main(["compose", folder, *WEIGHTS, "-o", str(tmp_path / "plain")]) == 0
    assert (tmp_path / "plain" / "model.safetensors").read_bytes() != direct


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*WEIGHTS, "--match", "nowhere"], "does not exist"),
        ([*WEIGHTS, "--match", "empty"], "holds no pictures"),
        ([*WEIGHTS, "--match", "texts.csv"], "takes images, not texts"),
        ([*WEIGHTS, "--match", "broken"], "0.png"),
        ([*WEIGHTS, "--match", "pictures", "--as", "mergekit"], "mergekit"),
        (["--task-arithmetic", "s1=1,s2=.5", "--match", "pictures"], "--weights"),
        (["--weights", "s1=1", "--match", "pictures"], "nothing to match"),
    ],
)
def test_mistakes_are_one_line_and_code_two(
    tiny_library: Library, pictures: Path, words: list[str], message: str, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(pictures.parent)
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken/0.png").write_bytes(b"no picture")
    Path("texts.csv").write_text("text\na line\n")
    assert main(["compose", str(tiny_library.folder), *words, "-o", "out"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not Path("out").exists()
