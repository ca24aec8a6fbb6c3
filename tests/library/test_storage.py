"""What the library writes is named by its contents; nothing of anybody else's is deleted; what is read was verified."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from small_networks import make_tensors, write_checkpoint

import smatter
from smatter.cli.main import main
from smatter.compose.mixture import Mixture
from smatter.errors import AlreadyExists, InvalidManifest, SourceChanged, UnsafeFile
from smatter.files.hashing import Seal
from smatter.library.export import export
from smatter.library.library import Library, open_library


def checkpoint(folder: Path, seed: int) -> Path:
    base = make_tensors(0, torch.float32)
    return write_checkpoint(folder, make_tensors(seed, torch.float32, near=base))


@pytest.fixture
def library(make_library) -> Library:
    return make_library(sources="ab")


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change(library: Library, **fields: object) -> None:
    """Change the entry of the last source in library.json."""
    path = library.folder / "library.json"
    table = json.loads(path.read_text())
    table["sources"][-1] |= fields
    path.write_text(json.dumps(table))


def test_a_checkpoint_that_lies_among_the_stored_ones_stays(library: Library) -> None:
    mine = checkpoint(library.folder / "sources" / "new", 7)
    before = state(mine)
    for name in ("new", "again"):
        smatter.add_source(library.folder, mine, name, form="delta")
    smatter.remove_source(library.folder, "new")
    smatter.remove_source(library.folder, "again")
    assert state(mine) == before


def test_a_source_stays_whatever_is_added_under_the_name_of_its_folder(library: Library, tmp_path: Path) -> None:
    mine = checkpoint(library.folder / "sources" / "latin", 7)
    before = state(mine)
    smatter.add_source(library.folder, mine, "old")
    smatter.add_source(library.folder, checkpoint(tmp_path / "other", 8), "latin", form="delta")
    smatter.add_source(library.folder, checkpoint(tmp_path / "third", 9), "Latin", form="int8")
    assert state(mine) == before and main(["library", "check", str(library.folder)]) == 0


def test_nothing_is_deleted_through_a_link(library: Library, tmp_path: Path) -> None:
    smatter.add_source(library.folder, checkpoint(tmp_path / "new", 7), form="delta")
    elsewhere = tmp_path / "elsewhere"
    (library.folder / "sources").rename(elsewhere)
    (library.folder / "sources").symlink_to(elsewhere)
    before = state(elsewhere)
    smatter.remove_source(library.folder, "new")
    assert state(elsewhere) == before
    with pytest.raises(UnsafeFile, match="is a link"):
        smatter.add_source(library.folder, tmp_path / "new", form="delta")
    assert state(elsewhere) == before


def test_what_somebody_has_put_beside_a_stored_source_stays(library: Library, tmp_path: Path) -> None:
    added, _ = smatter.add_source(library.folder, checkpoint(tmp_path / "new", 7), form="delta")
    folder = added.path_of(added.manifest.source("new"))
    (folder / "notes.txt").write_text("mine")
    smatter.remove_source(library.folder, "new")
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_signal_after_the_manifest_is_written_does_not_take_the_source_away(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_seal: Seal) -> None:
        if "late" in open_library(library.folder).names:
            raise KeyboardInterrupt

    monkeypatch.setattr(Seal, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        smatter.add_source(library.folder, checkpoint(tmp_path / "late", 9), form="int8")
    monkeypatch.undo()
    added = open_library(library.folder)
    assert "late" in added.names
    added.verify()


def test_the_same_contents_are_kept_once_and_as_long_as_somebody_needs_them(library: Library, tmp_path: Path) -> None:
    new = checkpoint(tmp_path / "new", 7)
    for name in ("one", "two"):
        added, _ = smatter.add_source(library.folder, new, name, form="delta")
    assert len(list((library.folder / "sources").iterdir())) == 1
    smatter.remove_source(library.folder, "one")
    open_library(library.folder).compose(Mixture.of({"two": 1.0}))
    smatter.remove_source(library.folder, "two")
    assert not (library.folder / "sources").exists() and len(added.names) == 5


def test_the_layout_of_an_earlier_version_gets_one_line(library: Library, tmp_path: Path) -> None:
    smatter.add_source(library.folder, checkpoint(tmp_path / "new", 7), form="delta")
    change(library, path="sources/new")
    with pytest.raises(InvalidManifest, match=r"earlier version.*smatter library init"):
        open_library(library.folder)


def test_files_that_are_not_listed_are_not_read(library: Library, tmp_path: Path) -> None:
    smatter.add_source(library.folder, checkpoint(tmp_path / "new", 7), form="delta")
    change(library, files={})
    with pytest.raises(InvalidManifest, match="lists no file with weights"):
        open_library(library.folder)
    change(library, files={"other.safetensors": {"size": 1, "sha256": "a" * 64}})
    with pytest.raises((SourceChanged, FileNotFoundError)):
        open_library(library.folder).compose(Mixture.of({"new": 1.0}))


def test_a_digest_that_the_contents_do_not_have_is_refused(library: Library) -> None:
    """A recipe would trust it."""
    change(library, digest="a" * 64)
    for _ in range(2):  # nor is it ever taken for granted
        with pytest.raises(SourceChanged, match="differ from their digest"):
            open_library(library.folder).compose(Mixture.of({"b": 1.0}))
    open_library(library.folder).compose(Mixture.of({"a": 1.0}))


def test_a_library_in_memory_notices_a_changed_file(library: Library) -> None:
    tensor = next(iter(library.specs))
    first = library.compose(Mixture.of({"a": 0.5, "b": 0.5})).array(tensor).copy()
    path = next(library.path_of(library.manifest.source("b")).glob("*.safetensors"))
    sound = path.read_bytes()
    tensors = load_file(path)
    save_file({name: values + 1 if values.dtype == np.float32 else values for name, values in tensors.items()}, path)
    with pytest.raises(SourceChanged, match="has changed"):
        library.compose(Mixture.of({"a": 0.5, "b": 0.5}))
    path.write_bytes(sound)
    again = library.compose(Mixture.of({"a": 0.5, "b": 0.5})).array(tensor)
    assert np.array_equal(first, again)


def test_what_changes_while_it_is_read_is_not_published(library: Library, tmp_path: Path) -> None:
    path = next(library.path_of(library.manifest.source("b")).glob("*.safetensors"))

    def touch(_amount: float, _words: str = "", /) -> None:
        os.utime(path)

    with pytest.raises(SourceChanged, match="while they were read"):
        export(library, Mixture.of({"a": 0.5, "b": 0.5}), tmp_path / "out", progress=touch)
    assert not (tmp_path / "out").exists()


def test_replacing_an_export_takes_nothing_else_with_it(library: Library, tmp_path: Path) -> None:
    mixture = Mixture.of({"a": 1.0})
    export(library, mixture, tmp_path / "out")
    export(library, mixture, tmp_path / "out", replace=True)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExists, match=r"notes\.txt"):
        export(library, mixture, tmp_path / "out", replace=True)
    (tmp_path / "out" / "notes.txt").unlink()
    smatter.add_source(library.folder, tmp_path / "out", "out")
    with pytest.raises(AlreadyExists, match="source 'out'"):
        export(open_library(library.folder), mixture, tmp_path / "out", replace=True)
    shutil.copytree(library.folder, tmp_path / "out2" / "library")
    (tmp_path / "out2" / "recipe.safetensors").write_bytes((tmp_path / "out" / "recipe.safetensors").read_bytes())
    with pytest.raises(AlreadyExists):
        export(open_library(tmp_path / "out2" / "library"), mixture, tmp_path / "out2", replace=True)
