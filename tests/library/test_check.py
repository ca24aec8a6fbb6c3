"""`library check`: what it finds between sources, and what it says of a healthy library."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_networks import CONFIG, make_tensors, write_checkpoint

from smatter.cli.main import main
from smatter.compose.mixture import Mixture
from smatter.errors import IncompatibleSource, UnknownSource
from smatter.library.check import check_library
from smatter.library.checkpoint import open_checkpoint
from smatter.library.compare import compare
from smatter.library.edit import add_source, init_library
from smatter.library.library import Library, open_library

MakeLibrary = Callable[..., Library]
SEVERITIES = {"error", "accepted", "warning", "note"}


def kinds(report) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.kind, set()).add(finding.source)
    return found


def test_a_healthy_library_has_nothing_to_report(make_library: MakeLibrary) -> None:
    report = check_library(make_library())
    assert report.ok and report.findings == () and report.n_distinct == 4


def test_near_duplicates_and_strangers_are_told_apart(make_library: MakeLibrary, tmp_path: Path) -> None:
    library = make_library()
    nearly = make_tensors(1, near=make_tensors(0))  # the same as `a` ...
    nearly["encoder.layer.0.output.dense.weight"] += 1e-4 * torch.randn(16, 64)  # ... but for a breath
    add_source(library.folder, write_checkpoint(tmp_path / "nearly", nearly))
    stranger = write_checkpoint(tmp_path / "stranger", make_tensors(77))
    add_source(library.folder, stranger, accept=["unrelated"])
    library, _ = add_source(library.folder, write_checkpoint(tmp_path / "again", make_tensors(0)), form="delta")
    report = check_library(library)
    assert report.ok, "neither warnings nor what was accepted forbid mixing"
    told = {"near-duplicates": {"nearly", "again"}, "unrelated": {"stranger"}, "scatter": {"all sources"}}
    assert kinds(report) == told
    assert report.n_distinct == 5
    assert report.similarity is not None
    assert abs(report.similarity.overall_cosine[report.similarity.names.index("stranger")]) < 0.1


def test_cosines_per_module_agree_with_torch(make_library: MakeLibrary) -> None:
    library = make_library(torch.bfloat16)
    report = check_library(library)
    assert report.similarity is not None
    for row, (module, tensors) in enumerate(library.partition.modules.items()):
        matrices = [name for name in tensors if len(library.specs[name].shape) > 1]
        base, source = (
            torch.cat([library.tensor(which, name).double().reshape(-1) for name in matrices])
            for which in ("base", "c")
        )
        expected = float(torch.nn.functional.cosine_similarity(base, source, dim=0))
        column = report.similarity.names.index("c")
        assert report.similarity.cosine_to_base[row, column] == pytest.approx(expected, abs=1e-5), module


def test_a_stranger_is_refused_unless_it_is_accepted_by_name(make_library: MakeLibrary, tmp_path: Path) -> None:
    library, stranger = make_library(), write_checkpoint(tmp_path / "stranger", make_tensors(77))
    with pytest.raises(IncompatibleSource, match=r"another initialisation.*--accept unrelated"):
        add_source(library.folder, stranger)
    assert "stranger" not in open_library(library.folder).names
    added, findings = add_source(library.folder, stranger, accept=["unrelated"])
    assert [(finding.kind, finding.severity) for finding in findings] == [("unrelated", "accepted")]
    assert added.manifest.source("stranger").accepted == ("unrelated",)


def test_a_file_that_came_later_is_found_in_an_open_library_too(make_library: MakeLibrary) -> None:
    library = make_library()
    assert check_library(library).ok
    (library.path_of(library.manifest.source("a")) / "tokenizer_config.json").write_text("{}")
    report = check_library(library)
    assert not report.ok and "was not there when source 'a' was added" in report.findings[0].message


def test_a_changed_file_is_found_even_with_its_old_time(make_library: MakeLibrary) -> None:
    import os

    library = make_library()
    library.verify()
    path = library.path_of(library.manifest.source("a")) / "model.safetensors"
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    report = check_library(Library(library.folder, library.manifest))
    assert not report.ok and kinds(report) == {"hashes": {"a"}}


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda c, t: c.update(model_type="vit"), "architecture", "one architecture"),
        (lambda c, t: c.update(num_attention_heads=4), "settings", "another network"),
        (lambda c, t: c.update(layer_norm_eps=1e-3), "settings", "another network"),
        (lambda c, t: c.update(vocab_size=51), "vocabulary", "one tokenizer"),
        (lambda c, t: c.update(tie_word_embeddings=False), "tied weights", "save both alike"),
        (lambda c, t: t.update({"lm_head.weight": torch.zeros(50, 16)}), "tied weights", "ties it"),
        (lambda c, t: t.pop("encoder.layer.0.output.dense.weight"), "tensors", "lacks"),
        (lambda c, t: t.update(extra=torch.zeros(1)), "tensors", "no counterpart"),
        (lambda c, t: t.update({"encoder.layer.0.output.dense.weight": torch.zeros(8, 64)}), "shapes", "[8, 64]"),
        (lambda c, t: t.update({"embeddings.word_embeddings.weight": torch.zeros(60, 16)}), "shapes", "vocabularies"),
        (lambda c, t: t.update({"embeddings.position_ids": torch.zeros(12)}), "dtypes", "save it as the base's"),
    ],
)
def test_differences_from_the_base_are_named(tmp_path: Path, change, kind: str, words: str) -> None:
    base_config = CONFIG | {"vocab_size": 50, "tie_word_embeddings": True, "architectures": ["BertForMaskedLM"]}
    base = write_checkpoint(tmp_path / "base", make_tensors(0), base_config)
    config, tensors = dict(base_config), make_tensors(1)
    change(config, tensors)
    other = write_checkpoint(tmp_path / "other", tensors, config)
    findings = compare(open_checkpoint(base), open_checkpoint(other), "other", ())
    assert [finding.kind for finding in findings] == [kind]
    assert words in findings[0].message


def rename(tensors: dict, old: str, new: str) -> dict:
    return {name.replace(old, new): value for name, value in tensors.items()}


def test_fused_projections_prefixes_and_batch_norm_are_called_by_their_names(tmp_path: Path) -> None:
    base = open_checkpoint(write_checkpoint(tmp_path / "base", make_tensors(0)))

    def message(tensors: dict, name: str) -> str:
        findings = compare(base, open_checkpoint(write_checkpoint(tmp_path / name, tensors)), name, ())
        assert len(findings) == 1, findings
        return findings[0].message

    fused = rename(make_tensors(1), "self.query", "self.qkv")
    assert "fuses projections" in message(fused, "fused")
    buffers = {f"bn.{name}": torch.ones(4) for name in ("running_mean", "running_var")}
    with_buffers = open_checkpoint(write_checkpoint(tmp_path / "bn", make_tensors(0) | buffers))
    same = compare(with_buffers, with_buffers, "bn", ())
    assert [finding.kind for finding in same] == ["normalisation buffers"]


def test_tokens_that_moved_are_counted(tmp_path: Path) -> None:
    folders = [write_checkpoint(tmp_path / name, make_tensors(0)) for name in ("base", "moved", "none")]
    vocabulary = {"[PAD]": 0, "cat": 1, "dog": 2}
    moved = {"[PAD]": 0, "dog": 1, "cat": 2}
    for folder, tokens in zip(folders, (vocabulary, moved), strict=False):
        added = [{"id": 3, "content": "<x>"}]
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}, "added_tokens": added}))
    base, other, none = map(open_checkpoint, folders)
    assert "2 tokens have another number" in compare(base, other, "moved", ())[0].message
    assert [finding.severity for finding in compare(base, none, "none", ())] == ["warning"]


def test_heads_of_other_tasks_are_left_out_by_a_pattern(tmp_path: Path) -> None:
    def with_head(name: str, n_labels: int, seed: int) -> Path:
        tensors = make_tensors(seed, near=make_tensors(0)) | {"classifier.weight": torch.randn(n_labels, 16)}
        labels = {"id2label": {str(i): f"{name}{i}" for i in range(n_labels)}}
        return write_checkpoint(tmp_path / name, tensors, CONFIG | labels)

    base, other, same_size = with_head("base", 3, 0), with_head("other", 5, 1), with_head("same", 3, 2)
    assert main(["library", "init", str(tmp_path / "strict"), str(base)]) == 0
    assert main(["library", "add", str(tmp_path / "strict"), str(other)]) == 2
    assert main(["library", "add", str(tmp_path / "strict"), str(same_size)]) == 2, "rows stand for other labels"
    init_library(tmp_path / "library", base, exclude=["classifier.*"])
    library, findings = add_source(tmp_path / "library", other)
    library, findings = add_source(tmp_path / "library", same_size)
    assert "classifier.weight" not in library.specs
    assert all(finding.severity == "warning" for finding in findings)


def test_check_in_json_is_complete(make_library: MakeLibrary, capsys) -> None:
    library = make_library()
    assert main(["library", "check", str(library.folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] and report["n_distinct"] == 4
    assert set(report["cosine_to_base"]["a"]["modules"]) == set(library.partition.modules)


def test_a_library_of_some_of_its_sources_keeps_the_base(make_library: MakeLibrary) -> None:
    library = make_library()
    base, name = library.manifest.base, library.names[-1]
    assert library.only([]).names == (base,)
    fewer = library.only([name])
    assert fewer.names == (base, name) and fewer.manifest.digests.items() <= library.manifest.digests.items()
    mixture = Mixture.of({base: 0.25, name: 0.75})
    ours, theirs = fewer.compose(mixture).tensors(), library.compose(mixture).tensors()
    assert all(torch.equal(ours[tensor], theirs[tensor]) for tensor in theirs)
    with pytest.raises(UnknownSource, match="nobody"):
        library.only(["nobody"])


def spoil(library: Library) -> None:
    path = library.path_of(library.manifest.source("a")) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")


def accept(library: Library) -> None:
    stranger = write_checkpoint(library.folder.parent / "stranger", make_tensors(77))
    add_source(library.folder, stranger, accept=["unrelated"])


@pytest.mark.parametrize(
    ("change", "code", "severities"),
    [(lambda _: None, 0, set()), (accept, 0, {"accepted", "warning"}), (spoil, 2, {"error"})],
)
def test_verdict_exit_code_and_json_agree(make_library: MakeLibrary, capsys, change, code: int, severities) -> None:
    library = make_library()
    change(library)
    assert main(["library", "check", str(library.folder), "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is (code == 0) and {each["severity"] for each in told["findings"]} == severities
    assert main(["library", "check", str(library.folder)]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == ("fit to mix" if code == 0 else "not fit to mix")
    assert {line.partition(":")[0] for line in lines if line.partition(":")[0] in SEVERITIES} == severities


def test_what_no_entry_names_is_an_orphan(make_library: MakeLibrary, tmp_path: Path, capsys) -> None:
    library = make_library()
    library, _ = add_source(
        library.folder, write_checkpoint(tmp_path / "d", make_tensors(4, near=make_tensors(0))), form="delta"
    )
    assert check_library(library).orphans == ()
    nested = write_checkpoint(library.folder / "sources/mine/deep", make_tensors(5, near=make_tensors(0)))
    library, _ = add_source(library.folder, nested)
    assert check_library(library).orphans == (), "a folder that holds a source is none, however deep it lies"
    left = ["sources/" + "0" * 64, "sources/.x.partial-1-a", "experts/old.safetensors", ".library.json.partial-7-b"]
    for name in left:
        (library.folder / name).parent.mkdir(exist_ok=True)
        (library.folder / name).write_text("")
    report = check_library(library)
    assert report.ok and set(report.orphans) == {str(library.folder / name) for name in left}
    assert report.to_dict()["orphans"] == list(report.orphans)
    assert main(["library", "check", str(library.folder)]) == 0
    assert capsys.readouterr().out.count("orphan: ") == len(left)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("adapter_config.json", "PEFT adapter"),
        ("model-q4.gguf", "GGUF"),
        ("model.onnx", "ONNX"),
        ("pytorch_model.bin", "pickled"),
        ("notes.txt", "Hugging Face checkpoint folder"),
    ],
)
def test_folders_of_other_formats_are_called_by_their_names(tmp_path: Path, file: str, words: str, capsys) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / file).write_text("{}")
    assert main(["library", "init", str(tmp_path / "library"), str(tmp_path / "other")]) == 2
    assert words in capsys.readouterr().err


def test_add_takes_keys_from_the_command_line(make_library: MakeLibrary, tmp_path: Path, capsys) -> None:
    library = make_library()
    odd = write_checkpoint(tmp_path / "odd", make_tensors(77), CONFIG | {"layer_norm_eps": 1e-3})
    command = ["library", "add", str(library.folder), str(odd)]
    assert main(command) == 2
    assert "--accept layer_norm_eps" in capsys.readouterr().err
    assert main([*command, "--accept", "layer_norm_eps"]) == 2
    assert "--accept unrelated" in capsys.readouterr().err
    keys = ["--accept", "layer_norm_eps", "--accept", "unrelated"]
    assert main([*command, *keys, "--accept", "unrelatd"]) == 2
    assert "odd" not in open_library(library.folder).names
    assert main([*command, *keys]) == 0
    assert capsys.readouterr().out.count("  accepted: ") == 2
    assert open_library(library.folder).manifest.source("odd").accepted == ("layer_norm_eps", "unrelated")


def test_stored_sources_are_compared_as_whole_ones_are(tmp_path: Path) -> None:
    init_library(tmp_path / "library", write_checkpoint(tmp_path / "b", make_tensors(0), CONFIG | {"vocab_size": 50}))
    source = write_checkpoint(tmp_path / "s", make_tensors(1, near=make_tensors(0)), CONFIG | {"vocab_size": 51})
    for form in ("whole", "delta"):
        library, findings = add_source(tmp_path / "library", source, form, form=form, accept=["vocab_size"])
        assert ("accepted", "vocab_size") in [(each.severity, each.key) for each in findings]
    found = [(each.source, each.key) for each in check_library(library).findings if each.severity == "accepted"]
    assert found == [("whole", "vocab_size"), ("delta", "vocab_size")]
