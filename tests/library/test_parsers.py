"""Recipes, merges and stored sources are read exactly or refused, whatever their bytes."""

import json
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hostile_shelf import FORMS, QUERY, Shelf, decode_tensors, encode
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from json_fuzz import JSON, mutated_bytes

from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Elements, Residual
from smatter.errors import SmatterError, UnsafeFile
from smatter.library.library import Library, open_library
from smatter.library.mergekit import read_merge, write_merge
from smatter.library.recipes import read_recipe, write_recipe
from smatter.library.stored import StoredSource

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,12}", fullmatch=True)
TENSORS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)
VALUES = st.floats(-1e6, 1e6, width=32)


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    sources = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    modules = draw(st.lists(TENSORS, max_size=3, unique=True))
    rows = []
    for _ in range(max(1, len(modules))):
        raw = np.array(draw(st.lists(st.floats(0.01, 1), min_size=len(sources), max_size=len(sources))))
        rows.append(tuple(map(float, raw / raw.sum())))
    return Mixture(tuple(sources), tuple(rows), tuple(modules))


@st.composite
def residuals(draw: st.DrawFn) -> Residual | None:
    names = draw(st.lists(TENSORS, max_size=3, unique=True))
    elements, dense = {}, {}
    for name in names:
        if draw(st.booleans()):
            indices = sorted(draw(st.sets(st.integers(0, 2**40), max_size=4)))
            values = draw(st.lists(VALUES, min_size=len(indices), max_size=len(indices)))
            elements[name] = Elements(np.array(indices, np.int64), np.array(values, np.float32))
        else:
            shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
            dense[name] = np.full(shape, draw(VALUES), np.float32)
    return Residual(elements, dense) if names else None


def assert_same(first: Recipe, second: Recipe) -> None:
    assert first.mixture == second.mixture
    assert dict(first.digests) == dict(second.digests)
    assert (first.architecture, first.partition_digest) == (second.architecture, second.partition_digest)
    one, other = first.residual or Residual(), second.residual or Residual()
    assert one.elements.keys() == other.elements.keys() and one.dense.keys() == other.dense.keys()
    for name in one.elements:
        assert np.array_equal(one.elements[name].indices, other.elements[name].indices)
        assert one.elements[name].values.tobytes() == other.elements[name].values.tobytes()
    for name in one.dense:
        assert one.dense[name].shape == other.dense[name].shape
        assert one.dense[name].tobytes() == other.dense[name].tobytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parsers")


@given(mixtures(), residuals(), TENSORS, st.sampled_from("0af"))
def test_a_written_recipe_reads_back(
    scratch: Path, mixture: Mixture, residual: Residual | None, architecture: str, digit: str
) -> None:
    digests = {name: f"{number:063x}{digit}" for number, name in enumerate(mixture.sources)}
    recipe = Recipe(mixture, digests, architecture, digit * 64, residual)
    write_recipe(scratch / "recipe.safetensors", recipe)
    assert_same(read_recipe(scratch / "recipe.safetensors"), recipe)


DESCRIPTION = {
    "schema": 2, "architecture": "BertModel", "rule": "simplex", "sources": [["base", "a" * 64], ["law", "b" * 64]],
    "modules": [], "partition": "c" * 64,
}  # fmt: skip
SOUND_RECIPE = encode(
    {
        "mixture": ("F64", np.array([[0.5, 0.5]])),
        "elements:w:indices": ("I64", np.array([0, 3])),
        "elements:w:values": ("F32", np.array([1, 2], np.float32)),
        "dense:v": ("F32", np.ones((2, 2), np.float32)),
    },
    {"smatter_recipe": json.dumps(DESCRIPTION)},
)


@settings(max_examples=400)
@given(mutated_bytes(SOUND_RECIPE))
@example(SOUND_RECIPE)
def test_an_almost_sound_recipe_is_sound_or_refused(scratch: Path, file: bytes) -> None:
    path = scratch / "recipe.safetensors"
    path.write_bytes(file)
    try:
        recipe = read_recipe(path)
    except SmatterError as error:
        assert str(path) in str(error)
        return
    write_recipe(scratch / "again.safetensors", recipe)
    assert_same(read_recipe(scratch / "again.safetensors"), recipe)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_indices_increase_in_true_arithmetic(first: int, second: int, third: int) -> None:
    """Differences of 64-bit integers wrap around; the order of the integers does not."""
    indices = np.array([first, second, third])
    try:
        Elements(indices, np.zeros(3, np.float32))
    except SmatterError:
        assert not 0 <= first < second < third
    else:
        assert 0 <= first < second < third


@pytest.fixture(scope="module")
def library(shelf_template: Path) -> Library:
    return open_library(shelf_template / "library")


MERGE = """
merge_method: task_arithmetic
base_model: base
models:
- model: base
- model: law
  parameters: {weight: [{filter: attention, value: 0.5}, {value: 0.25}]}
- model: code
parameters: {weight: 1, normalize: true, lambda: 0.5}
dtype: float32
"""
YAML_PARTS = st.sampled_from(
    ["&a", "*a", "<<:", "!!int", "!!bool", "!!set", "!!binary", "!!timestamp", "? ", "- ", "{", "}", "[", "]", ": ",
     "'", '"', "\n", "|", "%YAML 9", "---", "models", "weight", "model: law", "~", "0x", "1:2:3", ".inf", "2001-99-01"]
)  # fmt: skip


def assert_mixture_or_refused(library: Library, path: Path, text: bytes) -> None:
    path.write_bytes(text)
    try:
        mixture = read_merge(path, library)
    except SmatterError as error:
        assert str(path) in str(error)
        assert len(str(error)) < 2000
    else:
        library.plan(mixture)


@settings(max_examples=150)
@given(st.lists(YAML_PARTS | st.text(max_size=4), max_size=12).map("".join))
def test_arbitrary_yaml(library: Library, scratch: Path, text: str) -> None:
    assert_mixture_or_refused(library, scratch / "merge.yaml", text.encode(errors="surrogatepass"))


@settings(max_examples=300)
@given(mutated_bytes(MERGE.encode()))
@example(MERGE.encode())
def test_an_almost_sound_merge(library: Library, scratch: Path, text: bytes) -> None:
    assert_mixture_or_refused(library, scratch / "merge.yaml", text)


@given(st.dictionaries(st.sampled_from(["models", "merge_method", "base_model", "parameters", "dtype"]), JSON))
def test_a_merge_of_arbitrary_values(library: Library, scratch: Path, content: dict[str, object]) -> None:
    merge = {"merge_method": "linear", "models": [{"model": "base"}], "parameters": {"weight": 1}} | content
    assert_mixture_or_refused(library, scratch / "merge.yaml", json.dumps(merge).encode())


@given(st.floats(0, 1), st.booleans())
def test_a_written_merge_reads_back(library: Library, scratch: Path, share: float, per_module: bool) -> None:
    row = {"base": 1 - share, "law": share}
    modules = library.partition.modules
    mixture = Mixture.per_module(dict.fromkeys(modules, row)) if per_module else Mixture.of(row)
    (scratch / "merge.yaml").write_text(write_merge(library, mixture))
    again = read_merge(scratch / "merge.yaml", library)
    for module in modules:
        assert again.coefficient(module, "law") == mixture.coefficient(module, "law")


def test_filters_without_end_are_refused(library: Library, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scratch / "merge.yaml").write_text(MERGE)
    monkeypatch.setattr("smatter.library.mergekit.MAX_COMPARISONS", 2 * len(library.specs))
    read_merge(scratch / "merge.yaml", library)
    monkeypatch.setattr("smatter.library.mergekit.MAX_COMPARISONS", 2 * len(library.specs) - 1)
    with pytest.raises(SmatterError, match=r"2 filters for .* write fewer"):
        read_merge(scratch / "merge.yaml", library)


@pytest.mark.parametrize("form", FORMS.items(), ids=lambda form: form[1])
def test_an_almost_sound_stored_source_gives_all_elements_or_is_refused(
    form: tuple[str, str], library: Library, scratch: Path
) -> None:
    name, kind = form
    sound = (library.path_of(library.manifest.source(name)) / "stored.safetensors").read_bytes()
    path = scratch / "stored.safetensors"

    @settings(max_examples=150, suppress_health_check=[HealthCheck.nested_given])
    @given(mutated_bytes(sound))
    def check(file: bytes) -> None:
        path.write_bytes(file)
        try:
            source = StoredSource(path, kind, library.base)
            for tensor, spec in source.tensors.items():
                block = source.read(tensor, 0, spec.n_elements)
                assert block.size == spec.n_elements and block.dtype == library.base.read(tensor, 0, 1).dtype
        except SmatterError as error:
            assert str(path) in str(error)

    check()


def test_a_bomb_takes_no_more_memory_than_the_tensor(shelf: Shelf) -> None:
    path = shelf.stored("code")
    parts, metadata = decode_tensors(path.read_bytes())
    bomb = np.frombuffer(zlib.compress(bytes(1 << 25)), np.uint8)
    parts[f"{QUERY}:planes"] = ("U8", bomb)
    parts[f"{QUERY}:index"] = ("I64", np.array([0, *[bomb.size] * 4]))
    path.write_bytes(encode(parts, metadata))
    source = StoredSource(path, "delta", open_library(shelf.library).base)
    tracemalloc.start()
    try:
        with pytest.raises(UnsafeFile, match="inflate"):
            source.read(QUERY, 0, 64)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
