"""Signs: what its builder drops and packs, and that the shipped files keep its promises."""

import io
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src" / "smatter" / "shipped" / "signs"
sys.path[:0] = [str(ROOT / "tools" / "signs"), str(ROOT / "tools" / "common")]

import pack  # noqa: E402
import tiles  # noqa: E402
from notice import notice  # noqa: E402

FREE = {"OFL-1.1", "UFL-1.0", "MIT", "ISC", "BSD-3-Clause", "Apache-2.0", "CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0",
        "Unlicense"}  # fmt: skip


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (32, 32), dtype=np.uint8)


def group(key: str, *drawn: tuple[str, np.ndarray]) -> tiles.Group:
    return tiles.Group(key, key, tuple(tiles.Tile(style, pixels) for style, pixels in drawn))


def test_a_picture_in_two_classes_is_in_neither() -> None:
    first = group("a", ("one", noise(0)), ("two", noise(1)), ("three", noise(1)))
    second = group("b", ("one", noise(0)), ("two", noise(2)))
    kept = tiles.without_doubles([first, second])
    assert [[tile.style for tile in entry.tiles] for entry in kept] == [["two"], ["two"]]


def test_a_class_that_most_styles_draw_like_an_earlier_one_is_dropped() -> None:
    styles = [f"style {number}" for number in range(5)]
    capital = group("capital", *((style, noise(number)) for number, style in enumerate(styles)))
    small = group("small", *((style, noise(number % 3)) for number, style in enumerate(styles)))
    other = group("other", *((style, noise(10 + number)) for number, style in enumerate(styles)))
    assert [entry.key for entry in tiles.without_alike([capital, small, other])] == ["capital", "other"]


def test_a_single_style_that_draws_two_classes_alike_loses_the_later_drawing() -> None:
    styles = [f"style {number}" for number in range(5)]
    capital = group("capital", *((style, noise(number)) for number, style in enumerate(styles)))
    small = group("small", (styles[0], noise(0)), *((style, noise(20 + n)) for n, style in enumerate(styles[1:])))
    kept = tiles.without_alike([capital, small])
    assert [len(entry.tiles) for entry in kept] == [5, 4]


def test_a_class_with_too_many_examples_takes_every_style_before_any_twice() -> None:
    drawn = [(f"style {number % 6}", noise(number)) for number in range(18)]
    (kept,) = tiles.limited([group("a", *drawn)], most=6, least=2)
    assert len({tile.style for tile in kept.tiles}) == 6
    assert tiles.limited([group("a", *drawn)], most=6, least=7) == []


def test_fit_centres_a_drawing_and_keeps_its_shape() -> None:
    image = Image.new("L", (200, 100), 255)
    image.paste(0, (10, 20, 110, 70))
    tile = tiles.fit(image, (10, 20, 110, 70))
    rows, columns = np.nonzero(tile < 128)
    assert (np.ptp(columns) + 1, np.ptp(rows) + 1) == (26, 13)
    assert (columns.min(), rows.min()) == (3, 9)


@pytest.mark.parametrize("colour", [False, True])
def test_a_sheet_gives_back_its_tiles(colour: bool) -> None:
    shape = (70, 32, 32, 3) if colour else (70, 32, 32)
    drawn = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    domain = tiles.Domain("d", "D", "id", (group("a", *(("s", pixels) for pixels in drawn)),), (), colour)
    with Image.open(io.BytesIO(pack.encode(pack.sheet(domain)))) as image:
        sheet = np.asarray(image.convert("RGB"))
    assert sheet.shape == (64, 2048, 3)
    expected = drawn if colour else np.repeat(drawn[..., None], 3, axis=-1)
    assert np.array_equal(pack.tiles_of(sheet, 70), expected)


def test_a_palette_merges_no_classes_and_leaves_white_alone() -> None:
    drawn = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    drawn[:, :4] = 255
    # One step of one channel in one pixel: no palette of 256 colours keeps these two apart.
    drawn[1] = drawn[0]
    drawn[1, 16, 16, 0] ^= 1
    groups = tuple(
        group(key, *(("s", pixels) for pixels in part))
        for key, part in zip("ab", (drawn[:10], drawn[10:]), strict=True)
    )
    reduced = pack.few_colours(tiles.Domain("d", "D", "id", groups, (), colour=True))
    assert [len(entry.tiles) for entry in reduced.groups] == [9, 10]
    pixels = np.stack([tile.pixels for entry in reduced.groups for tile in entry.tiles])
    assert (pixels[:, :4] == 255).all()
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) <= 257


@pytest.fixture(scope="module")
def suite() -> list[tuple[dict, np.ndarray]]:
    return list(pack.read(SHIPPED))


def test_shipped_suite_is_large_enough_and_fits_its_room(suite) -> None:
    assert len(suite) >= 14
    assert sum(len(domain["classes"]) for domain, _ in suite) >= 1500
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 11_000_000
    sheets = {domain["sheet"] for domain, _ in suite}
    assert {path.name for path in SHIPPED.iterdir()} == {"suite.json", "NOTICE", "lists", *sheets}
    assert Counter(domain["role"] for domain, _ in suite).keys() == {"id", "ood"}


def test_shipped_classes_have_examples_and_names_of_their_own(suite) -> None:
    for domain, _ in suite:
        assert min(len(entry["examples"]) for entry in domain["classes"]) >= 8, domain["name"]
        assert len({entry["key"] for entry in domain["classes"]}) == len(domain["classes"])
        assert len({entry["name"] for entry in domain["classes"]}) == len(domain["classes"])
        used = {index for entry in domain["classes"] for index in entry["examples"]}
        assert used == set(range(len(domain["styles"])))


def test_shipped_pictures_are_neither_empty_nor_doubled(suite) -> None:
    for domain, pictures in suite:
        flat = pictures.reshape(len(pictures), -1)
        assert (1 - flat.mean(axis=1) / 255).min() > 0.02, domain["name"]
        assert len({row.tobytes() for row in flat}) == len(flat), domain["name"]


def test_shipped_packages_are_free_and_pinned(suite) -> None:
    table = json.loads((SHIPPED / "suite.json").read_text())
    pins = json.loads((ROOT / "tools" / "signs" / "packages.json").read_text())
    assert {entry["licence"] for entry in table["packages"]} <= FREE
    assert {(entry["registry"], entry["name"], entry["version"]) for entry in table["packages"]} == {
        (registry, name, version) for registry, names in pins.items() for name, version in names.items()
    }
    names = {entry["name"] for entry in table["packages"]}
    assert {name for domain, _ in suite for name in domain["packages"]} == names


def test_the_notice_names_every_package() -> None:
    table = json.loads((SHIPPED / "suite.json").read_text())
    assert (SHIPPED / "NOTICE").read_text() == notice(table)
    assert all(package["name"] in notice(table) for package in table["packages"])
