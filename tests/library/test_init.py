"""A library of a base and several sources at once: all of them, or none, and each refusal with its reason."""

from pathlib import Path

import pytest
import torch
from small_networks import make_tensors, write_checkpoint

import smatter
from smatter.cli.main import main
from smatter.errors import IncompatibleSource, InvalidSettings
from smatter.library.manifest import MANIFEST


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    base = make_tensors(0)
    write_checkpoint(tmp_path / "base", base)
    for seed, name in enumerate(("law", "food"), 1):
        write_checkpoint(tmp_path / name, make_tensors(seed, near=base))
    write_checkpoint(tmp_path / "wider", {name: torch.cat([each, each]) for name, each in base.items()})
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_at_once_is_one_after_the_other(shelf: Path) -> None:
    told = {}
    library = smatter.init_library(
        shelf / "at once", shelf / "base", sources=[shelf / "law", shelf / "food"], watch=told.__setitem__
    )
    smatter.init_library(shelf / "slowly", shelf / "base")
    findings = {name: smatter.add_source(shelf / "slowly", shelf / name)[1] for name in ("law", "food")}
    assert (shelf / "at once" / MANIFEST).read_bytes() == (shelf / "slowly" / MANIFEST).read_bytes()
    assert told == findings and smatter.open_library(library.folder).names == ("base", "law", "food")
    library.verify()


def test_one_refusal_leaves_nothing_and_each_is_told(shelf: Path) -> None:
    given = [shelf / name for name in ("law", "wider", "empty", "nowhere", "law")]
    with pytest.raises(IncompatibleSource) as refused:
        smatter.init_library(shelf / "new", shelf / "base", sources=given)
    message = str(refused.value)
    assert "4 of 5 sources" in message and not (shelf / "new").exists()
    assert all(str(shelf / name) in message for name in ("wider", "empty", "nowhere"))
    assert "named 'law' already" in message
    smatter.init_library(shelf / "new", shelf / "base", sources=[shelf / "law"])


def test_what_is_accepted_must_be_met_by_some_source(shelf: Path) -> None:
    write_checkpoint(shelf / "stranger", make_tensors(7))
    sources = [shelf / "law", shelf / "stranger"]
    with pytest.raises(IncompatibleSource, match="--accept unrelated"):
        smatter.init_library(shelf / "new", shelf / "base", sources=sources)
    with pytest.raises(InvalidSettings, match="--accept architecture"):
        smatter.init_library(shelf / "new", shelf / "base", sources=sources[:1], accept=["architecture"])
    assert not (shelf / "new").exists()
    library = smatter.init_library(shelf / "new", shelf / "base", sources=sources, accept=["unrelated"])
    assert library.manifest.source("stranger").accepted == ("unrelated",)


def test_the_command(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["library", "init", str(shelf / "my lib"), str(shelf / "base")]
    assert main([*words, str(shelf / "law"), str(shelf / "wider")]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 and str(shelf / "wider") in told.err and not (shelf / "my lib").exists()
    assert main([*words, str(shelf / "law")]) == 0
    assert "added 'law'" in capsys.readouterr().out
    assert main([*words[:2], str(shelf / "other"), words[3]]) == 0
    assert f"smatter library add {shelf / 'other'} SOURCE..." in capsys.readouterr().out
