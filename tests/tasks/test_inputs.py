"""Inputs without labels: their order, what is left out, what is told of those that cannot be read."""

import csv
import io
import json
import os
import random
from itertools import islice
from pathlib import Path

import pytest
from small_suites import picture

from smatter.errors import SmatterError
from smatter.tasks.inputs import LONGEST_LINE, Input, count_inputs, input_kind, read_inputs, read_lines
from smatter.tasks.rows import LONGEST_CELL, MAX_CHARACTERS, raw_rows


def lines(content: bytes) -> list[Input]:
    return list(read_lines(io.BytesIO(content), "texts"))


def paths(content: bytes) -> list[Input]:
    return list(read_lines(io.BytesIO(content), "images"))


def test_pictures_of_any_tree_come_sorted_without_hidden_and_other_files(tmp_path: Path) -> None:
    generator = random.Random(0)
    names = ["a", "a.b", "a-b", "B", "é", "z", ".hidden"]
    for number in range(300):
        parts = [generator.choice(names) for _ in range(generator.randrange(4))]
        (tmp_path / "tree" / Path(*parts)).mkdir(parents=True, exist_ok=True)
        suffix = generator.choice([".png", ".JPG", ".txt", ""])
        (tmp_path / "tree" / Path(*parts) / f"{generator.choice(['', '.'])}{number % 50}{suffix}").touch()
    wanted = [
        path
        for path in sorted((tmp_path / "tree").rglob("*"))
        if path.is_file()
        and path.suffix.lower() in (".png", ".jpg")
        and not any(part.startswith(".") for part in path.relative_to(tmp_path).parts)
    ]
    found = list(read_inputs(tmp_path / "tree"))
    assert [each.value for each in found] == wanted and [each.name for each in found] == list(map(str, wanted))
    assert count_inputs(tmp_path / "tree") == len(wanted) > 10


def test_links_to_pictures_are_read_and_those_to_folders_are_not(tmp_path: Path) -> None:
    picture(0).save(tmp_path / "outside.png")
    (tmp_path / "tree" / "below.png").mkdir(parents=True)
    (tmp_path / "tree" / "below.png" / "1.png").symlink_to(tmp_path / "outside.png")
    (tmp_path / "tree" / "round").symlink_to(tmp_path / "tree")
    (tmp_path / "tree" / "self.png").symlink_to(tmp_path / "tree" / "self.png")
    (tmp_path / "tree" / "gone.png").symlink_to(tmp_path / "nowhere")
    found = {each.name.rpartition("/")[2]: each.error for each in read_inputs(tmp_path / "tree")}
    assert list(found) == ["1.png", "gone.png", "self.png"] and not found["1.png"]
    assert "does not exist" in found["gone.png"] and "cannot be read" in found["self.png"]


def test_a_deep_tree_is_no_recursion(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(1500):
        Path("d").mkdir()
        os.chdir("d")
    Path("x.png").touch()
    os.chdir(tmp_path)
    assert count_inputs(Path("d")) == 1
    while Path("d").is_dir():  # what pytest's own removal could not
        os.chdir("d")
    Path("x.png").unlink()
    for _ in range(1500):
        os.chdir("..")
        Path("d").rmdir()


def test_texts_of_every_form_agree(tmp_path: Path) -> None:
    texts = ["good day", 'a "quoted", text', "nan but more", " spaces ", "é\u2028ü"]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["n", "text", "domain", "domain"], *([n, text, "", ""] for n, text in enumerate(texts))]
        )
    (tmp_path / "a.jsonl").write_text("\n\n".join(json.dumps({"text": text}) for text in texts))
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(texts).encode())
    for form in ("csv", "jsonl", "txt"):
        found = list(read_inputs(tmp_path / f"a.{form}"))
        assert [each.value for each in found] == [each.name for each in found] == texts, form


def test_a_broken_row_is_told_and_the_next_one_read(tmp_path: Path) -> None:
    rows = ['{"text": "x"}', "{", "[]", '{"text": 3}', '{"text": "\\ud800"}', '{"label": "a"}', '{"text": "y"}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    found = list(read_inputs(tmp_path / "a.jsonl"))
    assert [each.value for each in found] == ["x", *[None] * 5, "y"]
    for each, message in zip(found[1:6], ("JSON", "object", "no text", "half a character", "object"), strict=True):
        assert message in each.error and "\n" not in each.error
    assert found[4].name == "\\ud800" and "line 5" in found[4].error
    with pytest.raises(SmatterError, match="line 2: not valid JSON"):
        list(raw_rows(tmp_path / "a.jsonl"))


def test_a_byte_that_is_no_character_costs_one_row_of_a_csv_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text,label\ngood,a\nbad \xff byte,b\nlast,a\n")
    found = list(read_inputs(tmp_path / "a.csv"))
    assert [each.value for each in found] == ["good", None, "last"] and "line 3" in found[1].error
    with pytest.raises(SmatterError, match="UTF-8"):
        list(raw_rows(tmp_path / "a.csv"))


def test_a_folder_that_may_not_be_looked_into_is_one_row(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "a.png").touch()
    scan = os.scandir

    def refused(folder: Path) -> object:
        if folder.name == "locked":  # root may look into everything
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refused)
    assert [bool(each.error) for each in read_inputs(tmp_path)] == [False, True]


def test_a_cell_that_is_too_long_is_one_row_of_a_csv_file(tmp_path: Path) -> None:
    usual = csv.field_size_limit()
    texts = ["x" * MAX_CHARACTERS, "x" * (MAX_CHARACTERS + 1), "line\n" * MAX_CHARACTERS, "fine"]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    found = list(read_inputs(tmp_path / "a.csv"))
    assert [each.value for each in found] == [texts[0], None, None, "fine"]
    assert all("above 100000" in each.error and len(each.name) < 200 for each in found[1:3])
    assert csv.field_size_limit() == usual
    (tmp_path / "b.csv").write_text('text\n"' + "x" * (LONGEST_CELL + 1))
    with pytest.raises(SmatterError, match="not CSV"):
        count_inputs(tmp_path / "b.csv")


def test_lines_are_texts_whatever_is_in_them() -> None:
    found = lines(b"one\r\n\n  \nnan\n\xff\n\x00\x1b[2J\nlast")
    assert [each.value for each in found] == ["one", None, None, "nan", None, "\x00\x1b[2J", "last"]
    assert "line 2: no text" in found[1].error and found[1].name == ""
    assert "line 5: not in UTF-8" in found[4].error and found[4].name == "\\xff"


def test_the_longest_lines() -> None:
    longest = "\U0001f600" * MAX_CHARACTERS
    found = lines(b"\xef\xbb\xbf" + f"{longest}\r\n{longest}x\n{longest}{longest}\nfine\n{longest}".encode())
    assert [each.value for each in found] == [longest, None, None, "fine", longest]
    assert all("characters" in each.error and len(each.name) < 200 for each in found[1:3])


class Endless(io.RawIOBase):
    """Lines for ever, the first of them very long; counts what is asked of it."""

    def __init__(self, n_long: int) -> None:
        self.n_asked, self.n_long = 0, n_long

    def readline(self, size: int = -1) -> bytes:
        self.n_asked += 1
        assert 0 < size < 2 * LONGEST_LINE
        return b"x" * size if self.n_asked <= self.n_long else b"text\n"


def test_lines_are_read_when_they_are_asked_for() -> None:
    file = Endless(n_long=50)
    found = list(islice(read_lines(file, "texts"), 10))
    assert [bool(each.error) for each in found] == [True, *[False] * 9] and file.n_asked == 60


def test_lines_are_paths_of_pictures(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9.png")
    picture(0).save(tmp_path / "x.png")
    picture(0).save(name)
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    found = paths(
        b"./x.png\ncaf\xe9.png\n\npipe.png\nfolder.png\ngone\nnul\x00\nx.png/y\n" + b"n" * 5000 + b"\n/dev/zero"
    )
    assert [each.value for each in found] == [Path("x.png"), Path(name), *[None] * 8]
    assert [each.name for each in found[:2]] == ["./x.png", "caf\\xe9.png"]
    messages = ("no path", "pipe", "folder", "not exist", "null", "directory", "too long", "device")
    for each, message in zip(found[2:], messages, strict=True):
        assert message in each.error and each.error.isprintable() and len(each.error) < 1100


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.txt", None, "does not exist"),
        ("a.gif", b"x", "neither a folder"),
        ("a", b"x", "neither a folder"),
        ("a.txt", b"", "holds no texts"),
        ("a.csv", b"", "is empty; write a line `text`"),
        ("a.csv", b"text\n", "holds no texts"),
        ("a.csv", b"label\nx\n", "needs one column 'text'; its first line must name text"),
        ("a.csv", b"text,text\nx,y\n", "needs one column 'text'"),
        ("a.csv", b'text\nx\n"y\n', "not CSV"),
        ("a.jsonl", b"\n\n", "holds no texts"),
        ("folder", None, "holds no pictures"),
        ("pipe.txt", None, "pipe"),
        ("pipe.csv", None, "no regular file"),
    ],
)
def test_what_holds_no_inputs_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    elif name == "folder":
        path.mkdir()
        (path / ".x.png").touch()
    elif name.startswith("pipe"):
        os.mkfifo(path)
    with pytest.raises(SmatterError, match=message) as caught:
        count_inputs(path)
    assert "\n" not in str(caught.value)


def test_what_a_place_holds(tmp_path: Path) -> None:
    for name in ("a.PNG", "a.csv", "a.txt"):
        (tmp_path / name).touch()
    kinds = [input_kind(tmp_path / name) for name in (".", "a.PNG", "a.csv", "a.txt")]
    assert kinds == ["images", "images", "texts", "texts"]
