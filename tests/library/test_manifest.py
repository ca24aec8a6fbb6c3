"""library.json is a manifest or is refused, and comes back from its text as it was."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from json_fuzz import JSON, mutated_bytes, mutated_json

from smatter.errors import InvalidManifest, SmatterError
from smatter.files.reading import parse_json
from smatter.library.manifest import Manifest, parse_manifest, read_manifest

PATH = Path("library/library.json")
FILES = {"model.safetensors": {"size": 100, "sha256": "a" * 64}}
SOUND: dict[str, Any] = {
    "schema": 1,
    "architecture": "BertModel",
    "model_type": "bert",
    "base": "base",
    "exclude": ["classifier.*"],
    "modules": {"embeddings": ["embeddings.w"], "layer.0": ["layer.0.w", "layer.0.b"]},
    "sources": [
        {"name": "base", "path": "/base", "form": "whole", "digest": "b" * 64, "n_parameters": 9, "files": FILES},
        {
            "name": "law", "path": f"sources/{'d' * 64}", "form": "int8", "digest": "c" * 64, "n_parameters": 9,
            "files": FILES, "loss": {"of_weights": 0.01, "of_delta": 0.5}, "accepted": ["vocabulary", "classifier.*"],
        },
    ],
}  # fmt: skip


def read(text: bytes) -> Manifest:
    return parse_manifest(parse_json(text, PATH), PATH)


def assert_sound_or_refused(content: Any) -> None:
    try:
        manifest = parse_manifest(content, PATH)
    except SmatterError as error:
        assert isinstance(error, InvalidManifest)
        assert str(PATH) in str(error)
        return
    assert_sound(manifest)


def assert_sound(manifest: Manifest) -> None:
    names = [source.name for source in manifest.sources]
    assert len(set(names)) == len(names) and manifest.base in names
    assert manifest.source(manifest.base).form == "whole"
    for source in manifest.sources:
        assert "/" not in source.name and not source.name.startswith(".")
        assert "\0" not in source.path
        assert all("/" not in file and not file.startswith(".") for file in source.files)
    tensors = [tensor for tensors in manifest.modules.values() for tensor in tensors]
    assert len(set(tensors)) == len(tensors)
    assert read(manifest.to_json()) == manifest


def test_the_sound_one_is_accepted() -> None:
    assert json.loads(parse_manifest(SOUND, PATH).to_json())["sources"][1] == SOUND["sources"][1]


@given(JSON)
def test_arbitrary_json(content: Any) -> None:
    assert_sound_or_refused(content)


@settings(max_examples=200)
@given(mutated_json(SOUND))
@example(SOUND | {"schema": True})
@example(SOUND | {"schema": 1.0})
@example(SOUND | {"architecture": ""})
@example(SOUND | {"sources": [SOUND["sources"][0] | {"path": "a\0b"}]})
@example(SOUND | {"sources": [SOUND["sources"][0] | {"name": "base\n"}], "base": "base\n"})
@example(SOUND | {"sources": [SOUND["sources"][0] | {"loss": {"of_weights": float("inf"), "of_delta": 0}}]})
@example(SOUND | {"sources": [SOUND["sources"][0] | {"loss": {"of_weights": 0, "of_delta": float("nan")}}]})
@example(SOUND | {"sources": [SOUND["sources"][0] | {"path": "\ud800"}]})
def test_almost_sound_manifests(content: Any) -> None:
    assert_sound_or_refused(content)


@given(mutated_bytes(json.dumps(SOUND).encode()))
def test_almost_sound_files(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "library.json").write_bytes(text)
    try:
        assert_sound(read_manifest(folder))
    except SmatterError as error:
        assert str(folder / "library.json") in str(error)


@given(st.binary(max_size=60))
def test_arbitrary_bytes(text: bytes) -> None:
    with pytest.raises(SmatterError):
        read(text)
