"""`smatter predict` as a person or a program types it."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_suites import picture, write_tree
from tiny_libraries import texts_support

import smatter
from smatter.backbones.network import CHUNK
from smatter.cli.main import main
from smatter.compose.experts import ExpertMix
from smatter.library.banks import BANK, Bank
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.live.model import TaskModel
from smatter.live.predictions import Predictions
from smatter.live.stream import predict_stream
from smatter.tasks.inputs import Input

N_INPUTS = CHUNK + 9


@dataclass(frozen=True)
class Place:
    """A library, a recipe for it, what adapting gave, and the same opened from the recipe."""

    library: Path
    recipe: Path
    adapted: Any
    model: TaskModel

    def words(self, inputs: object, *options: object) -> list[str]:
        return list(map(str, ("predict", self.recipe, inputs, "--library", self.library, *options)))


def make_place(folder: Path, library: Library, support: Any, **options: Any) -> Place:
    adapted, recipe = smatter.adapt(library, support, **options), folder / "task.safetensors"
    adapted.save(recipe)
    return Place(library.folder, recipe, adapted, smatter.open_task(recipe, library))


@pytest.fixture(scope="module")
def vit(tmp_path_factory, vit_library: Library) -> Place:
    """Of three classes of pictures."""
    folder = tmp_path_factory.mktemp("vit-task")
    return make_place(folder, vit_library, write_tree(folder / "shots", {".": "abc"}))


@pytest.fixture(scope="module")
def bert(tmp_path_factory, topics: Library) -> Place:
    """Of four classes of texts."""
    return make_place(tmp_path_factory.mktemp("bert-task"), topics, texts_support("law"))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """More than a chunk has, of several lengths."""
    made = texts_support("law", n_shot=20).inputs[:N_INPUTS]
    return [" ".join([text] * (1 + number % 3)) for number, text in enumerate(made)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """More pictures than a chunk has, at several depths."""
    folder = tmp_path_factory.mktemp("tree")
    for number in range(N_INPUTS):
        place = folder / Path(*["deep", "er"][: number % 3])
        place.mkdir(parents=True, exist_ok=True)
        picture(number, (6 + number % 5, 9)).save(place / f"{number}.png")
    (folder / "notes.txt").write_text("mine")
    (folder / ".hidden.png").write_text("mine")
    return folder


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def assert_told(rows: list[dict[str, Any]], names: list[str], wanted: Predictions) -> None:
    """Rows say of these inputs, in this order, what was predicted, to the bit."""
    assert [row["input"] for row in rows] == names
    assert [row["class"] for row in rows] == list(wanted.names)
    assert [float(row["probability"]) for row in rows] == wanted.probabilities.max(dim=1).values.tolist()
    assert not any(row.get("error") for row in rows)


def stdin(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_folder_is_predicted_as_python_predicts_it(vit: Place, tree: Path, capsys, monkeypatch) -> None:
    paths = sorted(path for path in tree.rglob("[0-9]*.png"))
    assert len(paths) == N_INPUTS > CHUNK
    assert main(vit.words(tree)) == 0
    found = table(capsys.readouterr().out)
    assert list(found[0]) == ["input", "class", "probability", "error"]
    assert_told(found, list(map(str, paths)), vit.model.predict(paths))
    assert_told(found, list(map(str, paths)), vit.adapted.predict(paths))
    stdin(monkeypatch, b"\n".join(map(os.fsencode, paths)))
    assert main(vit.words("-")) == 0
    assert table(capsys.readouterr().out) == found
    assert main(vit.words(paths[0])) == 0
    assert_told(table(capsys.readouterr().out), [str(paths[0])], vit.model.predict(paths[:1]))


@pytest.mark.parametrize("form", ["csv", "jsonl", "txt", "-"])
def test_texts_are_predicted_as_python_predicts_them(
    bert: Place, texts: list[str], tmp_path: Path, capsys, monkeypatch, form: str
) -> None:
    path = tmp_path / f"a.{form}"
    if form == "csv":
        path.write_text("\n".join(["label,text", *(f",{text}" for text in texts)]))
    elif form == "jsonl":
        path.write_text("\n".join(json.dumps({"text": text, "label": 3}) for text in texts))
    else:
        path.write_text("\n".join(texts))
    if form == "-":
        stdin(monkeypatch, path.read_bytes())
    assert main(bert.words("-" if form == "-" else path)) == 0
    found = table(capsys.readouterr().out)
    assert_told(found, texts, bert.model.predict(texts))
    assert_told(found, texts, bert.adapted.predict(texts))


@pytest.mark.parametrize("head", ["ridge", "logistic", "linear"])
def test_every_head_predicts_as_it_did(vit_library: Library, tree: Path, tmp_path: Path, capsys, head: str) -> None:
    shots = write_tree(tmp_path / "shots", {".": "abc"})
    for number, label in enumerate("abc"):
        (shots / label).rename(shots / f"LABEL_{number}")
    place = make_place(tmp_path, vit_library, shots, head=head)
    paths = sorted(path for path in tree.rglob("[0-9]*.png"))
    assert main(place.words(tree)) == 0
    found = table(capsys.readouterr().out)
    assert_told(found, list(map(str, paths)), place.model.predict(paths))
    assert_told(found, list(map(str, paths)), place.adapted.predict(paths))


def test_experts_are_those_of_the_router(vit: Place, vit_library: Library, tree: Path, tmp_path: Path, capsys) -> None:
    live = LiveMixture(smatter.open_library(vit.library))
    generator, n_units = np.random.default_rng(0), live.numbering.n_units
    bank = Bank(
        generator.normal(0, 0.3, live.numbering.n_parameters).astype(np.float16),
        np.ones((1, n_units), np.bool_),
        "groups",
        1,
        base=vit_library.manifest.digests[vit_library.manifest.base],
        partition=vit_library.partition.digest,
        tensors=tuple(live.numbering.tensors),
    )
    (tmp_path / "router").mkdir()
    bank.write(tmp_path / "router" / BANK)
    changed = replace(vit.adapted.recipe, experts=ExpertMix(bank.digest, (0.5,)))
    smatter.write_recipe(tmp_path / "task", changed)
    words = ["predict", str(tmp_path / "task"), str(tree), "--library", str(vit.library)]
    assert main(words) == 2
    assert "--router" in capsys.readouterr().err
    assert main([*words, "--router", str(tmp_path / "router")]) == 0
    paths = sorted(path for path in tree.rglob("[0-9]*.png"))
    wanted = smatter.open_task(changed, vit.library, tmp_path / "router").predict(paths)
    assert_told(table(capsys.readouterr().out), list(map(str, paths)), wanted)
    assert not torch.equal(wanted.probabilities, vit.model.predict(paths).probabilities)


@pytest.mark.parametrize("top", [1, 2, 4, 100])
def test_the_most_probable_classes_in_order(bert: Place, texts: list[str], tmp_path, capsys, top: int) -> None:
    (tmp_path / "a.txt").write_text("\n".join(texts[:9]))
    wanted = [prediction.top(top) for prediction in bert.model.predict(texts[:9])]
    shown = min(top, 4)
    assert all(len(each) == shown for each in wanted)
    assert main(bert.words(tmp_path / "a.txt", "--top", top)) == 0
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    numbers = range(2, shown + 1)
    others = [f"{word}_{number}" for number in numbers for word in ("class", "probability")]
    assert header == ["input", "class", "probability", *others, "error"]
    for row, best in zip(rows, wanted, strict=True):
        assert row[1:-1:2] == [name for name, _ in best] and row[2:-1:2] == [repr(share) for _, share in best]
    assert main(bert.words(tmp_path / "a.txt", "--top", top, "--json")) == 0
    for line, best in zip(capsys.readouterr().out.splitlines(), wanted, strict=True):
        told = json.loads(line)
        assert told["top"] == [{"class": name, "probability": share} for name, share in best]
        assert (told["class"], told["probability"]) == best[0] and next(iter(told)) == "input"


def test_json_has_an_object_per_line(bert: Place, texts: list[str], tmp_path: Path, capsys) -> None:
    (tmp_path / "a.txt").write_text("\n".join([*texts, ""]) + "\n")
    assert main(bert.words(tmp_path / "a.txt", "--json")) == 1
    *rows, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert_told(rows, texts, bert.model.predict(texts))
    assert set(rows[0]) == {"input", "class", "probability"}
    assert set(last) == {"input", "error"} and f"line {N_INPUTS + 1}: no text" in last["error"]


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["csv", "json"])
def test_a_file_holds_what_would_be_printed(bert: Place, tmp_path: Path, capsys, options: list[str]) -> None:
    (tmp_path / "a.txt").write_bytes(b"law1a\n\n\xff\nlaw2b")
    out = tmp_path / "out"
    assert main(bert.words(tmp_path / "a.txt", *options)) == 1
    printed = capsys.readouterr().out
    assert main(bert.words(tmp_path / "a.txt", "-o", out, *options)) == 1
    told = capsys.readouterr().out
    assert out.read_text() == printed and sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "out"]
    if options:
        assert json.loads(told) == {"output": str(out), "rows": 4, "unreadable": 2}
    else:
        assert told == f"wrote {out}: 4 rows, 2 unreadable\n"


@pytest.mark.parametrize("taken", ["file", "link", "folder"])
def test_a_place_that_is_taken_is_refused_before_any_work(bert: Place, tmp_path, capsys, monkeypatch, taken) -> None:
    monkeypatch.setattr("smatter.library.recipes.read_recipe", None)
    (tmp_path / "a.txt").write_text("law1a")
    out = tmp_path / "out"
    {"file": out.touch, "link": lambda: out.symlink_to("nowhere"), "folder": out.mkdir}[taken]()
    assert main(bert.words(tmp_path / "a.txt", "-o", out)) == 2
    assert capsys.readouterr().err == f"smatter: {out} exists already; choose another name\n"
    assert main(bert.words(tmp_path / "a.txt", "-o", tmp_path / "no" / "where")) == 2
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("fails", ["in the second chunk", "interrupted", "on a full disk", "without input"])
def test_nothing_is_written_when_it_fails(bert: Place, tmp_path: Path, capsys, monkeypatch, fails: str) -> None:
    stdin(monkeypatch, b"" if fails == "without input" else b"law1a\n" * N_INPUTS)
    predict, calls = TaskModel.predict, count()

    def broken(model: TaskModel, inputs: Any) -> Predictions:
        if next(calls):
            if fails == "on a full disk":
                raise OSError(28, "No space left on device")
            raise ZeroDivisionError if fails == "in the second chunk" else KeyboardInterrupt
        return predict(model, inputs)

    monkeypatch.setattr(TaskModel, "predict", broken)
    codes = {"in the second chunk": 1, "interrupted": 130, "on a full disk": 2, "without input": 2}
    (tmp_path / "place").mkdir()
    assert main(bert.words("-", "-o", tmp_path / "place" / "out")) == codes[fails]
    captured = capsys.readouterr()
    assert not captured.out and captured.err.count("\n") <= 1 and not list((tmp_path / "place").iterdir())


def test_pictures_that_cannot_be_read_are_rows_with_an_error(vit: Place, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mixed"
    (folder / "folder.png").mkdir(parents=True)
    names = ["a,\n\"b'.png", "control\x1b[2J.png", "é.png", os.fsdecode(b"caf\xe9.png"), "folder.png/x.png"]
    for number, name in enumerate(names):
        picture(number).save(folder / name)
    picture(9, (64, 64)).save(folder / "cut.png")
    (folder / "cut.png").write_bytes((folder / "cut.png").read_bytes()[:2000])
    picture(9).save(folder / "gif.png", format="GIF")
    (folder / "text.png").write_text("text")
    (folder / "empty.png").touch()
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "round").symlink_to(folder)
    (folder / "gone.png").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.png")
    errors = {
        "cut": "truncated", "gif": "is not a PNG", "text": "is not a PNG", "empty": "is not a PNG",
        "loop": "symbolic links", "gone": "does not exist", "pipe": "pipe or device",
    }  # fmt: skip
    assert main(vit.words("mixed")) == 1
    found = table(capsys.readouterr().out)
    good = [row for row in found if not row["error"]]
    paths = sorted(Path("mixed") / name for name in names)
    shown = [os.fsencode(path).decode(errors="backslashreplace") for path in paths]
    assert_told(good, shown, vit.model.predict(paths))
    assert {row["input"]: row["error"] for row in found if row["error"]}.keys() == {f"mixed/{e}.png" for e in errors}
    for row in found:
        if row["error"]:
            assert errors[Path(row["input"]).stem] in row["error"] and row["error"].isprintable()
            assert row["class"] == row["probability"] == ""
    assert main(vit.words("mixed", "--json")) == 1
    assert [json.loads(line)["input"] for line in capsys.readouterr().out.splitlines()] == [e["input"] for e in found]


def test_a_damaged_picture_leaves_other_chunks_as_they_are(vit: Place, tree: Path, capsys, monkeypatch) -> None:
    paths = sorted(path for path in tree.rglob("[0-9]*.png"))
    for spoilt in (3, CHUNK + 2):
        lines = [os.fsencode(path) for path in paths]
        lines[spoilt] = b"nowhere.png"
        stdin(monkeypatch, b"\n".join(lines))
        assert main(vit.words("-", "--json")) == 1
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert "does not exist" in found.pop(spoilt)["error"]
        for start, stop in ((0, CHUNK), (CHUNK, N_INPUTS)):
            own = [path for path in paths[start:stop] if path != paths[spoilt]]
            rows = [row for row in found if Path(row["input"]) in own]
            assert_told(rows, list(map(str, own)), vit.model.predict(own))


def test_hostile_texts_come_back_as_they_were(bert: Place, tmp_path: Path, capsys) -> None:
    texts = [
        "law1a\x00\x07\x1b]0;title\x07", 'a "quoted", text', "two\nlines", "carriage\rreturn", "crlf\r\nhere", "=1+1",
        "ends\u2028\u2029\x85\x0b", "\u202e right to left", "law2a " * 16_666 + "law2", "\ufeffmark", "-", "\U0001f600",
    ]  # fmt: skip
    assert max(map(len, texts)) == 100_000
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    assert main(bert.words(tmp_path / "a.jsonl", "-o", tmp_path / "out.csv")) == 0
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file, strict=True))
    assert_told(found, texts, bert.model.predict(texts))
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in texts)])
    assert main(bert.words(tmp_path / "a.csv", "--json")) == 0
    assert_told(list(map(json.loads, capsys.readouterr().out.splitlines()[1:])), texts, bert.model.predict(texts))


def test_a_terminal_gets_hostile_texts_clean(bert: Place, tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a \x1b[2J\u202e\nb"}) + "\n")
    words = ["predict", str(bert.recipe), str(tmp_path / "a.jsonl"), "--library", str(bert.library)]
    assert main(words) == 0
    assert "a \x1b[2J\u202e\nb" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(words) == 0
    assert "a \\x1b[2J\\u202e\\nb" in capsys.readouterr().out


def test_texts_that_cannot_be_read_are_rows_with_an_error(bert: Place, tmp_path: Path, capsys) -> None:
    rows = ['{"text": "law1a"}', "{", '{"text": ""}', json.dumps({"text": "x" * 100_001}), '{"text": "\\ud800"}', "3"]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, '{"text": "law2b"}']))
    assert main(bert.words(tmp_path / "a.jsonl")) == 1
    found = table(capsys.readouterr().out)
    assert_told([found[0], found[-1]], ["law1a", "law2b"], bert.model.predict(["law1a", "law2b"]))
    messages = ("line 2: not valid JSON", "line 3: no text", "100001 characters", "half a character", "not an object")
    for row, message in zip(found[1:-1], messages, strict=True):
        assert message in row["error"] and row["error"].isprintable() and row["class"] == ""
    (tmp_path / "b.jsonl").write_text("{")
    assert main(bert.words(tmp_path / "b.jsonl")) == 1
    assert len(table(capsys.readouterr().out)) == 1


def test_scores_that_are_no_numbers_are_no_prediction(bert: Place, monkeypatch) -> None:
    monkeypatch.setattr(TaskModel, "logits", lambda model, inputs: torch.full((len(inputs["input_ids"]), 4), torch.nan))
    ((answer,),) = predict_stream(bert.model, [Input("law1a", "law1a")])
    assert answer.prediction is None and "not numbers" in answer.error


def test_inputs_are_read_a_chunk_at_a_time(bert: Place) -> None:
    read = count()

    def endless() -> Iterator[Input]:
        while True:
            next(read)
            yield Input("law1a", "law1a")

    chunks = list(islice(predict_stream(bert.model, endless()), 3))
    assert [len(chunk) for chunk in chunks] == [CHUNK] * 3 and next(read) == 3 * CHUNK


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "RECIPE", "nowhere", "--library", "LIBRARY"], "does not exist"),
        (["predict", "RECIPE", "nowhere.png", "--library", "LIBRARY"], "does not exist"),
        (["predict", "RECIPE", "a.xlsx", "--library", "LIBRARY"], "neither a folder"),
        (["predict", "RECIPE", "empty", "--library", "LIBRARY"], "holds no pictures"),
        (["predict", "RECIPE", "empty.txt", "--library", "LIBRARY"], "holds no texts"),
        (["predict", "RECIPE", "header.csv", "--library", "LIBRARY"], "holds no texts"),
        (["predict", "RECIPE", "nothing.csv", "--library", "LIBRARY"], "write a line `text`"),
        (["predict", "RECIPE", "labels.csv", "--library", "LIBRARY"], "needs one column 'text'"),
        (["predict", "RECIPE", "late.csv", "--library", "LIBRARY"], "not CSV"),
        (["predict", "RECIPE", "pipe.txt", "--library", "LIBRARY"], "pipe or device"),
        (["predict", "RECIPE", "x.txt", "--library", "LIBRARY", "--top", "0"], "--top"),
        (["predict", "RECIPE", "x.txt", "--library", "LIBRARY", "--top", "-3"], "--top"),
        (["predict", "RECIPE", "x.txt", "--library", "nowhere"], "library.json"),
        (["predict", "RECIPE", "x.txt", "--library", "LIBRARY", "--router", "empty"], "has no experts.safetensors"),
        (["predict", "RECIPE", "x.txt"], "--library"),
        (["predict", "nowhere", "x.txt", "--library", "LIBRARY"], "does not exist"),
        (["predict", "x.txt", "x.txt", "--library", "LIBRARY"], "x.txt"),
        (["predict", "headless.safetensors", "x.txt", "--library", "LIBRARY"], "has no head"),
        (["predict", "RECIPE", "x.txt", "--library", "other"], "in the recipe"),
    ],
)
def test_mistakes_are_one_line_and_code_two_without_torch(
    bert: Place,
    topics: Library,
    vit_library: Library,
    tmp_path: Path,
    capsys,
    monkeypatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("smatter.cli.predict._model", None)  # which imports torch
    (tmp_path / "empty").mkdir()
    os.mkfifo("pipe.txt")
    files = {"a.xlsx": "x", "empty.txt": "", "header.csv": "text\n", "nothing.csv": "", "labels.csv": "label\nx\n"}
    for name, content in (files | {"late.csv": 'text\nx\n"y\n', "x.txt": "x"}).items():
        Path(name).write_text(content)
    smatter.write_recipe("headless.safetensors", topics.recipe(smatter.Mixture.of({"law": 1.0})))
    Path("other").symlink_to(vit_library.folder)
    places = {"RECIPE": str(bert.recipe), "LIBRARY": str(bert.library)}
    assert main([places.get(word, word) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and message in captured.err and not captured.out


def test_inputs_of_the_other_kind_are_refused(vit: Place, bert: Place, tree: Path, tmp_path, capsys) -> None:
    (tmp_path / "a.csv").write_text("text\nx\n")
    for words, told in ((vit.words(tmp_path / "a.csv"), "images"), (bert.words(tree), "texts")):
        assert main([*words, "-o", str(tmp_path / "out")]) == 2
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1 and f"network takes {told}" in captured.err
    assert not (tmp_path / "out").exists()


def test_an_empty_standard_input_is_refused(vit: Place, capsys, monkeypatch) -> None:
    for closed in (False, True):
        stdin(monkeypatch, b"")
        if closed:
            monkeypatch.setattr(sys, "stdin", None)
        assert main(vit.words("-")) == 2
        captured = capsys.readouterr()
        assert "standard input is empty" in captured.err and captured.err.count("\n") == 1 and not captured.out


def start(words: list[str], **streams: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "smatter", *words], **streams)


def test_standard_input_without_end_is_answered_chunk_by_chunk(bert: Place) -> None:
    """And a reader who has seen enough ends it without a word."""
    pipe = subprocess.PIPE
    with start(bert.words("-"), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin and process.stdout and process.stderr
        for _ in range(2):
            process.stdin.write(b"law1a\n" * CHUNK)
            process.stdin.flush()
            answered = [process.stdout.readline() for _ in range(CHUNK)]
            assert all(answered)
        process.stdout.readline()  # of the second chunk the last: before it was the header
        process.stdout.close()
        process.stdin.write(b"law1a\n" * CHUNK)
        process.stdin.close()
        assert process.stderr.read() == b""


def test_a_bar_does_not_swallow_what_is_printed(vit: Place, tree: Path, tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    with (tmp_path / "out.csv").open("wb") as file, start(vit.words(tree), stdout=file, stderr=end) as process:
        os.close(end)
        shown = b""
        while True:
            try:
                shown += os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
        assert process.wait() == 0
    os.close(terminal)
    assert len(table((tmp_path / "out.csv").read_text())) == N_INPUTS and b"predicting" in shown


def test_refusals_import_no_torch(bert: Place, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty.csv").write_text("text\n")
    wrong = [
        bert.words(tmp_path / "nowhere"),
        bert.words(tmp_path / "empty.csv"),
        bert.words(tmp_path / "a.txt", "-o", tmp_path / "a.txt"),
        ["predict", str(tmp_path / "a.txt"), "-", "--library", str(bert.library)],
    ]
    program = (
        f"import sys; from smatter.cli.main import main; assert [main(words) for words in {wrong!r}] == [2] * 4; "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stderr=subprocess.DEVNULL)
