"""Inputs as people have them: whatever form the same pictures or texts have, they are the same examples."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_libraries import texts_support

import smatter
from smatter.backbones.images import Preprocessing
from smatter.errors import InvalidSupport, NotFound
from smatter.library.library import Library
from smatter.tasks.given import check_inputs, gather, labelled, several
from smatter.tasks.support import Support

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 7, 3), np.uint8)
LABELS = ["a", "b"] * 3


def as_arrays(inputs: Any) -> list[np.ndarray]:
    return [np.asarray(image) for image in gather(several(inputs))[0]]


class Dataset:
    """What torch asks of a dataset; an index beyond its end is no error."""

    classes = ("a", "b")

    def __len__(self) -> int:
        return len(PIXELS)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(PIXELS[index % len(PIXELS)]), index % 2


def rows() -> Iterator[dict[str, Any]]:
    return ({"image": Image.fromarray(each), "label": label} for each, label in zip(PIXELS, LABELS, strict=True))


FORMS: dict[str, Any] = {
    "array": lambda: PIXELS,
    "list of arrays": lambda: list(PIXELS),
    "channels first": lambda: PIXELS.transpose(0, 3, 1, 2),
    "torch bytes": lambda: torch.from_numpy(PIXELS).permute(0, 3, 1, 2),
    "larger integers": lambda: PIXELS.astype(np.int64),
    "floats to 1": lambda: PIXELS / 255,
    "floats to 255": lambda: PIXELS.astype(np.float32),
    "generator": lambda: (Image.fromarray(each) for each in PIXELS),
    "torch's dataset": Dataset,
    "rows": rows,
    "columns": lambda: {"image": list(PIXELS), "label": LABELS},
    "array of images": lambda: tuple(map(Image.fromarray, PIXELS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_pictures_in_any_form(form: str) -> None:
    found = as_arrays(FORMS[form]())
    assert len(found) == len(PIXELS) and all(map(np.array_equal, found, PIXELS))


@pytest.mark.parametrize("form", ["torch's dataset", "rows", "columns"])
def test_a_dataset_has_its_labels(form: str) -> None:
    support = Support.of(FORMS[form]())
    assert support.class_names == ("a", "b") and support.labels == (0, 1) * 3
    assert all(map(np.array_equal, map(np.asarray, support.inputs), PIXELS))


def test_names_of_classes_come_from_the_dataset_and_from_the_whole_of_a_part() -> None:
    part = torch.utils.data.Subset(Dataset(), [1, 4, 3])  # type: ignore[arg-type]
    assert labelled(part)[1] == ["b", "a", "b"]
    features = {"label": SimpleNamespace(names=["no", "yes"])}
    hub = type("Hub", (list,), {"features": features})([{"text": "x", "label": 1}, {"text": "y", "label": 0}])
    assert labelled(hub) == (["x", "y"], ["yes", "no"])


@pytest.mark.parametrize(
    ("one", "shape"),
    [
        (PIXELS[0], (9, 7, 3)),
        (PIXELS[0, :, :, 0], (9, 7)),
        (PIXELS[0] / 255, (9, 7, 3)),
        (PIXELS[0, :, :, :1], (9, 7)),
        (PIXELS[0, :, :, 0] > 99, (9, 7)),
        (Image.fromarray(PIXELS[0]), (9, 7, 3)),
        (np.dstack([PIXELS[0], PIXELS[0, :, :, :1]]), (9, 7, 4)),
        ({"image": Image.fromarray(PIXELS[0]), "label": 3}, (9, 7, 3)),
    ],
)
def test_one_alone_is_one(one: Any, shape: tuple[int, ...]) -> None:
    (found,) = as_arrays(one)
    assert found.shape == shape


def test_tensors_that_are_prepared_stay_what_they_are() -> None:
    pixels, tokens = torch.randn(2, 3, 4, 4), torch.arange(6).reshape(2, 3)
    assert torch.equal(gather(several(pixels))[0], pixels) and torch.equal(gather(several(pixels[0]))[0], pixels[:1])
    for given in (tokens, tokens.numpy(), list(tokens), list(tokens.numpy())):
        found, kind = gather(several(given))
        assert kind == "texts" and torch.equal(found, tokens)
    assert torch.equal(gather(several(tokens[0]))[0], tokens[:1])


def test_a_dark_picture_has_the_range_of_the_others() -> None:
    dark = PIXELS.astype(np.float32)
    dark[0] = 1
    assert as_arrays(dark)[0].max() == 1 and as_arrays(dark[:1])[0].max() == 255


def test_strings_are_what_the_network_takes() -> None:
    names = ["a.png", "b.PNG"]
    assert gather(names) == (tuple(names), "texts")
    assert gather(names, takes_images=True) == (tuple(map(Path, names)), "images")
    support = Support.of(names, ["x", "y"])
    assert support.for_network(takes_images=False) is support
    assert support.for_network(takes_images=True) == Support(tuple(map(Path, names)), (0, 1), ("x", "y"), "images")
    texts = Support.of(["a.png", "a fine day"], ["x", "y"])
    assert texts.for_network(takes_images=True) is texts


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (PIXELS / 100, "from 0 to 1 or from 0 to 255"),
        (PIXELS / 127.5 - 1, "prepared ones as a torch tensor"),
        (np.full((2, 9, 7, 3), np.nan), "reach from nan"),
        (PIXELS * 2.0, "reach from"),
        (PIXELS.astype(np.uint16) * 257, "scale it"),
        (PIXELS.astype(np.int64) - 3, "scale it"),
        (np.zeros((3, 28, 28), np.uint8), "one picture in colour or three grey ones"),
        (np.zeros((1, 3, 28, 3), np.uint8), "first or last"),
        (np.zeros((2, 9, 7, 5), np.uint8), "is no picture"),
        (np.zeros((2, 0, 7, 3), np.uint8), "is no picture"),
        ([PIXELS[0], 3], "not an image"),
        (3, "inputs are int"),
        ({"picture": 1}, "keys picture has no input"),
    ],
)
def test_what_cannot_be_told_is_refused_in_one_line(inputs: Any, message: str) -> None:
    with pytest.raises(InvalidSupport, match=message) as caught:
        check_inputs(*gather(several(inputs)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ([{"image": 1, "lable": 2}], "keys image, lable has no label"),
        (["a", "b"], "have no labels"),
        ("shots/", "read_support"),
    ],
)
def test_a_dataset_without_labels_is_refused(dataset: Any, message: str) -> None:
    with pytest.raises(InvalidSupport, match=message):
        Support.of(dataset)


def test_pixels_that_are_not_scaled_are_noticed() -> None:
    wants = Preprocessing(8, 8)
    scaled = wants.scaled(PIXELS)
    wants.check(scaled)
    wants.check(scaled.abs() + 0.01)
    raw = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)[:, :, :8, :7]
    raw = torch.nn.functional.pad(raw, (0, 1))
    for wrong in (raw / 255, raw.float()):
        with pytest.raises(InvalidSupport, match="not scaled"):
            wants.check(wrong)
    Preprocessing(8, 8, mean=(0.0,) * 3, std=(1.0,) * 3).check(raw / 255)
    wants.check(torch.zeros(1, 3, 8, 8))


def test_a_network_takes_any_form_alike(vit_library: Library, tmp_path: Path) -> None:
    pictures = [Image.fromarray(each) for each in PIXELS]
    paths = [str(tmp_path / f"{number}.png") for number in range(len(pictures))]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    adapted = smatter.adapt(vit_library, Support.of(paths, LABELS))
    same = smatter.adapt(vit_library, Dataset())
    assert adapted.mixture == same.mixture and adapted.class_names == same.class_names
    expected = adapted.predict(pictures).probabilities
    for given in (paths, PIXELS, Dataset(), (each for each in pictures)):
        assert torch.equal(adapted.predict(given).probabilities, expected)
    for one in (paths[0], Path(paths[0]), pictures[0], PIXELS[0]):
        assert adapted.predict(one).names == adapted.predict(pictures[:1]).names
    moved = smatter.adapt(vit_library, Dataset(), queries=(each for each in pictures))
    assert moved.learnt and moved.learnt.n_queries == len(pictures)
    adapted.save(tmp_path / "r.safetensors")
    runtime = smatter.MergedRuntime(vit_library)
    runtime.load("task", tmp_path / "r.safetensors")
    assert torch.equal(runtime.prepare(PIXELS)["pixel_values"], runtime.prepare(pictures)["pixel_values"])
    assert len(runtime.prepare(paths[0])["pixel_values"]) == 1
    with pytest.raises(NotFound, match="check the path"):
        adapted.predict("no such picture")
    with pytest.raises(InvalidSupport, match="is a folder; give the paths"):
        adapted.predict(str(tmp_path))
    with pytest.raises(InvalidSupport, match="takes images, not texts"):
        smatter.adapt(vit_library, Support.of(["a fine day", "a sad day"], ["x", "y"]))


def test_to_a_network_of_texts_one_text_is_one_and_no_path(topics: Library, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("law0a").write_text("a file of the same name")
    adapted = smatter.adapt(topics, texts_support("food", n_shot=2))
    assert torch.equal(adapted.predict("law0a").probabilities, adapted.predict(["law0a"]).probabilities)
