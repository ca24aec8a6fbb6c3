"""Folder trees and tables: how deep they are, what is left out and told, and what is refused."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_suites import picture, write_tree

from smatter.errors import InvalidSuite, SmatterError, SmatterWarning
from smatter.tasks import assemble, folders, tables
from smatter.tasks import open as opening
from smatter.tasks.open import n_files, open_suite, shipped_suites
from smatter.tasks.packed import write_packed
from smatter.tasks.suite import Suite

TREE = {"photo": "ab", "sketch": "abc"}


def names(suite: Suite) -> dict[str, list[str]]:
    return {domain.name: [each.name for each in domain.classes] for domain in suite.domains}


def warned(where: Path, **options) -> tuple[Suite, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        suite = open_suite(where, **options)
    assert all(issubclass(each.category, SmatterWarning) for each in caught)
    return suite, [str(each.message) for each in caught]


def test_domains_and_classes_are_told_by_depth(tmp_path: Path) -> None:
    suite = open_suite(write_tree(tmp_path / "tree", TREE), ood=["sketch"])
    assert names(suite) == {"photo": ["a", "b"], "sketch": ["a", "b", "c"]} and suite.name == "tree"
    assert [domain.role for domain in suite.domains] == ["id", "ood"] and suite.kind == "images"
    assert suite.domains[0].classes[0].key == suite.domains[1].classes[0].key
    flat = open_suite(write_tree(tmp_path / "flat", {".": "abc"}))
    assert names(flat) == {"flat": ["a", "b", "c"]} and len(flat.domains[0].store) == 9


def test_pictures_are_those_of_their_files(tmp_path: Path) -> None:
    suite = open_suite(write_tree(tmp_path / "tree", TREE))
    files = sorted((tmp_path / "tree" / "sketch").rglob("*.png"))
    wanted = np.stack([np.asarray(Image.open(file)) for file in files])
    assert np.array_equal(suite.domain("sketch").store.take(range(9)), wanted)


def test_the_size_is_the_median_of_the_longer_sides_or_what_is_asked_for(tmp_path: Path) -> None:
    for number, size in enumerate(((20, 10), (30, 30), (10, 40), (300, 300))):
        (tmp_path / "tree" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        picture(number, size).save(tmp_path / "tree" / "ab"[number % 2] / f"{number}.png")
    shapes = [open_suite(tmp_path / "tree", side=side).domains[0].store.take([0]).shape[1] for side in (None, 17)]
    assert shapes == [35, 17]
    for path in (tmp_path / "tree").rglob("*.png"):
        picture(len(path.name) + int(path.stem), (500, 500)).save(path)
    assert open_suite(tmp_path / "tree").domains[0].store.take([0]).shape == (1, 224, 224, 3)


def test_the_digest_depends_on_contents_not_on_where_they_lie_or_what_files_are_called(tmp_path: Path) -> None:
    one = open_suite(write_tree(tmp_path / "one" / "tree", TREE))
    moved = write_tree(tmp_path / "two" / "other", TREE)
    assert open_suite(moved).digest == one.digest
    (moved / "photo" / "a" / "0.png").rename(moved / "photo" / "a" / "00.png")
    assert open_suite(moved).digest == one.digest
    assert open_suite(moved, side=5).digest != one.digest != open_suite(moved, ood=["photo"]).digest
    picture(99).save(moved / "photo" / "a" / "00.png")
    assert open_suite(moved).digest != one.digest


def test_transparent_and_sixteen_bit_pictures_are_read(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", {".": "ab"})
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tree / "a" / "clear.png")
    Image.fromarray(np.full((8, 8), 65535, np.uint16)).save(tree / "b" / "deep.png")
    store = open_suite(tree).domains[0].store
    assert (store.take([3, 7]) == 255).all()


def truncated(path: Path) -> None:
    picture(0, (64, 64)).save(path)
    path.write_bytes(path.read_bytes()[:2000])


OMITTED: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "text beside images": ("photo/a/notes.txt", lambda path: path.write_text("x"), "is not an image"),
    "text called png": ("photo/a/x.png", lambda path: path.write_text("x"), "is not a PNG"),
    "empty file": ("photo/a/x.png", lambda path: path.touch(), "is not a PNG"),
    "truncated": ("photo/a/x.png", truncated, "cannot be read"),
    "huge": ("photo/a/x.png", lambda path: Image.new("1", (9000, 9000)).save(path), "megapixels"),
    "bomb": ("photo/a/x.png", lambda path: Image.new("1", (20_000, 10_000)).save(path), "megapixels"),
    "gif": ("photo/a/x.gif", lambda path: picture(0).save(path), "is not an image"),
    "folder in a class": ("photo/a/x", lambda path: path.mkdir(), "is not an image"),
    "empty class": ("photo/d", lambda path: path.mkdir(), "is empty"),
    "folder without classes": ("extra", lambda path: path.mkdir(), "no class folders"),
    "image beside classes": ("photo/x.png", lambda path: picture(0).save(path), "in no class folder"),
    "image beside domains": ("x.png", lambda path: picture(0).save(path), "in no class folder"),
    "same picture twice": (
        "photo/a/x.png",
        lambda path: path.write_bytes((path.parent / "0.png").read_bytes()),
        "same",
    ),
    "link out": ("photo/a/x.png", lambda path: path.symlink_to(path.parents[3] / "far.png"), "leads out"),
    "class that is a link out": ("photo/d", lambda path: path.symlink_to(path.parents[2]), "leads out"),
    "link to itself": ("photo/a/x.png", lambda path: path.symlink_to(path), "x.png"),
    "link to nothing": ("photo/a/x.png", lambda path: path.symlink_to("y.png"), "neither a file nor a folder"),
}


@pytest.mark.parametrize("case", OMITTED)
def test_what_cannot_be_used_is_left_out_by_name_and_changes_nothing(tmp_path: Path, case: str) -> None:
    tree = write_tree(tmp_path / "tree", TREE)
    picture(5).save(tmp_path / "far.png")
    digest = open_suite(tree).digest
    where, spoil, reason = OMITTED[case]
    spoil(tree / where)
    suite, told = warned(tree)
    assert suite.digest == digest
    assert len(told) == 1 and told[0].startswith("left out: ") and reason in told[0] and where in told[0]
    assert "\n" not in told[0]


def test_a_class_whose_pictures_are_all_damaged_is_left_out(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", TREE)
    for file in (tree / "sketch" / "c").iterdir():
        file.write_bytes(b"")
    suite, told = warned(tree)
    assert names(suite)["sketch"] == ["a", "b"] and len(told) == 4 and "class 'c'" in told[-1]


def test_hidden_files_and_links_inside_the_tree_are_no_mistake(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", TREE)
    (tree / ".git").mkdir()
    (tree / "photo" / "a" / ".DS_Store").touch()
    (tree / "LICENSE").write_text("free")
    (tree / "photo" / "a" / "link.png").symlink_to(Path("..", "b", "0.png"))
    assert len(open_suite(tree).domain("photo").store) == 7


def test_many_omissions_are_counted_not_listed(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", TREE)
    for number in range(30):
        (tree / "photo" / "a" / f"{number}.txt").touch()
    _, told = warned(tree)
    assert len(told) == assemble.MAX_WARNINGS + 1 and "10 more" in told[-1]


def single(folder: Path, name: str) -> Path:
    picture(1).save(folder / name)
    return folder


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing there": (lambda place: place / "nowhere", "does not exist"),
    "empty folder": (lambda place: place, "no images in class folders"),
    "images alone": (lambda place: single(place, "x.png"), "no images in class folders"),
    "one class": (lambda place: write_tree(place, {".": "a"}), "one class, 'a'"),
    "domain with one class": (lambda place: write_tree(place, {"photo": "ab", "one": "a"}), "domain 'one'.* one class"),
    "two depths": (lambda place: write_tree(place, {"photo": "ab", ".": "xy"}), "use one depth"),
    "classes alike": (lambda place: write_tree(place, {".": "aA"}), "'A' and 'a'.* rename one"),
    "domains alike": (lambda place: write_tree(place, {"photo": "ab", "Photo": "ab"}), "'Photo' and 'photo'"),
    "domains alike as files": (lambda place: write_tree(place, {"a b": "ab", "a-b": "ab"}), "'a b' and 'a-b'"),
    "escape codes": (lambda place: write_tree(place, {"photo\x1b[2J": "ab"}), "unprintable"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_trees_that_make_no_suite_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    make, message = REFUSED[case]
    where = make(tmp_path)
    with pytest.raises(SmatterError, match=message) as caught:
        open_suite(where)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_too_many_files_and_too_large_pictures_are_refused(tmp_path: Path, monkeypatch) -> None:
    tree = write_tree(tmp_path / "tree", TREE)
    monkeypatch.setattr(folders, "MAX_BYTES", 15 * 7 * 7 * 3)
    with pytest.raises(InvalidSuite, match="a size of at most 7"):
        open_suite(tree)
    assert open_suite(tree, side=7)
    with pytest.raises(InvalidSuite, match="from 1 to"):
        open_suite(tree, side=5000)
    monkeypatch.setattr(folders, "MAX_FILES", 10)
    with pytest.raises(InvalidSuite, match="more than 10 files"):
        open_suite(tree)


def test_names_with_spaces_and_of_other_scripts_get_short_names(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "My data", {"Hand writing": "ab", "漢字": "ab"})
    suite = open_suite(tree, ood=["Hand writing"])
    assert suite.name == "My-data" and suite.domain("Hand-writing").role == "ood"
    assert {domain.title for domain in suite.domains} == {"Hand writing", "漢字"}
    write_packed(tmp_path / "out", suite)
    assert names(open_suite(tmp_path / "out")) == names(suite)


def test_progress_counts_every_file(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", TREE)
    steps: list[int] = []
    open_suite(tree, progress=steps.append)
    assert sum(steps) == n_files(tree) == 15


def test_roles_of_a_built_suite_can_be_exchanged_its_size_cannot(tmp_path: Path) -> None:
    write_packed(tmp_path / "out", open_suite(write_tree(tmp_path / "tree", TREE), ood=["photo"]))
    assert [domain.role for domain in open_suite(tmp_path / "out").domains] == ["ood", "id"]
    assert [domain.role for domain in open_suite(tmp_path / "out", ood=["sketch"]).domains] == ["id", "ood"]
    with pytest.raises(InvalidSuite, match="it has photo, sketch"):
        open_suite(tmp_path / "out", ood=["nowhere"])
    with pytest.raises(InvalidSuite, match="built already"):
        open_suite(tmp_path / "out", side=4)


def test_a_shipped_suite_goes_by_its_name_and_a_folder_by_its_path(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(opening, "SHIPPED", tmp_path / "shipped")
    assert shipped_suites() == ()
    (tmp_path / "shipped").mkdir()
    write_packed(tmp_path / "shipped" / "toy", open_suite(write_tree(tmp_path / "tree", TREE)))
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "toy", {".": "xy"})
    assert shipped_suites() == ("toy",)
    assert "photo" in names(open_suite("toy")) and n_files("toy") == 0
    assert names(open_suite("./toy")) == names(open_suite(Path("toy"))) == {"toy": ["x", "y"]}


ROWS = [
    ("good day", "plus", "mail"),
    ("bad, bad day", "minus", "mail"),
    ("fine", "plus", "chat"),
    ("no", "minus", "chat"),
]


def write_rows(path: Path, rows: list[tuple], columns: tuple[str, ...] = ("text", "label", "domain")) -> Path:
    lines = [json.dumps(dict(zip(columns, row, strict=False))) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_tables_agree_whatever_their_form_and_order(tmp_path: Path) -> None:
    lines = ["domain,text,label,more", *(f'{domain},"{text}",{label},1' for text, label, domain in ROWS)]
    (tmp_path / "notes.csv").write_text("\n".join(lines))
    one = open_suite(tmp_path / "notes.csv", ood=["chat"])
    two = open_suite(write_rows(tmp_path / "rows.jsonl", ROWS[::-1]), ood=["chat"], name="notes")
    assert one.digest == two.digest and one.name == two.name == "notes" and one.kind == "texts"
    assert names(one) == {"chat": ["minus", "plus"], "mail": ["minus", "plus"]}
    assert one.domain("mail").store.take([0, 1]) == ("bad, bad day", "good day")


def test_a_table_without_domains_is_one(tmp_path: Path) -> None:
    suite = open_suite(write_rows(tmp_path / "notes.jsonl", [row[:2] for row in ROWS], ("text", "label")))
    assert names(suite) == {"notes": ["minus", "plus"]} and len(suite.domains[0].store) == 4


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("", "plus", "mail"), "line 5: no text"),
        (("x", None, "mail"), "line 5: no label"),
        (("x", "plus", ""), "line 5: no domain"),
        (("x", "plus"), "line 5: no domain"),
        (("x" * 100_001, "plus", "mail"), "line 5: 100001 characters"),
        (("\ud800", "plus", "mail"), "line 5: half a character"),
        (ROWS[0], "line 5: the same as line 1"),
    ],
)
def test_rows_that_cannot_be_used_are_left_out_by_line(tmp_path: Path, row: tuple, reason: str) -> None:
    digest = open_suite(write_rows(tmp_path / "a.jsonl", ROWS)).digest
    suite, told = warned(write_rows(tmp_path / "a.jsonl", [*ROWS, row]))
    assert suite.digest == digest and len(told) == 1 and reason in told[0] and "a.jsonl" in told[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "text,label\n", "no examples"),
        ("a.csv", "text,class\nx,a\n", "'label'"),
        ("a.csv", "text,label,domain,domain\nx,a,b,c\n", "two columns 'domain'"),
        ("a.csv", "text,label\nx,a\ny,a\n", "one class"),
        ("a.csv", "text,label\nx,cat\ny,Cat\n", "rename one"),
        ("a.csv", "text,label,domain\nx,a,d\ny,b,d\nz,a,e\n", "domain 'e'"),
        ("a.jsonl", "{", "not valid JSON"),
        ("a.xlsx", "x", "convert it"),
    ],
)
def test_tables_that_make_no_suite_are_refused_in_one_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidSuite, match=message) as caught:
        open_suite(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 3)
    with pytest.raises(InvalidSuite, match="more than 3 rows"):
        open_suite(write_rows(tmp_path / "a.jsonl", ROWS))
