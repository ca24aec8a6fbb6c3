"""What exports take along beside the weights, and of whom."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from small_networks import CONFIG, make_tensors, write_checkpoint

from smatter.compose.mixture import Mixture
from smatter.errors import SourceChanged
from smatter.library.check import check_library
from smatter.library.checkpoint import open_checkpoint
from smatter.library.compare import compare
from smatter.library.edit import add_source, init_library, remove_source
from smatter.library.export import export
from smatter.library.library import Library, open_library
from smatter.library.side_files import side_files

TEMPLATE, MODULES, POOLING = "chat_template.jinja", "modules.json", "1_Pooling/config.json"
SENTENCES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
DENSE = {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}


def checkpoint(folder: Path, seed: int, **files: object) -> Path:
    base = make_tensors(0)
    write_checkpoint(folder, make_tensors(seed, near=base) if seed else base, CONFIG)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.fixture
def library_of(tmp_path: Path) -> Callable[..., Library]:
    """A library of a base with some files, and sources `a`, `b` with others."""

    def make(base: dict, *sources: dict, form: str = "whole") -> Library:
        library = init_library(tmp_path / "library", checkpoint(tmp_path / "base", 0, **base))
        for seed, (name, files) in enumerate(zip("ab", sources, strict=False), 1):
            library, _ = add_source(tmp_path / "library", checkpoint(tmp_path / name, seed, **files), form=form)
        return library

    return make


@pytest.mark.parametrize("form", ["whole", "delta"])
def test_what_the_base_lacks_is_the_heaviest_sources(library_of, tmp_path: Path, form: str) -> None:
    pooling = {"pooling_mode_mean_tokens": True}
    first = {TEMPLATE: "first", MODULES: SENTENCES, POOLING: pooling}
    library = library_of({}, first, {TEMPLATE: "second"}, form=form)
    out = export(library, Mixture.of({"a": 0.6, "b": 0.4}), tmp_path / "out")
    assert (out / TEMPLATE).read_text() == "first"
    assert json.loads((out / MODULES).read_text()) == SENTENCES and json.loads((out / POOLING).read_text()) == pooling
    card = (out / "README.md").read_text()
    assert f"`{TEMPLATE}` is of `a`" in card and f"`{POOLING}` is of `a`" in card
    export(library, Mixture.of({"a": 0.4, "b": 0.6}), out, replace=True)
    assert (out / TEMPLATE).read_text() == "second" and (out / POOLING).exists()
    export(library, Mixture.of({"base": 1.0}), out, replace=True)
    assert not (out / TEMPLATE).exists() and not (out / POOLING).exists()
    assert check_library(library).ok


def test_what_the_base_has_is_the_bases(library_of, tmp_path: Path) -> None:
    library = library_of({TEMPLATE: "base"}, {TEMPLATE: "first"})
    out = export(library, Mixture.of({"a": 1.0}), tmp_path / "out")
    assert (out / TEMPLATE).read_text() == "base" and "is of `a`" not in (out / "README.md").read_text()


def test_files_that_belong_together_come_from_one_source(library_of) -> None:
    vocabulary = {"vocab.json": {"cat": 0}}
    library = library_of(vocabulary, vocabulary | {"added_tokens.json": {"<x>": 1}, "merges.txt": "a b"})
    chosen = side_files(library, Mixture.of({"a": 1.0}))
    assert chosen == {"config.json": "base", "vocab.json": "base"}


@pytest.mark.parametrize(
    "modules", [[*SENTENCES, DENSE], [{**SENTENCES[1], "path": "9"}], 5, "x", None, [1], [{"type": ["x"], "path": ""}]]
)
def test_modules_with_more_than_side_files_are_not_taken_along(library_of, modules: object) -> None:
    """An export that sentence-transformers would load without its last layer would be a wrong one."""
    library = library_of({}, {MODULES: json.dumps(modules), POOLING: {}})
    assert MODULES not in side_files(library, Mixture.of({"a": 1.0}))


def test_a_side_file_that_has_changed_is_refused(library_of, tmp_path: Path) -> None:
    library = library_of({}, {TEMPLATE: "first"})
    (tmp_path / "a" / TEMPLATE).write_text("other")
    with pytest.raises(SourceChanged, match="chat_template"):
        export(open_library(library.folder), Mixture.of({"a": 1.0}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_stored_source_with_subfolders_is_removed_whole(library_of) -> None:
    library = library_of({}, {MODULES: SENTENCES, POOLING: {}}, form="delta")
    stored = library.path_of(library.manifest.source("a"))
    assert (stored / POOLING).exists()
    remove_source(library.folder, "a")
    assert not stored.exists()


def test_other_special_tokens_and_files_are_told(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", 0, **{"tokenizer_config.json": {"eos_token": "</s>"}})
    told = {"tokenizer_config.json": {"eos_token": {"content": "<end>"}}, TEMPLATE: "x"}
    source = checkpoint(tmp_path / "source", 1, **told)
    findings = compare(open_checkpoint(base), open_checkpoint(source), "source")
    assert [(each.severity, each.kind) for each in findings] == [("note", "side files"), ("warning", "side files")]
    assert '"<end>"' in findings[1].message and '"</s>"' in findings[1].message
    same = checkpoint(tmp_path / "same", 1, **{"tokenizer_config.json": {"eos_token": {"content": "</s>"}}})
    assert compare(open_checkpoint(base), open_checkpoint(same), "same") == []
