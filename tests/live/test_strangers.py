"""Whatever the files of a stranger's base say, a command ends in one line, and large pictures take little memory."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tiny_libraries import WORDS, pixels_support, texts_support
from tiny_models import save, tiny_model

import smatter
from smatter.backbones import network
from smatter.backbones.images import Preprocessing
from smatter.backbones.network import rows_at_once
from smatter.cli.main import main
from smatter.errors import IncompatibleSource
from smatter.library.edit import init_library
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.model import open_task
from smatter.live.stream import predict_stream
from smatter.live.task import leave_one_out
from smatter.tasks.inputs import Input

Change = dict[str, Any] | list[Any]


def hostile_library(folder: Path, architecture: str, file: str, change: Change) -> Path:
    """A library whose base has a file with these settings."""
    base = folder / "base"
    save(tiny_model(architecture), base)
    (base / "vocab.txt").write_text("\n".join(WORDS[:30]))
    old = json.loads((base / file).read_text()) if (base / file).exists() else {}
    (base / file).write_text(json.dumps(old | change if isinstance(change, dict) else change))
    return init_library(folder / "library", base).folder


def write_shots(folder: Path, architecture: str) -> Path:
    if architecture in ("bert", "roberta", "gpt2"):
        (folder / "shots.csv").write_text("text,label\nfiller1,a\nfiller2,a\nfiller3,b\nfiller4,b\n")
        return folder / "shots.csv"
    for number, label in enumerate("aabb"):
        (folder / "shots" / label).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (60 * number, 0, 0)).save(folder / "shots" / label / f"{number}.png")
    return folder / "shots"


CONFIG, PREPROCESSOR, TOKENIZER = "config.json", "preprocessor_config.json", "tokenizer_config.json"
HOSTILE: list[tuple[str, str, Change]] = [
    ("bert", CONFIG, {"model_type": "detr", "backbone": "someone/x"}),
    ("bert", CONFIG, {"num_hidden_layers": 20_000}),
    ("bert", CONFIG, {"num_labels": 200_000_000, "id2label": None}),
    ("bert", CONFIG, {"vocab_size": 50_000_000}),
    ("bert", CONFIG, {"hidden_act": "evil"}),
    ("bert", CONFIG, {"num_attention_heads": 0}),
    ("bert", CONFIG, {"pad_token_id": -77}),
    ("bert", CONFIG, {"id2label": {"x": "y"}}),
    ("bert", CONFIG, {"layer_norm_eps": "small"}),
    ("gpt2", CONFIG, {"n_positions": 50_000_000}),
    ("vit", CONFIG, {"image_size": [8, 8, 8]}),
    ("vit", CONFIG, {"image_size": {}}),
    ("vit", CONFIG, {"patch_size": 0}),
    ("vit", CONFIG, {"num_channels": 5}),
    ("convnext", CONFIG, {"image_size": []}),
    ("convnext", PREPROCESSOR, {"size": 4096}),
    ("convnext", PREPROCESSOR, {"size": {"shortest_edge": 10**12}}),
    ("convnext", PREPROCESSOR, {"size": "large"}),
    ("convnext", PREPROCESSOR, {"size": 1}),
    ("convnext", PREPROCESSOR, {"image_mean": [0.5]}),
    ("convnext", PREPROCESSOR, {"image_std": {"a": 1}}),
    ("convnext", PREPROCESSOR, [1]),
    ("bert", TOKENIZER, {"tokenizer_class": "EvilTokenizer"}),
    ("bert", TOKENIZER, {"unk_token": 3}),
    ("bert", TOKENIZER, [1]),
    ("bert", "tokenizer.json", {"model": {"type": "WordLevel", "vocab": {"red": 0}, "unk_token": "[UNK]"}}),
]


@pytest.mark.parametrize(("architecture", "file", "change"), HOSTILE)
def test_a_hostile_file_ends_the_command_in_one_line(
    architecture: str, file: str, change: Change, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    library, shots = hostile_library(tmp_path, architecture, file, change), write_shots(tmp_path, architecture)
    capfd.readouterr()
    code = main(["adapt", str(library), str(shots), "--method", "average"])
    told = capfd.readouterr().err
    assert code == 2
    assert told.count("\n") == 1 and "internal" not in told, told


def test_a_classifier_whose_numbers_have_gaps_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    library = hostile_library(tmp_path, "vit", CONFIG, {"id2label": {"0": "a", "9": "b", "1": "c"}})
    shots = write_shots(tmp_path, "vit")
    capfd.readouterr()
    assert main(["adapt", str(library), str(shots), "--head", "linear"]) == 2
    assert "does not number its classes from zero" in capfd.readouterr().err


@pytest.mark.parametrize("side", [1, 384, 385, 1024])
def test_a_chunk_of_pictures_is_bounded_whatever_their_size(side: int) -> None:
    assert 1 <= rows_at_once(side, side) <= 64
    assert rows_at_once(side, side) * side * side <= 64 * 384 * 384
    assert (rows_at_once(side, side) == 64) == (side <= 384)


def test_pictures_that_take_gigabytes_are_refused() -> None:
    for size in (4096, [1, 2**21], {"shortest_edge": 1025}):
        with pytest.raises(IncompatibleSource, match="at most"):
            Preprocessing.of({"model_type": "convnext"}, {"size": size})
    assert Preprocessing.of({"model_type": "convnext"}, {"size": 1024}).height == 1024


def test_large_pictures_are_prepared_and_passed_few_at_a_time(
    vit_library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    support = pixels_support()
    live = LiveMixture(vit_library)
    objective = leave_one_out(live, support)
    whole_loss, whole = live.backward(objective), live.gradient_vector()
    paths = []
    for number in range(7):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", (20, 20), (30 * number, 255 - 30 * number, 99)).save(paths[-1])

    monkeypatch.setattr(network, "PIXELS_AT_ONCE", 3 * 8 * 8)
    assert live.backward(objective) == pytest.approx(whole_loss)
    torch.testing.assert_close(live.gradient_vector(), whole, rtol=1e-4, atol=1e-6)

    smatter.adapt(vit_library, support, "average").save(tmp_path / "task")
    model = open_task(tmp_path / "task", vit_library)
    sizes, prepare = [], model._resident.prepare
    monkeypatch.setattr(
        model._resident, "prepare", lambda given, kind: sizes.append(len(given)) or prepare(given, kind)
    )
    listed = model.predict(paths).probabilities
    assert sizes == [3, 3, 1]
    streamed = list(predict_stream(model, (Input(str(path), path) for path in paths)))
    assert [len(part) for part in streamed] == [3, 3, 1]
    found = [answer.prediction.probabilities for part in streamed for answer in part if answer.prediction]
    assert torch.equal(torch.stack(found), listed)


def test_texts_are_encoded_in_parts_to_the_same_tokens(bert_library: Library) -> None:
    live = LiveMixture(bert_library)
    texts = [*texts_support("law", n_shot=40).inputs]
    together = live.prepare(texts, "texts")["input_ids"]
    assert len(texts) > 128
    alone = [live.prepare([text], "texts")["input_ids"][0] for text in texts]
    assert all(torch.equal(row[: len(each)], each) for row, each in zip(together, alone, strict=True))
