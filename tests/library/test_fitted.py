"""Sources in the base's terms: other prefixes, buffers that one side lacks, tensors that are the base's."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_networks import CONFIG, Tensors, make_tensors, write_checkpoint
from test_composing import same_bits

from smatter.cli.main import main
from smatter.compose.mixture import Mixture
from smatter.errors import IncompatibleSource, InvalidRecipe, InvalidSettings, SmatterError, SourceChanged
from smatter.library.check import check_library
from smatter.library.checkpoint import open_checkpoint
from smatter.library.edit import add_source, init_library
from smatter.library.export import export
from smatter.library.fitted import common_prefix
from smatter.library.library import Library, open_library
from smatter.library.mergekit import write_merge
from smatter.library.recipes import read_recipe, write_recipe

MakeLibrary = Callable[..., Library]
POSITION_IDS, WORDS = "embeddings.position_ids", "embeddings.word_embeddings.weight"
HALF = {"base": 0.5, "source": 0.5}


def mean(first: Tensors, second: Tensors) -> Tensors:
    """Half of each, as every float32 computation of it must find; integers are the first's."""
    return {name: (t + second[name]) / 2 if t.is_floating_point() else t for name, t in first.items()}


def without_ids(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name != POSITION_IDS}


def prefixed(tensors: Tensors) -> Tensors:
    return {f"bert.{name}": tensor for name, tensor in tensors.items()}


@pytest.fixture
def library_of(tmp_path: Path) -> Callable[..., Library]:
    """A library of a base and one source."""

    def make(base: Tensors, source: Tensors, name: str = "library", accept: tuple[str, ...] = (), **more) -> Library:
        configs = more.pop("configs", (CONFIG, CONFIG))
        init_library(tmp_path / name, write_checkpoint(tmp_path / f"{name}-base", base, configs[0]), "base")
        folder = write_checkpoint(tmp_path / f"{name}-source", source, configs[1])
        return add_source(tmp_path / name, folder, "source", accept=accept, **more)[0]

    return make


def test_a_prefix_of_one_side_is_found() -> None:
    names = ["embeddings.weight", "encoder.weight", "pooler.weight"]
    with_prefix = [f"bert.{name}" for name in names]
    assert common_prefix(names, [*with_prefix, "classifier.weight"]) == "+bert."
    assert common_prefix([*with_prefix, "cls.bias"], names) == "-bert."
    assert common_prefix(names, names) == common_prefix(names, ["other.weight"]) == ""


@pytest.mark.parametrize("form", ["whole", "delta"])
@pytest.mark.parametrize("change", [prefixed, without_ids, lambda tensors: without_ids(prefixed(tensors))])
def test_a_source_saved_otherwise_is_the_same_source(library_of, form: str, change) -> None:
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    plain = library_of(base, source, "plain", form=form)
    other = library_of(base, change(source), "other", form=form)
    assert other.manifest.digests == plain.manifest.digests
    assert same_bits(other.compose(Mixture.of(HALF)).tensors(), mean(base, source))
    assert check_library(other).ok


def test_a_base_under_a_prefix_takes_sources_without_it(library_of) -> None:
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    library = library_of(prefixed(base), without_ids(source))
    assert same_bits(library.compose(Mixture.of(HALF)).tensors(), prefixed(mean(base, source)))


def test_what_a_library_leaves_out_is_left_out_under_every_prefix(tmp_path: Path) -> None:
    def with_pooler(seed: int) -> Tensors:
        return make_tensors(seed, near=make_tensors(0)) | {"extra.weight": torch.randn(4, 4)}

    folder = write_checkpoint(tmp_path / "base", with_pooler(0))
    init_library(tmp_path / "library", folder, exclude=["extra.*"])
    add_source(tmp_path / "library", write_checkpoint(tmp_path / "source", prefixed(with_pooler(1))))


def test_a_buffer_that_the_base_lacks_is_left_out(library_of) -> None:
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    library = library_of(without_ids(base), source)
    assert same_bits(library.compose(Mixture.of(HALF)).tensors(), without_ids(mean(base, source)))


@pytest.mark.parametrize("form", ["whole", "delta"])
def test_an_accepted_tensor_is_the_bases(library_of, tmp_path: Path, form: str) -> None:
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    resized = source | {WORDS: torch.randn(60, 16)}
    with pytest.raises(IncompatibleSource, match=f"--accept {WORDS}"):
        library_of(base, resized, "refused", form=form)
    library = library_of(base, resized, accept=(WORDS,), form=form)
    expected = mean(base, source | {WORDS: base[WORDS]})
    assert same_bits(library.compose(Mixture.of(HALF)).tensors(), expected)
    report = check_library(open_library(library.folder))
    assert report.ok and [each.severity for each in report.findings] == ["accepted"]

    out, recipe = tmp_path / "out", tmp_path / "recipe.safetensors"
    write_recipe(recipe, library.pinned(library.recipe(Mixture.of(HALF))))
    assert read_recipe(recipe).notes.accepted == {"source": (WORDS,)}
    assert main(["compose", str(library.folder), "--recipe", str(recipe), "--verify", "-o", str(out)]) == 0
    assert same_bits(load_file(out / "model.safetensors"), expected)
    assert f"`source` was added in spite of: `{WORDS}`" in (out / "README.md").read_text()


def test_a_recipe_is_bound_to_the_bases_tensors_that_a_source_took(library_of) -> None:
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    resized = source | {WORDS: torch.randn(60, 16)}
    recipe = library_of(base, resized, accept=(WORDS,)).recipe(Mixture.of(HALF))
    other = library_of(base | {WORDS: base[WORDS] + 0.01}, resized, "other", accept=(WORDS,))
    with pytest.raises(SmatterError, match="source"):
        other.compose(recipe)


def test_a_library_notices_that_the_base_of_a_fitted_source_has_changed(library_of) -> None:
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    library = library_of(base, prefixed(without_ids(source)))
    library.verify(("source",))
    path = library.base.folder / "model.safetensors"
    path.write_bytes(path.read_bytes())
    with pytest.raises(SourceChanged, match="'base'"):
        library.check_untouched(("source",))
    library.verify(("source",))  # the same bytes
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceChanged, match="base"):
        library.verify(("source",))


def test_no_pattern_of_accept_replaces_a_whole_source(library_of) -> None:
    stranger = make_tensors(77)
    with pytest.raises(IncompatibleSource, match="nothing would be left of it"):
        library_of(make_tensors(0), stranger, accept=("*",))


@pytest.mark.parametrize("key", ["unrelatd", "embeddings.word_embedding.weight", "vocab*"])
def test_a_misspelt_key_is_refused(library_of, key: str) -> None:
    with pytest.raises(InvalidSettings, match="names no difference"):
        library_of(make_tensors(0), make_tensors(77), accept=("unrelated", key))


def test_lacking_and_left_over_tensors_are_accepted_by_name(library_of) -> None:
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    lacking = "encoder.layer.0.output.dense.weight"
    odd = {name: tensor for name, tensor in source.items() if name != lacking} | {"adapter.weight": torch.ones(2, 2)}
    with pytest.raises(IncompatibleSource, match=rf"lacks {lacking}.*further differences: adapter\.weight"):
        library_of(base, odd, "refused")
    library = library_of(base, odd, accept=(lacking, "adapter.*"))
    expected = mean(base, source | {lacking: base[lacking]})
    assert same_bits(library.compose(Mixture.of(HALF)).tensors(), expected)


def test_a_head_for_other_labels_is_the_bases_as_the_refusal_says(library_of) -> None:
    def labelled(names: str) -> dict:
        return CONFIG | {"id2label": {str(number): name for number, name in enumerate(names)}}

    base = make_tensors(0) | {"classifier.weight": torch.randn(3, 16)}
    source = make_tensors(1, near=make_tensors(0)) | {"classifier.weight": torch.randn(3, 16)}
    configs = (labelled("abc"), labelled("xyz"))
    with pytest.raises(IncompatibleSource) as refused:
        library_of(base, source, "refused", configs=configs)
    key = str(refused.value).partition("keep the base's with --accept '")[2].partition("'")[0]
    library = library_of(base, source, accept=(key,), configs=configs)
    expected = mean(base, source | {"classifier.weight": base["classifier.weight"]})
    assert same_bits(library.compose(Mixture.of(HALF)).tensors(), expected)
    mixed = library_of(base, source, "mixed", accept=("id2label",), configs=configs)
    assert same_bits(mixed.compose(Mixture.of(HALF)).tensors(), mean(base, source))


@pytest.mark.parametrize("says", [{"tie_word_embeddings": True}, {}])
def test_a_tied_output_layer_is_read_from_the_word_embeddings(library_of, says: dict) -> None:
    config = CONFIG | {"architectures": ["GPT2LMHeadModel"]}
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    stored = base | {"lm_head.weight": base[WORDS].clone()}
    library = library_of(stored, source, configs=(config | says, config | says))
    expected = mean(stored, source | {"lm_head.weight": source[WORDS]})
    assert same_bits(library.compose(Mixture.of(HALF)).tensors(), expected)


def test_an_output_layer_that_the_base_ties_is_left_out_only_if_it_is_a_copy(library_of) -> None:
    config = CONFIG | {"architectures": ["GPT2LMHeadModel"]}
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    copied = source | {"lm_head.weight": source[WORDS].clone()}
    library = library_of(base, copied, configs=(config, config))
    assert same_bits(library.compose(Mixture.of(HALF)).tensors(), mean(base, source))
    own = source | {"lm_head.weight": source[WORDS] + 1}
    with pytest.raises(IncompatibleSource, match=r"it stores lm_head\.weight, the base ties it"):
        library_of(base, own, "other", configs=(config, config))
    backbone = CONFIG | {"architectures": ["GPT2Model"]}
    library_of(base, own, "backbone", configs=(backbone, config))


def test_mergekit_is_not_told_of_sources_that_it_would_read_otherwise(library_of) -> None:
    base, source = make_tensors(0), make_tensors(1, near=make_tensors(0))
    with pytest.raises(InvalidRecipe, match="mergekit"):
        write_merge(library_of(base, prefixed(source)), Mixture.of(HALF))
    assert "linear" in write_merge(library_of(base, without_ids(source), "buffer"), Mixture.of(HALF))


@pytest.mark.parametrize("family", ["roberta", "vit", "gpt2", "llama-tied", "bert-masked"])
@pytest.mark.parametrize("headed_first", [True, False])
def test_a_network_with_a_head_mixes_with_one_without(tmp_path: Path, family: str, headed_first: bool) -> None:
    """As save_pretrained writes both; the backbone of the export is the mean of the two."""
    from tiny_models import save, tiny_model

    headed, bare = tiny_model(family), tiny_model(family, bare=True)
    own, other = headed.base_model.state_dict(), bare.state_dict()
    for name in own.keys() & other.keys():
        other[name].copy_(own[name] + 0.01 * torch.randn(own[name].shape))
    base, source = (headed, bare) if headed_first else (bare, headed)
    save(base, tmp_path / "base")
    save(source, tmp_path / "source")
    init_library(tmp_path / "library", tmp_path / "base")
    library, findings = add_source(tmp_path / "library", tmp_path / "source")
    assert {finding.severity for finding in findings} <= {"note", "warning"} and check_library(library).ok
    export(library, Mixture.of(HALF), tmp_path / "out")
    loaded = type(base).from_pretrained(tmp_path / "out").base_model.state_dict()
    for name in own.keys() & other.keys():
        torch.testing.assert_close(loaded[name], (own[name] + other[name]) / 2, rtol=0, atol=0)


def test_a_live_network_has_the_bits_of_a_fitted_source(tmp_path: Path) -> None:
    from tiny_models import save, tiny_model

    from smatter.live.mixture import LiveMixture

    headed, bare = tiny_model("bert"), tiny_model("bert", bare=True)
    bare.load_state_dict({name: t + 0.01 * torch.randn(t.shape) for name, t in headed.bert.state_dict().items()})
    save(bare, tmp_path / "base")
    save(headed, tmp_path / "source")
    init_library(tmp_path / "library", tmp_path / "base")
    live = LiveMixture(add_source(tmp_path / "library", tmp_path / "source")[0])
    live.compose(Mixture.of({"source": 1.0}))
    in_memory = live.network.model.state_dict()
    assert in_memory.keys() == headed.bert.state_dict().keys()
    assert all(torch.equal(in_memory[name], tensor) for name, tensor in headed.bert.state_dict().items())


def test_a_whole_checkpoint_in_the_bases_terms_is_opened_as_it_is(make_library: MakeLibrary) -> None:
    library = make_library()
    assert type(library.open_source("a")) is type(open_checkpoint(library.base.folder))


def test_accepted_differences_are_those_of_one_source(library_of) -> None:
    library = library_of(make_tensors(0), make_tensors(77), accept=("unrelated",))
    listed = json.loads((library.folder / "library.json").read_text())["sources"]
    assert [source["accepted"] for source in listed] == [[], ["unrelated"]]
    assert library.recipe(Mixture.of({"base": 1.0})).notes.accepted == {}


def test_a_head_that_a_source_lacks_is_the_bases(library_of) -> None:
    """Classes for a task have no pooler: ordinary fine-tunes of a backbone that has one."""
    base, source = make_tensors(0) | {"pooler.dense.weight": torch.randn(16, 16)}, make_tensors(1, near=make_tensors(0))
    library = library_of(base, prefixed(source))
    expected = mean(base, source | {"pooler.dense.weight": base["pooler.dense.weight"]})
    assert same_bits(library.compose(Mixture.of(HALF)).tensors(), expected)
    warnings = [each.message for each in check_library(library).findings if each.severity == "warning"]
    assert warnings == ["lacks the base's head (pooler.dense.weight): the base's stands in"]
