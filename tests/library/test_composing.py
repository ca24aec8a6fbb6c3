"""Composing a library: against torch and mergekit, and what must not change the result."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_networks import make_tensors, write_checkpoint

from smatter.compose import blocked
from smatter.compose import execute as kernel
from smatter.compose.execute import Arena
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidRecipe, InvalidWeights
from smatter.library.edit import add_source, init_library, remove_source
from smatter.library.export import export
from smatter.library.library import Library, open_library
from smatter.library.recipes import read_recipe, write_recipe

MakeLibrary = Callable[..., Library]
pytestmark = pytest.mark.filterwarnings("ignore:numpy.core is deprecated")  # said by mergekit
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
WEIGHTS = {"base": 0.1, "a": 0.2, "b": 0.3, "c": 0.4}


def load_source(library: Library, name: str) -> dict[str, torch.Tensor]:
    folder = library.path_of(library.manifest.source(name))
    return {key: value for file in folder.glob("*.safetensors") for key, value in load_file(file).items()}


def same_bits(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype
        and first[name].shape == second[name].shape
        and torch.equal(first[name].reshape(-1).view(torch.uint8), second[name].reshape(-1).view(torch.uint8))
        for name in first
    )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mixture_is_the_weighted_sum(make_library: MakeLibrary, dtype: torch.dtype) -> None:
    library = make_library(dtype)
    sources = {name: load_source(library, name) for name in WEIGHTS}
    composed = library.compose(Mixture.of(WEIGHTS)).tensors()
    tolerance = {torch.float64: 1e-7, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    for name, value in composed.items():
        if value.dtype == torch.int64:
            assert torch.equal(value, sources["base"][name])
            continue
        exact = sum(weight * sources[source][name].double() for source, weight in WEIGHTS.items())
        assert value.dtype == dtype
        torch.testing.assert_close(value.double(), exact, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["whole", "delta"])
def test_one_hot_weights_reproduce_a_source_bit_for_bit(make_library: MakeLibrary, dtype: torch.dtype, form) -> None:
    library = make_library(dtype)
    tensors = make_tensors(9, dtype, near=load_source(library, "base"))
    tensors["encoder.layer.0.attention.self.query.bias"][:4] = -0.0
    folder = write_checkpoint(library.folder.parent / "extra", tensors)
    library, _ = add_source(library.folder, folder, form=form)
    assert same_bits(library.compose(Mixture.of({"extra": 1.0, "a": 0.0})).tensors(), tensors)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_order_and_names_of_sources_do_not_matter(
    make_library: MakeLibrary, tmp_path: Path, dtype: torch.dtype
) -> None:
    library = make_library(dtype)
    shuffled = init_library(tmp_path / "shuffled", library.base.folder, "origin")
    for old, new in (("c", "x"), ("a", "y"), ("b", "a")):
        shuffled, _ = add_source(shuffled.folder, library.path_of(library.manifest.source(old)), new)
    first = library.compose(Mixture.of(WEIGHTS)).tensors()
    second = shuffled.compose(Mixture.of({"x": 0.4, "a": 0.3, "origin": 0.1, "y": 0.2})).tensors()
    assert same_bits(first, second)


def test_threads_blocks_and_the_fallback_do_not_matter(make_library: MakeLibrary, monkeypatch) -> None:
    library = make_library(torch.bfloat16)
    expected = {name: value.clone() for name, value in library.compose(Mixture.of(WEIGHTS)).tensors().items()}
    assert same_bits(expected, library.compose(Mixture.of(WEIGHTS), threads=3).tensors())
    monkeypatch.setattr("smatter.compose.execute.BLOCK", 100)
    assert same_bits(expected, library.compose(Mixture.of(WEIGHTS), threads=2).tensors())
    monkeypatch.setattr(kernel, "_kernel", lambda _: blocked.blend_blocked)
    assert same_bits(expected, library.compose(Mixture.of(WEIGHTS)).tensors())


def test_disk_and_memory_agree_and_a_recipe_rebuilds_one_sha256(make_library: MakeLibrary, tmp_path: Path) -> None:
    library = make_library()
    rows = {module: {"a": (i + 1) / 10, "b": 1 - (i + 1) / 10} for i, module in enumerate(library.partition.modules)}
    query = "encoder.layer.0.attention.self.query.weight"
    residual = Residual({query: Elements(np.array([3, 77]), np.array([0.5, -2], np.float32))})
    recipe = library.recipe(Mixture.per_module(rows), residual)
    first = export(library, recipe, tmp_path / "first")
    second = export(open_library(library.folder), read_recipe(first / "recipe.safetensors"), tmp_path / "second")
    assert sha256(first / "model.safetensors") == sha256(second / "model.safetensors")
    assert sha256(first / "recipe.safetensors") == sha256(second / "recipe.safetensors")
    assert same_bits(load_file(first / "model.safetensors"), library.compose(recipe).tensors())


@pytest.mark.parametrize("dtype", DTYPES)
def test_residuals_are_added_before_rounding(make_library: MakeLibrary, dtype: torch.dtype) -> None:
    library = make_library(dtype)
    scattered, dense = "encoder.layer.1.output.dense.weight", "encoder.layer.0.intermediate.dense.weight"
    generator = np.random.default_rng(1)
    indices = np.sort(generator.choice(16 * 64, 40, replace=False))
    values = generator.normal(size=40).astype(np.float32)
    block = generator.normal(size=(64, 16)).astype(np.float32)
    recipe = library.recipe(Mixture.of(WEIGHTS), Residual({scattered: Elements(indices, values)}, {dense: block}))
    plain = library.compose(Mixture.of(WEIGHTS)).tensors()
    corrected = library.compose(recipe).tensors()
    sources = {name: load_source(library, name) for name in WEIGHTS}
    precision = torch.float64 if dtype == torch.float64 else torch.float32
    order = sorted(WEIGHTS, key=lambda name: library.manifest.digests[name])

    def total(name: str) -> torch.Tensor:
        terms = [sources[source][name].to(precision) * float(np.float32(WEIGHTS[source])) for source in order]
        return terms[0] + terms[1] + terms[2] + terms[3]

    expected = total(scattered)
    expected.view(-1)[torch.from_numpy(indices)] += torch.from_numpy(values)
    assert torch.equal(corrected[scattered], expected.to(dtype))
    assert torch.equal(corrected[dense], (total(dense) + torch.from_numpy(block)).to(dtype))
    untouched = plain.keys() - {scattered, dense}
    assert same_bits({name: plain[name] for name in untouched}, {name: corrected[name] for name in untouched})


def test_an_arena_is_reused_and_refuses_another_network(make_library: MakeLibrary) -> None:
    library = make_library()
    arena = library.compose(Mixture.of({"a": 1.0}))
    view = arena.tensors()["encoder.layer.0.output.dense.weight"]
    assert library.compose(Mixture.of({"b": 1.0}), arena) is arena
    assert torch.equal(view, load_source(library, "b")["encoder.layer.0.output.dense.weight"])
    other = make_library(torch.bfloat16, "other", "")
    with pytest.raises(InvalidRecipe, match="another network"):
        other.compose(Mixture.of({"base": 1.0}), arena)
    assert isinstance(arena, Arena)


def test_sources_of_another_precision_are_mixed_in_float32(make_library: MakeLibrary, tmp_path: Path) -> None:
    library = make_library()
    base = load_source(library, "base")
    short = make_tensors(5, torch.bfloat16, near=base)
    library, warnings = add_source(library.folder, write_checkpoint(tmp_path / "short", short))
    assert any("mixed in float32" in finding.message for finding in warnings)
    name = "encoder.layer.0.output.dense.weight"
    composed = library.compose(Mixture.of({"base": 0.5, "short": 0.5})).tensors()[name]
    assert composed.dtype == torch.float32
    assert torch.equal(composed, 0.5 * base[name] + 0.5 * short[name].float())


def test_a_recipe_outlives_renaming_but_not_removal(make_library: MakeLibrary, tmp_path: Path) -> None:
    library = make_library()
    recipe = library.recipe(Mixture.of({"a": 0.25, "b": 0.75}))
    write_recipe(tmp_path / "recipe.safetensors", recipe)
    expected = {name: value.clone() for name, value in library.compose(recipe).tensors().items()}
    folder = library.path_of(library.manifest.source("b"))
    library = remove_source(library.folder, "b")
    with pytest.raises(InvalidRecipe, match=r"'b' is not in this library.*75\.0%"):
        library.compose(read_recipe(tmp_path / "recipe.safetensors"))
    library, _ = add_source(library.folder, folder, "renamed", form="delta")
    assert same_bits(expected, library.compose(read_recipe(tmp_path / "recipe.safetensors")).tensors())


def test_weights_per_module_of_another_partition_are_refused(make_library: MakeLibrary, tmp_path: Path) -> None:
    library = make_library()
    recipe = library.recipe(Mixture.per_module({module: {"a": 1.0} for module in library.partition.modules}))
    other = init_library(tmp_path / "other", library.base.folder, "base", module_pattern=r"(encoder|embeddings)\.")
    other, _ = add_source(other.folder, library.path_of(library.manifest.source("a")), "a")
    with pytest.raises(InvalidRecipe, match="another partition"):
        other.compose(recipe)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", ["linear", "task_arithmetic"])
def test_results_agree_with_mergekit(make_library: MakeLibrary, dtype: torch.dtype, method: str) -> None:
    from mergekit.merge_methods import merge_state_dicts

    library = make_library(dtype)
    models = {name: load_source(library, name) for name in WEIGHTS}
    for tensors in models.values():
        tensors.pop("embeddings.position_ids")
    if method == "linear":
        mixture, parameters = Mixture.of(WEIGHTS), {"weight": WEIGHTS}
        peer = merge_state_dicts(models, "linear", parameters=parameters, dtype=torch.float32, out_dtype=dtype)
    else:
        weights = {"a": 0.9, "b": 0.6, "c": 0.3}
        mixture = Mixture.task_arithmetic("base", weights)
        peer = merge_state_dicts(
            models, method, parameters={"weight": weights}, base="base", dtype=torch.float32, out_dtype=dtype
        )
    ours = library.compose(mixture).tensors()
    tolerance = 2**-7 if dtype == torch.bfloat16 else 1e-6  # one unit in the last place
    for name, value in peer.items():
        torch.testing.assert_close(ours[name], value, rtol=tolerance, atol=tolerance / 10)


def test_arithmetic_that_leaves_the_range_of_a_dtype_is_refused(make_library: MakeLibrary, tmp_path: Path) -> None:
    library = make_library(torch.float16)
    with pytest.raises(InvalidWeights, match="leaves the range of F16"):
        library.compose(Mixture.task_arithmetic("base", {"a": 1e8}))
    with pytest.raises(InvalidWeights, match="leaves the range of F16"):
        export(library, Mixture.arithmetic({"a": 1e8}), tmp_path / "out")
    assert not (tmp_path / "out").exists()
