"""`smatter adapt` and `smatter solve` as a person types them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from small_suites import write_tree
from transformers import ViTConfig, ViTForImageClassification

import smatter
from smatter.cli.main import main


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A library of three tiny random ViTs and a folder of two classes of pictures."""
    folder = tmp_path_factory.mktemp("place")
    generator = torch.Generator().manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, image_size=8, patch_size=4
    )
    shapes = {name: tensor.shape for name, tensor in ViTForImageClassification(config).state_dict().items()}
    for name in ("base", "one", "two"):
        config.save_pretrained(folder / name)
        tensors = {key: 0.4 * torch.randn(shape, generator=generator) for key, shape in shapes.items()}
        save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
    smatter.init_library(folder / "shelf", folder / "base")
    for name in ("one", "two"):
        smatter.add_source(folder / "shelf", folder / name, accept=["unrelated"])
    random = np.random.default_rng(0)
    for label in ("cats", "dogs"):
        (folder / "shots" / label).mkdir(parents=True)
        mean = random.integers(0, 255, (10, 10, 3))
        for number in range(3):
            pixels = (mean + random.integers(-90, 90, (10, 10, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "shots" / label / f"{number}.png")
    return folder


def run(capsys, *words: object) -> dict:
    code = main([*map(str, words), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def test_evidence_from_a_folder_to_a_checkpoint(place: Path, capsys, tmp_path: Path) -> None:
    told = run(capsys, "adapt", place / "shelf", place / "shots", "-o", tmp_path / "task.safetensors")
    assert told["classes"] == ["cats", "dogs"] and set(told["losses"]) == {"base", "one", "two"}
    assert sum(told["weights"].values()) == pytest.approx(1)
    assert told["best_single_source"] == min(told["losses"], key=told["losses"].get)
    run(capsys, "compose", place / "shelf", "--recipe", tmp_path / "task.safetensors", "-o", tmp_path / "out")
    recipe = smatter.read_recipe(tmp_path / "task.safetensors")
    arena = smatter.open_library(place / "shelf").compose(recipe).tensors()
    out = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(out[name], tensor) for name, tensor in arena.items())


def test_a_task_of_a_suite_is_adapted_to_alike_from_files_and_from_memory(place: Path, capsys, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {"photo": "abc", "sketch": "abc"}, n_each=4)
    task = run(capsys, "suite", "task", tree, "--split", "all", "--way", 3, "--shot", 2, "-o", tmp_path / "task")
    told = run(capsys, "adapt", place / "shelf", task["support"])
    sampler = smatter.Sampler(smatter.open_suite(tree), smatter.SamplerSettings("all", n_way=(3, 3), n_shot=(2, 2)))
    episode = sampler.episode(0)
    adapted = smatter.adapt(place / "shelf", smatter.support_of(episode))
    assert told["loss"] == pytest.approx(adapted.loss, rel=1e-4)
    names = adapted.predict([Image.fromarray(picture) for picture in episode.query.inputs]).names
    assert len(names) == len(episode.query) and set(names) <= set(episode.class_names)


@pytest.mark.parametrize(
    "options",
    [[], ["--per-module"], ["--max-sources", 1], ["--elements", 20], ["--modules", 1, "--per-module"]],
    ids=lambda options: " ".join(map(str, options)) or "plain",
)
def test_a_solved_recipe_is_composed_bit_for_bit(place: Path, capsys, tmp_path: Path, options: list) -> None:
    path = tmp_path / "task.safetensors"
    told = run(capsys, "solve", place / "shelf", place / "shots", "-o", path, "--steps", 3, *options)
    assert told["loss"] == told["steps"][-1] <= told["steps"][0] and told["advice"]
    run(capsys, "compose", place / "shelf", "--recipe", path, "-o", tmp_path / "out")
    library = smatter.open_library(place / "shelf")
    recipe = smatter.read_recipe(path)
    arena = library.compose(recipe).tensors()
    out = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(out[name], tensor) for name, tensor in arena.items())
    if "--max-sources" in options:
        assert len(recipe.mixture.sources) == 1
    if "--per-module" in options:
        assert set(told["weights_per_module"]) == set(library.partition.modules)
    if "--elements" in options:
        assert 0 < told["corrected_parameters"] <= 20


def test_text_for_people_says_what_to_do_next(place: Path, capsys, tmp_path: Path) -> None:
    path = tmp_path / "task.safetensors"
    assert main(["solve", str(place / "shelf"), str(place / "shots"), "-o", str(path)]) == 0
    text = capsys.readouterr().out
    assert "leave-one-out loss" in text and "at the start" in text
    assert f"smatter compose {place / 'shelf'} --recipe {path} -o OUT" in text
    assert main(["adapt", str(place / "shelf"), str(place / "shots")]) == 0
    assert "no recipe was written" in capsys.readouterr().out


def test_an_existing_output_is_not_overwritten_by_accident(place: Path, capsys, tmp_path: Path) -> None:
    path = tmp_path / "task.safetensors"
    words = ["adapt", str(place / "shelf"), str(place / "shots"), "-o", str(path)]
    assert main(words) == 0
    before = path.stat().st_ino
    assert main(words) == 2 and "--replace" in capsys.readouterr().err
    assert main([*words, "--replace", "--set", "temperature=5"]) == 0 and path.stat().st_ino != before
    (tmp_path / "mine.txt").write_text("mine")
    assert main([*words[:-1], str(tmp_path / "mine.txt"), "--replace"]) == 2
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert main([*words[:-1], str(tmp_path / "no" / "where")]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["adapt", "shelf", "nowhere"], "does not exist"),
        (["adapt", "nowhere", "shots"], "library.json"),
        (["adapt", "shelf", "texts.csv"], "takes images"),
        (["adapt", "shelf", "one"], "no class folders"),
        (["adapt", "shelf", "shots", "--set", "temperature=0"], "temperature"),
        (["adapt", "shelf", "shots", "--set", "temperature=nan"], "temperature"),
        (["adapt", "shelf", "shots", "--set", "temperature=cold"], "give a number"),
        (["adapt", "shelf", "shots", "--set", "temperatur=1"], "no setting 'temperatur', like 'temperature'"),
        (["adapt", "shelf", "shots", "--set", "temperature"], "is not one NAME=VALUE"),
        (["adapt", "shelf", "shots", "--set", "router=x"], "no setting 'router'"),
        (["adapt", "shelf", "shots", "--method", "magic"], "use one of average, bayes, best_source"),
        (["adapt", "shelf", "shots", "--method", "router"], "no router to ask"),
        (["adapt", "shelf", "shots", "--method", "solver", "--router", "shelf"], "does not ask a router"),
        (["adapt", "shelf", "shots", "--method", "refined", "--set", "tune=all"], "unknown tune"),
        (["adapt", "shelf", "shots", "--method", "refined", "--set", "evidence=perhaps"], "give yes or no"),
        (["adapt", "shelf", "shots", "--method", "task_arithmetic", "--set", "strengths=-1"], "0 or more"),
        (["solve", "shelf", "shots", "--elements", "3", "--modules", "1"], "drop one"),
        (["solve", "shelf", "shots", "--elements", "0"], "--elements"),
        (["solve", "shelf", "shots", "--steps", "-1"], "--steps"),
        (["solve", "shelf"], "SUPPORT"),
    ],
)
def test_mistakes_are_one_line_and_code_two(place: Path, capsys, monkeypatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(place)
    (place / "texts.csv").write_text("text,label\nx,a\ny,b\n")
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and message in captured.err


def test_predictions_of_several_networks(place: Path, capsys, tmp_path: Path) -> None:
    recipe = tmp_path / "task.safetensors"
    told = run(capsys, "adapt", place / "shelf", place / "shots", "--mix", "both", "--passes", "3", "-o", recipe)
    assert 1 <= len(told["members"]) <= 2 and told["query_passes"] == 1 + len(told["members"])
    assert sum(told["weights"].values()) == pytest.approx(1)
    assert main(["adapt", *map(str, (place / "shelf", place / "shots")), "--mix", "predictions"]) == 0
    assert "averages the predictions of" in capsys.readouterr().out
    given = [str(recipe), str(place / "shots"), "--library", str(place / "shelf")]
    assert main(["predict", *given]) == 0
    assert main(["compose", str(place / "shelf"), "--recipe", str(recipe)]) == 2
    assert "use `smatter predict`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--mix", "both", "--passes", "0"],
        ["--mix", "both", "--passes", "5"],
        ["--mix", "both", "--passes", "many"],
        ["--mix", "both", "--branch", "nowhere"],
        ["--passes", "2"],
        ["--branch", "encoder"],
        ["--mix", "both", "--set", "mix=both"],
        ["--method", "best_source", "--mix", "both"],
    ],
)
def test_what_cannot_be_averaged_is_one_line(place: Path, capsys, wrong: list[str]) -> None:
    assert main(["adapt", str(place / "shelf"), str(place / "shots"), *wrong]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and ": " in error


def test_inputs_without_labels_help(place: Path, capsys, tmp_path: Path) -> None:
    recipe = tmp_path / "task.safetensors"
    given = [place / "shelf", place / "shots", "--queries", place / "shots"]
    told = run(capsys, "adapt", *given, "-o", recipe)
    assert told["queries"]["n"] == 6 and set(told["queries"]["shares"]) == {"cats", "dogs"}
    assert main(["adapt", *map(str, given)]) == 0
    assert "prototypes were moved by 6 inputs" in capsys.readouterr().out
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "broken.png").write_bytes(b"no picture")
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "some" / "black.png")
    assert (
        main(["predict", str(recipe), str(tmp_path / "some"), "--library", str(place / "shelf"), "--transductive"]) == 1
    )
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 3 and "moved by 1 inputs" in captured.err


@pytest.mark.parametrize("what", ["nowhere", "empty"])
def test_queries_that_are_not_there_are_one_line(place: Path, capsys, tmp_path: Path, what: str) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["adapt", str(place / "shelf"), str(place / "shots"), "--queries", str(tmp_path / what)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
