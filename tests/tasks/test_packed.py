"""The compact form: what is written is what is read, all or nothing, and strangers' files are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_suites import picture_suite, usual_suite

from smatter.errors import AlreadyExists, InvalidSuite, SmatterError
from smatter.tasks import packed
from smatter.tasks.packed import read_packed, write_packed
from smatter.tasks.suite import Suite


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


def test_texts_and_sheets_beyond_the_limit_are_refused_before_anything_is_written(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(InvalidSuite, match="use the table itself"):
        write_packed(tmp_path / "out", usual_suite())
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
