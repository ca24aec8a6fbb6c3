"""Fine-tuned, permuted or of another start: verdicts on networks of which it is known."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_networks import CONFIG, Tensors, write_checkpoint

from smatter.compose.mixture import Mixture
from smatter.errors import IncompatibleSource
from smatter.library.check import check_library
from smatter.library.edit import add_source, init_library
from smatter.library.similarity import Similarity, measure
from smatter.records import Partition, TensorSpec

WIDTH, N_HEADS, N_LAYERS, N_NEURONS, N_WORDS = 64, 4, 3, 256, 300
WORDS = "embeddings.word_embeddings.weight"
SELF, OUTPUT = "attention.self", "attention.output.dense.weight"


def network(seed: int = 0) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    shapes = {WORDS: (N_WORDS, WIDTH), "embeddings.token_type_embeddings.weight": (2, WIDTH)}
    for layer in range(N_LAYERS):
        own = {
            **{f"{SELF}.{name}.weight": (WIDTH, WIDTH) for name in ("query", "key", "value")},
            OUTPUT: (WIDTH, WIDTH),
            "intermediate.dense.weight": (N_NEURONS, WIDTH),
            "output.dense.weight": (WIDTH, N_NEURONS),
            "output.LayerNorm.weight": (WIDTH,),
        }
        shapes |= {f"encoder.layer.{layer}.{name}": shape for name, shape in own.items()}
    return {name: 0.05 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def tuned(tensors: Tensors, size: float = 0.1) -> Tensors:
    """Moved by this share of each matrix's spread, in all directions at once."""
    generator = torch.Generator().manual_seed(1)
    return {name: t + size * t.std() * torch.randn(t.shape, generator=generator) for name, t in tensors.items()}


def reordered(tensors: Tensors, rows: str, columns: str, order: torch.Tensor) -> Tensors:
    """The same function with units in another order: rows of what makes them, columns of what reads them."""
    return {
        name: t[order] if re.search(rows, name) else t[:, order] if re.search(columns, name) else t
        for name, t in tensors.items()
    }


def heads(*order: int) -> torch.Tensor:
    return torch.arange(WIDTH).reshape(N_HEADS, -1)[list(order)].reshape(-1)


def neurons(n_moved: int) -> torch.Tensor:
    return torch.cat([torch.arange(n_moved).roll(1), torch.arange(n_moved, N_NEURONS)])


def shuffled(size: int) -> torch.Tensor:
    return torch.randperm(size, generator=torch.Generator().manual_seed(2))


def anew(tensors: Tensors, pattern: str) -> Tensors:
    other = network(9)
    return {name: other[name] if re.search(pattern, name) else t for name, t in tensors.items()}


PERMUTED: dict[str, Callable[[Tensors], Tensors]] = {
    "heads of all layers": lambda t: reordered(t, SELF, OUTPUT, heads(2, 0, 3, 1)),
    "two heads of one layer": lambda t: reordered(t, rf"r\.1\.{SELF}", rf"r\.1\.{OUTPUT}", heads(3, 1, 2, 0)),
    "a few neurons": lambda t: reordered(t, r"r\.2\.inter", r"r\.2\.output\.dense", neurons(6)),
    "all neurons": lambda t: reordered(t, r"intermediate", r"\d\.output\.dense", shuffled(N_NEURONS)),
    "features": lambda t: reordered(t, r"output\.dense", r"embeddings|self|intermediate", shuffled(WIDTH)),
    "words": lambda t: t | {WORDS: t[WORDS][shuffled(N_WORDS)]},
}  # fmt: skip


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., list[str]]:
    """Kinds of errors of a source, as `add` and `check` find them: both must agree."""

    def judge(base: Tensors, source: Tensors, form: str = "whole") -> list[str]:
        init_library(tmp_path / "library", write_checkpoint(tmp_path / "base", base, CONFIG))
        folder = write_checkpoint(tmp_path / "source", source, CONFIG)
        accept = list[str]()
        while True:
            try:
                library, findings = add_source(tmp_path / "library", folder, form=form, accept=accept)
                break
            except IncompatibleSource as error:
                accept.append(str(error).partition("(--accept ")[2].partition(" if you know better)")[0])
        kinds = [each.kind for each in findings if each.severity == "accepted"]
        report = check_library(library)
        assert report.ok and kinds == [each.kind for each in report.findings if each.severity == "accepted"]
        return kinds

    return judge


@pytest.mark.parametrize("size", [0.001, 0.1, 1.0])
def test_fine_tunes_pass_however_far_they_went(judge, size: float) -> None:
    assert judge(network(), tuned(network(), size)) == []


@pytest.mark.parametrize("form", ["delta", "int8", "low-rank", "bf16-delta"])
def test_fine_tunes_pass_in_every_form(judge, form: str) -> None:
    assert judge(network(), tuned(network()), form) == []


@pytest.mark.parametrize("kind", PERMUTED)
def test_permuted_units_are_called_permuted(judge, kind: str) -> None:
    assert judge(network(), PERMUTED[kind](tuned(network()))) == ["permuted"]


def as_gpt2(tensors: Tensors) -> Tensors:
    """Matrices input by output, with query, key and value in one."""
    layers: Tensors = {name: tensor for name, tensor in tensors.items() if SELF not in name}
    for layer in range(N_LAYERS):
        parts = [tensors[f"encoder.layer.{layer}.{SELF}.{name}.weight"] for name in ("query", "key", "value")]
        layers[f"encoder.layer.{layer}.attention.c_attn.weight"] = torch.cat(parts)
    return {name: t.T.contiguous() if "layer" in name and t.ndim > 1 else t for name, t in layers.items()}


@pytest.mark.parametrize("kind", ["heads of all layers", "two heads of one layer", "a few neurons", "all neurons"])
def test_permuted_units_are_found_in_the_layout_of_gpt2(judge, kind: str) -> None:
    assert judge(as_gpt2(network()), as_gpt2(PERMUTED[kind](tuned(network())))) == ["permuted"]


@pytest.mark.parametrize("form", ["delta", "int8"])
def test_permuted_units_are_found_in_stored_forms(judge, form: str) -> None:
    assert judge(network(), PERMUTED["two heads of one layer"](tuned(network())), form) == ["permuted"]


def test_a_permutation_keeps_what_a_network_computes() -> None:
    """So that the pairs above are what they claim to be: the function of an MLP does not change, its matrices do."""
    base, other = network(), PERMUTED["all neurons"](network())
    first, second = "encoder.layer.0.intermediate.dense.weight", "encoder.layer.0.output.dense.weight"
    inputs = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0))
    results = [torch.relu(inputs @ each[first].T) @ each[second].T for each in (base, other)]
    torch.testing.assert_close(*results)
    assert not torch.equal(base[first], other[first])


@pytest.mark.parametrize("pattern", [r"encoder", r"r\.1\.", rf"r\.1\.{OUTPUT}", "embeddings.word"])
def test_parts_of_another_start_are_called_unrelated(judge, pattern: str) -> None:
    assert judge(network(), anew(tuned(network()), pattern)) == ["unrelated"]


def test_rows_that_share_a_direction_are_told_apart_all_the_same(judge) -> None:
    """Rows of large vocabularies often have a mean, so that any two of them are alike."""
    base = network()
    base[WORDS] += 0.13 * torch.randn(WIDTH, generator=torch.Generator().manual_seed(3))
    alike = torch.nn.functional.cosine_similarity(base[WORDS][:-1], base[WORDS][1:])
    assert alike.mean() > 0.8
    assert judge(base, PERMUTED["words"](tuned(base))) == ["permuted"]


def test_a_shared_direction_is_no_reason_to_refuse_a_fine_tune(judge) -> None:
    base = network()
    name = "embeddings.token_type_embeddings.weight"
    base[name] = base[name][:1] + 1e-4 * torch.randn(2, WIDTH)  # hardly trained: both rows are almost one
    base[WORDS] += 0.5
    assert judge(base, tuned(base, 0.3)) == []


def test_zeros_and_padding_are_no_other_network(judge) -> None:
    base = network()
    base["encoder.layer.0.output.dense.weight"].zero_()
    base[WORDS][200:] = 0
    source = tuned(base)
    source["encoder.layer.0.output.dense.weight"] = 0.05 * torch.randn(WIDTH, N_NEURONS)
    source[WORDS][200:] = 0
    assert judge(base, source) == []


def test_a_base_in_bfloat16_takes_its_fine_tune_in_float32(judge) -> None:
    base = network()
    assert judge({name: tensor.bfloat16() for name, tensor in base.items()}, tuned(base)) == []


def test_a_fresh_pooler_is_worth_a_warning(tmp_path: Path) -> None:
    pooler = "pooler.dense.weight"
    init_library(tmp_path / "library", write_checkpoint(tmp_path / "base", network() | {pooler: torch.randn(64, 64)}))
    source = write_checkpoint(tmp_path / "source", tuned(network()) | {pooler: torch.randn(64, 64)})
    _, findings = add_source(tmp_path / "library", source)
    assert [(each.severity, each.kind) for each in findings] == [("warning", "other head")]


def test_the_message_names_the_module_and_the_remedy(judge, tmp_path: Path) -> None:
    init_library(tmp_path / "one", write_checkpoint(tmp_path / "first", network()))
    bad = write_checkpoint(tmp_path / "bad", PERMUTED["two heads of one layer"](tuned(network())))
    with pytest.raises(IncompatibleSource, match=r"layer\.1.*--accept permuted"):
        add_source(tmp_path / "one", bad)
    library, _ = add_source(tmp_path / "one", bad, accept=["permuted"])
    assert library.compose(Mixture.of({"bad": 1.0})).tensors()


class Memory:
    """A reader of arrays in memory."""

    def __init__(self, *sources: np.ndarray) -> None:
        self.sources = dict(zip("ab", sources, strict=True))

    def spec(self, source: str, tensor: str) -> TensorSpec:
        return TensorSpec("F32", self.sources[source].shape)

    def read(self, source: str, tensor: str, start: int, stop: int) -> np.ndarray:
        return self.sources[source].reshape(-1)[start:stop]


def measured(first: np.ndarray, second: np.ndarray) -> Similarity:
    reader = Memory(first, second)
    return measure(reader, ("a", "b"), {"m": reader.spec("a", "m")}, Partition({"module": ("m",)}))


def test_cosines_and_rows_astray_agree_with_the_plain_formula() -> None:
    generator = np.random.default_rng(0)
    base = generator.normal(size=(9000, 20)).astype(np.float32)  # more than one block of rows
    source = base + 0.1 * generator.normal(size=base.shape).astype(np.float32)
    source[[3, 8500]] = source[[8500, 3]]
    found = measured(base, source)
    expected = (base * source).sum() / np.linalg.norm(base) / np.linalg.norm(source)
    assert found.matrices["m"][1] == pytest.approx(expected, rel=1e-5)
    assert {3, 8500} <= set(found.astray["b", "m"].tolist()) <= {*range(9000)}
    cosines = (base * source).sum(1) / np.linalg.norm(base, axis=1) / np.linalg.norm(source, axis=1)
    assert {*np.flatnonzero(cosines < 0.4)} <= set(found.astray["b", "m"].tolist()) <= {*np.flatnonzero(cosines < 0.6)}


def test_rows_that_hardly_differ_are_not_astray() -> None:
    generator = np.random.default_rng(0)
    base = generator.normal(size=20) + 1e-3 * generator.normal(size=(100, 20))
    source = base + 1e-2 * generator.normal(size=base.shape)
    assert not measured(base.astype(np.float32), source.astype(np.float32)).astray


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (100_000, 1), (1, 100_000), (3, 200_000), (20_000, 2)])
def test_odd_shapes_keep_no_rows(shape: tuple[int, int]) -> None:
    """What is kept of rows would outgrow the matrix itself where they are narrow."""
    generator = np.random.default_rng(0)
    found = measured(*(generator.normal(size=shape).astype(np.float32) for _ in range(2)))
    assert not found.astray
