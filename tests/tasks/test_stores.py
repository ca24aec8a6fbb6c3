"""Stores: pictures come out as they went in, whatever the file, and digests depend on contents alone."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smatter.errors import InvalidSuite, SmatterError
from smatter.tasks.stores import COLUMNS, Pictures, Sheet, Texts

SIDE = 4


def sheet(path: Path, tiles: np.ndarray) -> Path:
    """Tiles as a page of 64 columns, built independently of the writer."""
    n_rows = -(-len(tiles) // COLUMNS)
    page = np.zeros((n_rows * SIDE, COLUMNS * SIDE, *tiles.shape[3:]), np.uint8)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, COLUMNS)
        page[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE] = tile
    Image.fromarray(page).save(path, lossless=True)
    return path


@pytest.mark.parametrize("n", [1, 64, 65, 150])
@pytest.mark.parametrize("suffix", ["webp", "png"])
@pytest.mark.parametrize("shape", [(SIDE, SIDE), (SIDE, SIDE, 3)], ids=["grey", "colour"])
def test_tiles_are_cut_where_they_were_put(tmp_path: Path, n: int, suffix: str, shape: tuple[int, ...]) -> None:
    tiles = np.random.default_rng(n).integers(0, 255, (n, *shape), np.uint8)
    store = Sheet(sheet(tmp_path / f"x.{suffix}", tiles), n, SIDE)
    order = np.random.default_rng(0).integers(0, n, 10)
    colour = tiles if tiles.ndim == 4 else np.stack([tiles] * 3, axis=-1)
    taken = store.take(order.tolist())
    assert np.array_equal(taken, colour[order]) and taken.dtype == np.uint8 and taken.shape == (10, SIDE, SIDE, 3)
    taken[:] = 0
    assert np.array_equal(store.take(order.tolist()), colour[order]), "what is given away can be changed safely"


def test_opening_decodes_nothing_and_another_process_gets_no_pixels(tmp_path: Path) -> None:
    store = Sheet(sheet(tmp_path / "x.png", np.zeros((100, SIDE, SIDE), np.uint8)), 100, SIDE)
    assert len(store) == 100 and store.digest and "_pictures" not in vars(store)
    before = len(pickle.dumps(store))
    store.take([0])
    assert "_pictures" in vars(store) and len(pickle.dumps(store)) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda path: Image.new("RGB", (COLUMNS * SIDE, SIDE + 1)).save(path), "build the suite again"),
        (lambda path: Image.new("RGB", (SIDE, SIDE)).save(path), "build the suite again"),
        (lambda path: path.write_bytes(b"not a picture"), "is not a PNG"),
        (lambda path: path.write_bytes(b""), "is not a PNG"),
    ],
)
def test_a_damaged_sheet_is_refused(tmp_path: Path, content, message: str) -> None:
    content(tmp_path / "x.png")
    with pytest.raises(InvalidSuite, match=message):
        Sheet(tmp_path / "x.png", 10, SIDE).take([0])


def test_a_missing_sheet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SmatterError, match="does not exist"):
        _ = Sheet(tmp_path / "x.png", 10, SIDE).digest


def test_digests_depend_on_contents_size_and_order() -> None:
    small, large = np.zeros((2, 4, 4, 3), np.uint8), np.zeros((2, 8, 8, 3), np.uint8)
    cases = (small, [b"a", b"b"]), (small, [b"b", b"a"]), (large, [b"a", b"b"])
    assert len({Pictures(*case).digest for case in cases}) == 3
    assert Texts(["ab", "c"]).digest != Texts(["a", "bc"]).digest == Texts(["a", "bc"]).digest
    assert Texts(["a", "b", "c"]).take([2, 0]) == ("c", "a")
