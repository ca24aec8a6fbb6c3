"""A header is read exactly or refused, whatever its bytes; what is accepted, the safetensors library reads alike."""

import hashlib
import json
import math
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_fuzz import JSON, mutated_bytes, mutated_json
from safetensors.numpy import save_file

from smatter.errors import SmatterError, UnsafeFile
from smatter.files.reading import Header, MappedFile, _has_more_values, parse_header, parse_json, read_header
from smatter.files.writing import encode_header
from smatter.records import ITEM_SIZES, TensorSpec

PATH = Path("stranger.safetensors")
SOUND: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "empty": {"dtype": "F16", "shape": [0, 3], "data_offsets": [24, 24]},
    "scalar": {"dtype": "I64", "shape": [], "data_offsets": [24, 32]},
    "bits": {"dtype": "BF16", "shape": [4], "data_offsets": [32, 40]},
}
SOUND_TEXT = json.dumps(SOUND).encode()
N_BYTES = 40


def assert_exact_or_refused(text: bytes, n_data_bytes: int) -> None:
    try:
        header = parse_header(text, n_data_bytes, PATH)
    except SmatterError as error:
        assert str(PATH) in str(error)
        return
    assert_tiles(header, 8 + len(text), n_data_bytes)
    assert_safetensors_agrees(header, text, n_data_bytes)


def assert_tiles(header: Header, start: int, n_data_bytes: int) -> None:
    """Every byte behind the header belongs to exactly one tensor."""
    position = start
    for placed in sorted(header.tensors.values(), key=lambda placed: (placed.offset, placed.spec.n_bytes)):
        assert placed.offset == position
        position += math.prod(placed.spec.shape) * ITEM_SIZES[placed.spec.dtype]
    assert position == start + n_data_bytes


def assert_safetensors_agrees(header: Header, text: bytes, n_data_bytes: int) -> None:
    file = len(text).to_bytes(8, "little") + text + bytes(n_data_bytes)
    theirs = {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in safetensors.deserialize(file)}
    assert theirs == {name: (placed.spec.dtype, placed.spec.shape) for name, placed in header.tensors.items()}


@given(st.binary(max_size=200), st.integers(0, 64))
def test_arbitrary_bytes(text: bytes, n_data_bytes: int) -> None:
    assert_exact_or_refused(text, n_data_bytes)


@given(JSON, st.integers(0, 64))
def test_arbitrary_json(content: Any, n_data_bytes: int) -> None:
    assert_exact_or_refused(json.dumps(content).encode(), n_data_bytes)


@settings(max_examples=200)
@given(mutated_json(SOUND), st.sampled_from([N_BYTES, N_BYTES, N_BYTES, 0, 24, 41]))
def test_almost_sound_headers(content: Any, n_data_bytes: int) -> None:
    assert_exact_or_refused(json.dumps(content).encode(), n_data_bytes)


@settings(max_examples=200)
@given(mutated_bytes(SOUND_TEXT))
@example(SOUND_TEXT)
@example(b" " + SOUND_TEXT + b"\n\t ")
@example(b"\xef\xbb\xbf" + SOUND_TEXT)
@example(SOUND_TEXT.decode().encode("utf-16"))
@example(SOUND_TEXT.decode().encode("utf-32-le"))
@example(SOUND_TEXT.replace(b"[0, 24]", b"[-0, 24]"))
@example(SOUND_TEXT.replace(b"[0, 24]", b"[0, 24.0]"))
@example(SOUND_TEXT.replace(b'"pt"', b'"\\ud800"'))
@example(SOUND_TEXT.replace(b'"pt"', b'"\\ud83d\\ude00"'))
@example(SOUND_TEXT.replace(b'"pt"', b'"\xed\xa0\x80"'))
@example(SOUND_TEXT.replace(b'"pt"', b"null"))
@example(SOUND_TEXT.replace(b'"bits"', b'"weight"'))
@example(SOUND_TEXT.replace(b'"pt"', b'"pt", "format": "tf"'))
def test_almost_sound_text(text: bytes) -> None:
    assert_exact_or_refused(text, N_BYTES)


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20).filter("__metadata__".__ne__)
SPECS = st.builds(TensorSpec, st.sampled_from(sorted(ITEM_SIZES)), st.lists(st.integers(0, 5), max_size=4).map(tuple))


@given(st.dictionaries(NAMES, SPECS, max_size=8), st.dictionaries(NAMES, st.text(max_size=9), max_size=3))
def test_an_encoded_header_reads_back(specs: dict[str, TensorSpec], metadata: dict[str, str]) -> None:
    encoded = encode_header(specs.items(), metadata)
    n_data_bytes = sum(spec.n_bytes for spec in specs.values())
    assert len(encoded) % 64 == 0
    assert int.from_bytes(encoded[:8], "little") == len(encoded) - 8
    header = parse_header(encoded[8:], n_data_bytes, PATH)
    assert {name: placed.spec for name, placed in header.tensors.items()} == specs
    assert header.metadata == metadata
    assert_tiles(header, len(encoded), n_data_bytes)
    assert_safetensors_agrees(header, encoded[8:], n_data_bytes)


@given(mutated_bytes(len(SOUND_TEXT).to_bytes(8, "little") + SOUND_TEXT + bytes(N_BYTES)))
def test_almost_sound_files(tmp_path_factory: pytest.TempPathFactory, file: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.safetensors"
    path.write_bytes(file)
    try:
        header = read_header(path)
    except SmatterError as error:
        assert str(path) in str(error)
        return
    length = int.from_bytes(file[:8], "little")
    assert_tiles(header, 8 + length, len(file) - 8 - length)
    for name, placed in header.tensors.items():
        assert MappedFile(path).whole(name).tobytes() == file[placed.offset : placed.offset + placed.spec.n_bytes]


def test_a_file_that_is_touched_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"x": np.arange(4096.0)}, path)
    file = MappedFile(path)
    assert file.is_untouched and file.digest() == hashlib.sha256(path.read_bytes()).hexdigest()
    path.rename(tmp_path / "old")
    save_file({"x": np.zeros(4096)}, path)
    assert not file.is_untouched and file.whole("x")[5] == 5.0  # what was opened is what is read
    again = MappedFile(path)
    os.truncate(path, path.stat().st_size - 8)
    assert not again.is_untouched
    with pytest.raises(UnsafeFile, match="cut short"):
        MappedFile(path)


def n_values(content: Any) -> int:
    if isinstance(content, dict):
        return 1 + len(content) + sum(map(n_values, content.values()))
    return 1 + sum(map(n_values, content)) if isinstance(content, list) else 1


@given(JSON, st.integers(0, 20), st.booleans())
def test_values_are_counted_before_they_are_made(content: Any, limit: int, dense: bool) -> None:
    text = json.dumps(content, separators=(",", ":") if dense else None, ensure_ascii=dense).encode(errors="replace")
    assert _has_more_values(text, limit) == (n_values(content) > limit)


@pytest.mark.parametrize("unit", [b"[],", b'{"":0},', b"1.5,", b'"ab",', b"[" * 7])
def test_too_many_values_are_refused_without_making_them(unit: bytes) -> None:
    text = b"[" + unit * (1_100_000 if len(unit) == 7 else 3_100_000)
    tracemalloc.start()
    with pytest.raises(UnsafeFile, match="more than 3000000 values"):
        parse_json(text, PATH)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_hostile_json_is_refused_in_linear_time() -> None:
    start = time.perf_counter()
    for text in (b'"' + b'\\"' * 10_000_000, b"1" * 20_000_000, b"[" * 5_000_000, b"0." + b"0" * 20_000_000 + b"x"):
        with pytest.raises(UnsafeFile, match="save it"):
            parse_json(text, PATH)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("text", ['"\\ud800"', '{"a": ["\\udfff"]}', '{"\\uDead": 1}'])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(UnsafeFile, match="half a character"):
        parse_json(text.encode(), PATH)
    assert parse_json(b'["\\ud83d\\ude00", "\\\\ud800", ""]', PATH) == ["\U0001f600", "\\ud800", ""]
