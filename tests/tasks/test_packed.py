"""The compact form: what is written is what is read, all or nothing, and strangers' files are refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_suites import keys, picture_suite, text_suite, usual_suite

from smatter.errors import AlreadyExists, InvalidSuite, SmatterError
from smatter.tasks import packed
from smatter.tasks.assemble import Omissions
from smatter.tasks.packed import read_packed, write_packed
from smatter.tasks.stores import Texts
from smatter.tasks.suite import Suite
from smatter.tasks.tables import read_table


def pixels(suite: Suite) -> list[np.ndarray]:
    return [np.asarray(domain.store.take(range(len(domain.store)))) for domain in suite.domains]


@pytest.mark.parametrize("styles", [(), ("a", "b")], ids=["plain", "styles"])
@pytest.mark.parametrize("n_classes", [2, 40])
@pytest.mark.parametrize("longest", [16_383, 100], ids=["webp", "png"])
def test_a_suite_survives_the_way_to_disk(tmp_path: Path, monkeypatch, styles, n_classes: int, longest: int) -> None:
    monkeypatch.setattr(packed, "WEBP_SIDE", longest)
    suite = picture_suite(n_classes, styles=styles)
    write_packed(tmp_path / "out", suite)
    again = read_packed(tmp_path / "out")
    assert (again.name, again.kind, again.packages) == (suite.name, suite.kind, suite.packages)
    for before, after in zip(suite.domains, again.domains, strict=True):
        assert before.classes == after.classes and before.role == after.role and before.title == after.title
        assert before.styles == after.styles and before.style_of == after.style_of
        assert before.packages == after.packages
    assert all(map(np.array_equal, pixels(suite), pixels(again)))
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".webp" if longest > 100 else ".png"}


def test_packing_twice_gives_the_same_files_and_digest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_packed(tmp_path / name, picture_suite())
    write_packed(tmp_path / "three", read_packed(tmp_path / "one"))
    digests = {read_packed(tmp_path / name).digest for name in ("one", "two", "three")}
    assert len(digests) == 1
    assert (tmp_path / "one" / "suite.json").read_bytes() == (tmp_path / "two" / "suite.json").read_bytes()


def test_an_interrupted_writer_leaves_the_old_suite(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_packed(tmp_path / "out", picture_suite(), progress=stop)
    assert not list(tmp_path.iterdir())
    write_packed(tmp_path / "out", picture_suite(2))
    digest = read_packed(tmp_path / "out").digest
    with pytest.raises(KeyboardInterrupt):
        write_packed(tmp_path / "out", picture_suite(3), replace=True, progress=stop)
    assert read_packed(tmp_path / "out").digest == digest and len(list(tmp_path.iterdir())) == 1


def test_only_an_older_suite_is_replaced(tmp_path: Path) -> None:
    write_packed(tmp_path / "out", picture_suite(2))
    with pytest.raises(AlreadyExists, match="--replace"):
        write_packed(tmp_path / "out", picture_suite(3))
    write_packed(tmp_path / "out", picture_suite(3), replace=True)
    assert len(read_packed(tmp_path / "out").domains[0].classes) == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(AlreadyExists):
        write_packed(tmp_path / "mine", picture_suite(3), replace=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"


def test_texts_survive_the_way_to_disk(tmp_path: Path) -> None:
    suite = text_suite({"one": ("id", keys(0, 5)), "two": ("ood", keys(3, 9))}, styles=("a", "b"))
    texts = [*(f'{number} « \u2028 "quoted"\n' for number in range(59)), "\ufeffmark"]
    suite = replace(suite, domains=(replace(suite.domains[0], store=Texts(texts)), suite.domains[1]))
    write_packed(tmp_path / "out", suite)
    again = read_packed(tmp_path / "out")
    assert (again.name, again.kind) == (suite.name, "texts")
    for before, after in zip(suite.domains, again.domains, strict=True):
        everything = range(len(before.store))
        assert before.store.take(everything) == after.store.take(everything)
        assert (before.classes, before.role, before.title) == (after.classes, after.role, after.title)
        assert before.styles == after.styles and before.style_of == after.style_of
    table = read_table(tmp_path / "out" / "two.jsonl", Omissions())
    store = table.domains[0].store
    assert {*store.take(range(len(store)))} == {*suite.domains[1].store.take(range(len(store)))}


@pytest.mark.parametrize("damage", ["fewer", "more", "other order", "no row"])
def test_texts_that_are_not_those_of_the_table_are_refused(tmp_path: Path, damage: str) -> None:
    write_packed(tmp_path / "out", usual_suite())
    path = tmp_path / "out" / "print.jsonl"
    rows = path.read_text().splitlines()
    changed = {"fewer": rows[:-1], "more": [*rows, rows[-1]], "other order": rows[::-1], "no row": [*rows[:-1], "[]"]}
    path.write_text("\n".join(changed[damage]))
    suite = read_packed(tmp_path / "out")
    with pytest.raises(InvalidSuite) as caught:
        suite.domain("print").store.take([0])
    assert "\n" not in str(caught.value)
    assert suite.domain("hand").store.take([0])


def test_sheets_beyond_the_limit_are_refused_before_anything_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(packed, "MAX_PIXELS", 64 * 100 + 100)
    with pytest.raises(InvalidSuite, match="a size of at most 6") as caught:
        write_packed(tmp_path / "out", picture_suite(10, 10, side=16))
    assert "colour" in str(caught.value) and not list(tmp_path.iterdir())
    write_packed(tmp_path / "out", picture_suite(10, 10, side=6))


def damage(table: dict, path: str, value: object) -> None:
    *way, last = path.split(".")
    for step in way:
        table = table[int(step) if step.isdigit() else step]
    table[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", 2, "schema"),
        ("name", "../x", "name"),
        ("image_size", 0, "image_size"),
        ("kind", "texts", "image_size"),
        ("kind", "sounds", "kind"),
        ("domains", [], "no domains"),
        ("domains.0.role", "maybe", "role"),
        ("domains.0.sheet", "../colour.webp", "sheet"),
        ("domains.0.sheet", "/etc/passwd", "sheet"),
        ("domains.0.sheet", "missing.webp", "does not exist"),
        ("domains.0.name", "grey", "same name"),
        ("domains.0.styles", ["a"], "style without a name"),
        ("domains.0.styles", [], "style without a name"),
        ("domains.0.classes", [], "no classes"),
        ("domains.0.classes.0.examples", [], "examples"),
        ("domains.0.classes.0.examples", [-1], "examples"),
        ("domains.0.classes.0.key", "c1", "same key"),
        ("domains.0.classes.0.key", "x" * 201, "key"),
        ("domains.0.extra", 1, "extra"),
    ],
)
def test_a_strangers_table_is_refused_in_one_line(tmp_path: Path, path: str, value: object, message: str) -> None:
    write_packed(tmp_path / "out", picture_suite())
    table = json.loads((tmp_path / "out" / "suite.json").read_text())
    damage(table, path, value)
    (tmp_path / "out" / "suite.json").write_text(json.dumps(table))
    with pytest.raises(SmatterError, match=message) as caught:
        read_packed(tmp_path / "out")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700


def test_a_sheet_that_is_a_link_out_is_refused(tmp_path: Path) -> None:
    write_packed(tmp_path / "out", picture_suite())
    (tmp_path / "out" / "grey.webp").rename(tmp_path / "elsewhere.webp")
    (tmp_path / "out" / "grey.webp").symlink_to(tmp_path / "elsewhere.webp")
    with pytest.raises(SmatterError, match="outside"):
        read_packed(tmp_path / "out")


def test_more_examples_in_the_table_than_on_the_sheet_are_refused(tmp_path: Path) -> None:
    write_packed(tmp_path / "out", picture_suite())
    table = json.loads((tmp_path / "out" / "suite.json").read_text())
    table["domains"][0]["classes"][0]["examples"] += [0] * 64
    (tmp_path / "out" / "suite.json").write_text(json.dumps(table))
    with pytest.raises(InvalidSuite, match="build the suite again"):
        read_packed(tmp_path / "out").domains[0].store.take([0])


def test_texts_beyond_those_of_the_table_are_not_read(tmp_path: Path) -> None:
    write_packed(tmp_path / "suite", text_suite({"print": ("id", keys(0, 30))}))
    path = tmp_path / "suite" / "print.jsonl"
    with path.open("ab") as file:
        file.write(b'{"text": "a", "label": "b"}\n' + b"no JSON\n")
    with pytest.raises(InvalidSuite, match="does not hold the"):  # and not that a line is no JSON
        read_packed(tmp_path / "suite").domains[0].store.take([0])
