"""Support sets: what is read, in which order, and what is refused in one line."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from smatter.backbones.images import open_image
from smatter.errors import InvalidSupport, NotFound, SmatterError, SmatterWarning
from smatter.tasks import support as support_module
from smatter.tasks.support import Support, read_support


def picture(seed: int = 0, size: int = 8) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (size, size, 3), np.uint8))


def write_folder(folder: Path, classes: str = "ab", n_each: int = 2, suffix: str = "png") -> Path:
    for label in classes:
        (folder / label).mkdir(parents=True)
        for number in range(n_each):
            picture(number).save(folder / label / f"{number}.{suffix}")
    return folder


@pytest.mark.parametrize("suffix", ["png", "jpg", "jpeg", "webp", "bmp", "PNG"])
def test_class_folders_are_read_sorted(tmp_path: Path, suffix: str) -> None:
    support = read_support(write_folder(tmp_path / "shots", "ba", 2, suffix))
    assert support.class_names == ("a", "b") and support.labels == (0, 0, 1, 1) and support.kind == "images"
    assert [path.stem for path in support.inputs] == ["0", "1", "0", "1"]


def test_hidden_and_stray_files_are_no_classes(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shots")
    (folder / "README.txt").write_text("mine")
    (folder / ".DS_Store").write_text("")
    (folder / "a" / ".thumbs").write_text("")
    assert len(read_support(folder)) == 4


def test_a_stray_file_in_a_class_folder_is_left_out_with_a_notice(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shots")
    (folder / "a" / "notes.txt").write_text("mine")
    (folder / "a" / "more.txt").write_text("mine")
    with pytest.warns(SmatterWarning, match=r"left out: .*more.txt and 1 more of its files: not an image"):
        assert len(read_support(folder)) == 4


def write_flat(folder: Path, table: str | None) -> Path:
    for number in range(3):
        picture(number).save(folder / f"{number}.png")
    if table is not None:
        (folder / "labels.csv").write_text(table)
    return folder


def test_a_file_of_labels_names_the_classes_of_a_folder(tmp_path: Path) -> None:
    support = read_support(write_flat(tmp_path, "label,file\ncat,2.png\ndog,0.png\n"))
    assert support.class_names == ("cat", "dog") and support.inputs == (tmp_path / "2.png", tmp_path / "0.png")


def test_class_folders_count_even_if_there_is_a_file_of_labels(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shots")
    (folder / "labels.csv").write_text("something,else\n")
    assert read_support(folder).class_names == ("a", "b")


ROWS = [("good day", "plus"), ("bad, bad day", "minus"), ("fine", "plus")]


def test_tables_agree_whatever_their_form_and_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('label,text,more\nplus,good day,1\nminus,"bad, bad day",2\nplus,fine,3\n')
    lines = [json.dumps({"text": text, "label": label}) for text, label in reversed(ROWS)]
    (tmp_path / "b.jsonl").write_text("\n\n".join(lines) + "\n")
    first, second = read_support(tmp_path / "a.csv"), read_support(tmp_path / "b.jsonl")
    assert first == second
    assert first.class_names == ("minus", "plus") and first.inputs == ("bad, bad day", "fine", "good day")
    assert first.class_sizes == (1, 2)


def test_numbers_label_rows_of_jsonl(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 1}\n{"text": "y", "label": 0}\n')
    assert read_support(tmp_path / "a.jsonl").class_names == ("0", "1")


def test_examples_from_python() -> None:
    assert Support.of([picture(0), picture(1)], ["b", "a"]).labels == (1, 0)
    assert Support.of(torch.zeros(3, 3, 4, 4), [2, 7, 2]).class_names == ("2", "7")
    assert Support.of([torch.zeros(3, 4, 4), torch.ones(3, 4, 4)], torch.tensor([0, 1])).kind == "images"
    assert Support.of(torch.ones(2, 5, dtype=torch.int64), ["x", "y"]).kind == "texts"


def folder_of(*, extra: Callable[[Path], None]) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        folder = write_folder(place / "shots")
        extra(folder)
        return folder

    return make


def file_of(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        (place / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return place / name

    return make


def other_pictures(folder: Path) -> None:
    (folder / "c").mkdir()
    (folder / "c" / "x.heic").write_text("x")


def truncated(folder: Path) -> None:
    picture(0, 64).save(folder / "a" / "cut.png")
    (folder / "a" / "cut.png").write_bytes((folder / "a" / "cut.png").read_bytes()[:2000])


def bomb(folder: Path) -> None:
    Image.new("1", (9000, 9000)).save(folder / "a" / "bomb.png")


def large_bomb(folder: Path) -> None:
    Image.new("1", (20_000, 10_000)).save(folder / "a" / "bomb.png")


MISTAKES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing there": (lambda place: place / "nowhere", "does not exist"),
    "one class": (lambda place: write_folder(place / "shots", "a"), "only one class"),
    "empty class": (folder_of(extra=lambda folder: (folder / "c").mkdir()), "is empty"),
    "no classes": (lambda place: place, "no class folders"),
    "image in no class": (folder_of(extra=lambda folder: picture().save(folder / "x.png")), "in no class folder"),
    "no image in a class": (
        folder_of(extra=other_pictures),
        "holds no images",
    ),
    "a task": (
        lambda place: write_folder(place / "thai" / "support").parent,
        "is a task with its queries: give .*support",
    ),
    "a folder of tasks": (
        lambda place: write_folder(place / "my tasks" / "thai" / "support").parents[1],
        "give '.*support'",
    ),
    "images and no labels": (lambda place: write_flat(place, None), "or name their classes in labels.csv"),
    "labels of other columns": (lambda place: write_flat(place, "name,label\n0.png,a\n"), "needs one column 'file'"),
    "labels without a label": (lambda place: write_flat(place, "file,label\n0.png,\n"), "line 2: no label"),
    "labels of a lost file": (lambda place: write_flat(place, "file,label\n9.png,a\n"), "9.png does not exist"),
    "labels of files elsewhere": (lambda place: write_flat(place, "file,label\n../x.png,a\n"), "no file of the folder"),
    "text as png": (folder_of(extra=lambda folder: (folder / "a" / "x.png").write_text("x") and None), "is not a PNG"),
    "gif as png": (
        folder_of(extra=lambda folder: picture().save(folder / "a" / "x.png", format="GIF")),
        "is not a PNG",
    ),
    "folder in class": (
        folder_of(extra=lambda folder: (folder / "a" / "x.png").mkdir()),
        "a folder where images should be",
    ),
    "truncated": (folder_of(extra=truncated), "cannot be read"),
    "bomb": (folder_of(extra=bomb), "megapixels"),
    "large bomb": (folder_of(extra=large_bomb), "megapixels"),
    "empty image": (folder_of(extra=lambda folder: (folder / "a" / "x.png").touch()), "is not a PNG"),
    "unknown suffix": (file_of("a.xlsx", "x"), "neither a folder"),
    "empty csv": (file_of("a.csv", ""), "is empty"),
    "header alone": (file_of("a.csv", "text,label\n"), "no examples"),
    "no label column": (file_of("a.csv", "text\nx\n"), "'label'"),
    "no text column": (file_of("a.csv", "label,txt\nx,y\n"), "'text'"),
    "label column twice": (file_of("a.csv", "text,label,label\nx,y,z\n"), "'label'"),
    "missing label": (file_of("a.csv", "text,label\nx,a\ny,\n"), "line 3: no label"),
    "short row": (file_of("a.csv", "text,label\nx,a\ny\n"), "line 3: no label"),
    "missing text": (file_of("a.csv", "text,label\n  ,a\n"), "no text"),
    "nan in csv": (file_of("a.csv", "text,label\nx,a\ny,nan\n"), "no label"),
    "one class in csv": (file_of("a.csv", "text,label\nx,a\ny,a\n"), "only one class"),
    "not utf-8": (file_of("a.csv", b"text,label\n\xff\xfe,a\n"), "UTF-8"),
    "nul": (file_of("a.csv", b'text,label\n"x,a\n'), "not CSV"),
    "long text": (file_of("a.csv", f"text,label\n{'x' * 100_001},a\ny,b\n"), "above 100000"),
    "long cell": (file_of("a.csv", f"text,label\n{'x' * 200_000},a\ny,b\n"), "not CSV"),
    "long label": (file_of("a.csv", f"text,label\nx,{'a' * 1001}\n"), "exchanged"),
    "empty jsonl": (file_of("a.jsonl", "\n"), "no examples"),
    "broken jsonl": (file_of("a.jsonl", '{"text": "x", "label"'), "line 1: not valid JSON"),
    "deep jsonl": (file_of("a.jsonl", "[" * 100_000), "line 1: not valid JSON"),
    "list in jsonl": (file_of("a.jsonl", '["x", "a"]\n'), "not an object"),
    "nan in jsonl": (file_of("a.jsonl", '{"text": "x", "label": NaN}\n'), "NaN"),
    "float in jsonl": (file_of("a.jsonl", '{"text": "x", "label": 1.5}\n'), "no label"),
    "no label in jsonl": (file_of("a.jsonl", '{"text": "x"}\n'), "no label"),
    "number as text": (file_of("a.jsonl", '{"text": 3, "label": "a"}\n'), "no text"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises((InvalidSupport, NotFound), match=message) as caught:
        for given in read_support(make(tmp_path)).inputs:
            open_image(given)  # what only its pixels tell is found when they are decoded
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (["x", "y"], ["a"], "one label per input"),
        ([], [], "no examples"),
        (["x", "y"], ["a", "a"], "only one class"),
        (["x", "y"], ["a", 1], "one kind"),
        (["x", "y"], ["a", " "], "empty"),
        (["x", "y"], ["a", float("nan")], "neither a string nor an integer"),
        (["x", " "], ["a", "b"], "empty one"),
        (["x", picture()], ["a", "b"], "not both"),
        ([picture(), 3], ["a", "b"], "not an image"),
        (torch.full((2, 3, 4, 4), torch.nan), ["a", "b"], "NaN"),
        (torch.zeros(2, 3, 4), ["a", "b"], "shape"),
        ([torch.zeros(3, 4, 4), torch.zeros(3, 5, 5)], ["a", "b"], "different shapes"),
    ],
)
def test_bad_examples_are_refused_in_one_line(inputs, labels, message: str) -> None:
    with pytest.raises(SmatterError, match=message) as caught:
        Support.of(inputs, labels)
    assert "\n" not in str(caught.value)


def test_too_many_examples(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(support_module, "MAX_EXAMPLES", 3)
    with pytest.raises(InvalidSupport, match="more than 3"):
        read_support(write_folder(tmp_path / "shots"))
    (tmp_path / "a.csv").write_text("text,label\n" + "x,a\n" * 4)
    with pytest.raises(InvalidSupport, match="more than 3"):
        read_support(tmp_path / "a.csv")
    with pytest.raises(InvalidSupport, match="more than the limit"):
        Support.of(["x"] * 4, ["a", "b"] * 2)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\n" + "," * 20_000_000),
        ("a.csv", "," * 20_000_000),
        ("a.csv", "text,label\n" + '"\n",' * 5_000_000),
        ("a.jsonl", "[" * 20_000_000),
        ("a.jsonl", '{"text": "a", "x": [' + "[]," * 5_000_000),
    ],
)
def test_a_row_without_end_is_refused_before_it_is_in_memory(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    tracemalloc.start()
    with pytest.raises(InvalidSupport, match=r"more than \d+000000 (characters|bytes)"):
        read_support(tmp_path / name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000_000


def test_a_support_set_tells_its_size_and_classes() -> None:
    support = Support.of(["a fine day", "a sad day"], ["good", "bad"])
    assert repr(support) == "Support of 2 texts, 2 classes: bad, good"
