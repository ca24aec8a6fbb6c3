"""`smatter suite` as a person types it."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_suites import picture_suite, write_tree

import smatter
from smatter.cli.main import main
from smatter.cli.suite import parse_shift_options
from smatter.tasks.packed import write_packed
from smatter.tasks.shifts.shots import Imbalance

LETTERS = "abcdefghijkl"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree", {"photo": LETTERS, "sketch": LETTERS, "paint": LETTERS}, n_each=4)


def run(capsys, *words: object) -> dict:
    code = main([*map(str, words), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert not captured.err
    return json.loads(captured.out)


def test_show_tells_domains_roles_splits_and_what_was_left_out(tree: Path, capsys) -> None:
    (tree / "photo" / "a" / "notes.txt").write_text("mine")
    told = run(capsys, "suite", "show", tree, "--ood", "sketch")
    assert (told["n_domains"], told["n_classes"], told["n_examples"], told["kind"]) == (3, 36, 144, "images")
    assert {each["name"]: each["role"] for each in told["domains"]} == {"photo": "id", "sketch": "ood", "paint": "id"}
    for each in told["domains"]:
        assert sum(each["splits"].values()) == 12 if each["role"] == "id" else sum(each["splits"].values()) < 12
    assert len(told["warnings"]) == 1 and "notes.txt" in told["warnings"][0]
    assert main(["suite", "show", str(tree)]) == 0
    captured = capsys.readouterr()
    assert "144 images of 36 classes in 3 domains" in captured.out and "sketch" in captured.out
    assert captured.err.startswith("smatter: warning: left out: ") and captured.err.count("\n") == 1


def test_show_tells_packages_and_licences(tmp_path: Path, capsys) -> None:
    write_packed(tmp_path / "suite", picture_suite())
    told = run(capsys, "suite", "show", tmp_path / "suite")
    assert told["packages"][0]["licence"] == "MIT" and told["domains"][0]["styles"] == ["a", "b"]
    assert main(["suite", "show", str(tmp_path / "suite")]) == 0
    text = capsys.readouterr().out
    assert "some-package" in text and "MIT" in text


def test_list_shows_what_is_shipped(tree: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("smatter.tasks.open.SHIPPED", tmp_path / "shipped")
    assert run(capsys, "suite", "list") == {"suites": []}
    assert main(["suite", "list"]) == 0 and "no suite is shipped" in capsys.readouterr().out
    (tmp_path / "shipped").mkdir()
    run(capsys, "suite", "build", tree, "-o", tmp_path / "shipped" / "toy", "--name", "toy")
    assert [each["suite"] for each in run(capsys, "suite", "list")["suites"]] == ["toy"]
    assert run(capsys, "suite", "show", "toy")["n_classes"] == 36
    assert main(["suite", "list"]) == 0 and "toy" in capsys.readouterr().out


def test_a_built_suite_holds_the_same_pictures_and_roles(tree: Path, tmp_path: Path, capsys) -> None:
    told = run(capsys, "suite", "build", tree, "-o", tmp_path / "out", "--ood", "paint", "--size", 6)
    built, plain = smatter.open_suite(tmp_path / "out"), smatter.open_suite(tree, ood=["paint"], side=6)
    assert told["digest"] == built.digest and told["n_bytes"] > 0
    for one, other in zip(built.domains, plain.domains, strict=True):
        assert (one.name, one.role, one.classes) == (other.name, other.role, other.classes)
        assert np.array_equal(one.store.take(range(48)), other.store.take(range(48)))
    words = ["suite", "build", str(tree), "-o", str(tmp_path / "out")]
    assert main(words) == 2 and "--replace" in capsys.readouterr().err
    assert main([*words, "--replace"]) == 0 and "48 pictures" not in capsys.readouterr().out
    assert main([*words[:-1], str(tree), "--replace"]) == 2 and (tree / "photo" / "a" / "0.png").exists()


def test_python_and_the_command_line_draw_the_same_tasks(tree: Path, tmp_path: Path, capsys) -> None:
    options = ["--split", "all", "--way", "3-5", "--shot", "1-2", "--query", 2, "--domains", "2-3", "--seed", 5]
    settings = smatter.SamplerSettings("all", "id", (3, 5), (1, 2), 2, (2, 3))
    sampler = smatter.Sampler(smatter.open_suite(tree), settings, 5)
    run(capsys, "suite", "freeze", tree, "-o", tmp_path / "easy.json", "--tasks", 8, *options)
    tasks = smatter.read_list(tmp_path / "easy.json", smatter.open_suite(tree))
    for index in (0, 7):
        draw, episode = sampler.draw(index), sampler.episode(index)
        told = run(capsys, "suite", "task", tree, "--index", index, "-o", tmp_path / f"task{index}", *options)
        listed = run(capsys, "suite", "task", tree, "--index", index, "--list", tmp_path / "easy.json")
        assert told["drawn"] == listed["drawn"] == json.loads(json.dumps(vars(draw)))
        assert (
            [each["name"] for each in told["classes"]]
            == list(episode.class_names)
            == list(tasks.episode(index).class_names)
        )
        support = smatter.read_support(told["support"])
        pixels = sorted(np.asarray(Image.open(path)).tobytes() for path in support.inputs)
        assert pixels == sorted(each.tobytes() for each in episode.support.inputs)


def test_shifts_change_what_is_written(tree: Path, tmp_path: Path, capsys) -> None:
    options = ["--split", "all", "--shot", "3", "--query", "1"]
    shift = ["--shift", "label-noise:rate=.4,kind=pairs", "--shift", "gaussian-noise:severity=2"]
    run(capsys, "suite", "freeze", tree, "-o", tmp_path / "hard.json", "--tasks", 2, *options, *shift)
    tasks = smatter.read_list(tmp_path / "hard.json", smatter.open_suite(tree))
    assert [type(each).__name__ for each in tasks.shifts] == ["LabelNoise", "GaussianNoise"]
    episode = tasks.episode(1)
    assert (episode.support.labels != episode.support.truth).any()
    told = run(capsys, "suite", "task", tree, "--index", 1, "-o", tmp_path / "task", *options, *shift)
    assert [each["n_support"] for each in told["classes"]] == np.bincount(episode.support.labels, minlength=5).tolist()


def test_texts_go_the_same_way(tmp_path: Path, capsys) -> None:
    rows = [f"{domain} {label} {i},{label},{domain}" for domain in ("x", "y") for label in LETTERS for i in range(4)]
    (tmp_path / "notes.csv").write_text("text,label,domain\n" + "\n".join(rows))
    assert run(capsys, "suite", "show", tmp_path / "notes.csv")["kind"] == "texts"
    options = ["--split", "all", "--shot", 2, "--query", 1, "--domain", "y"]
    told = run(capsys, "suite", "task", tmp_path / "notes.csv", "-o", tmp_path / "task", *options)
    support = smatter.read_support(told["support"])
    assert support.kind == "texts" and len(support) == 10 and all(text.startswith("y ") for text in support.inputs)
    built = run(capsys, "suite", "build", tmp_path / "notes.csv", "-o", tmp_path / "out", "--ood", "y")
    shown = run(capsys, "suite", "show", tmp_path / "out")
    assert built["kind"] == shown["kind"] == "texts" and built["n_examples"] == len(rows)
    assert [each["role"] for each in shown["domains"]] == ["id", "ood"]
    again = run(capsys, "suite", "task", tmp_path / "out", "-o", tmp_path / "more", *options, "--role", "ood")
    assert all(text.startswith("y ") for text in smatter.read_support(again["support"]).inputs)


def test_text_for_people_says_what_to_do_next(tree: Path, tmp_path: Path, capsys) -> None:
    words = ["suite", "task", str(tree), "--split", "all", "--shot", "2"]
    assert main(words) == 0 and "give -o OUT" in capsys.readouterr().out
    assert main([*words, "-o", str(tmp_path / "task")]) == 0
    assert f"smatter adapt LIB {tmp_path / 'task' / 'support'}" in capsys.readouterr().out
    assert main([*words, "-o", str(tmp_path / "task")]) == 2 and "--replace" in capsys.readouterr().err
    assert main([*words, "-o", str(tmp_path / "task"), "--replace"]) == 0


def test_final_lists_stay_closed(tree: Path, tmp_path: Path, capsys) -> None:
    run(capsys, "suite", "freeze", tree, "-o", tmp_path / "final.json", "--split", "all", "--shot", 2, "--tasks", 3)
    assert main(["suite", "task", str(tree), "--list", str(tmp_path / "final.json")]) == 2
    assert "kept for the full comparison" in capsys.readouterr().err


def test_a_frozen_list_is_not_overwritten_by_accident(tree: Path, tmp_path: Path, capsys) -> None:
    words = ["suite", "freeze", str(tree), "--split", "all", "--shot", "2", "--tasks", "3", "-o"]
    assert main([*words, str(tmp_path / "a.json")]) == 0
    assert main([*words, str(tmp_path / "a.json")]) == 2 and "--replace" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "a.json"), "--replace"]) == 0
    (tmp_path / "mine.txt").write_text("mine")
    assert main([*words, str(tmp_path / "mine.txt"), "--replace"]) == 2
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("kept", [True, False])
def test_a_setting_of_a_shift_may_be_true_or_false(kept: bool) -> None:
    assert parse_shift_options([f"imbalance:keep_total={str(kept).lower()}"]) == (Imbalance(keep_total=kept),)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "nowhere"], "does not exist"),
        (["show", "tree", "--ood", "nowhere"], "it has paint, photo, sketch"),
        (["show", "tree", "--size", "0"], "--size"),
        (["show", "empty"], "no images in class folders"),
        (["task", "tree", "--way", "many"], "a range such as 5-20"),
        (["task", "tree", "--way", "-3"], "a range such as 5-20"),
        (["task", "tree", "--way", "20"], "ask for fewer ways"),
        (["task", "tree", "--index", "-1"], "--index"),
        (["task", "tree", "--split", "train"], "--split"),
        (["task", "tree", "--shift", "nonsense"], "unknown shift"),
        (["task", "tree", "--shift", "imbalance:keep_total=1"], "give true or false"),
        (["task", "tree", "--shift", "imbalance:keep_total=true,target=query"], "aim at support"),
        (["task", "tree", "--list", "nowhere.json"], "does not exist"),
        (["task", "tree", "-o", "no/where"], "create it first"),
        (["freeze", "tree", "-o", "no/where.json", "--split", "all", "--shot", "2"], "create it first"),
        (["freeze", "tree", "-o", "a.json", "--split", "all", "--shot", "2", "--tasks", "100000000"], "1 to 10000"),
        (["freeze", "tree"], "-o"),
        (["build", "tree"], "-o"),
        (["nonsense"], "nonsense"),
    ],
)
def test_mistakes_are_one_line_and_code_two(tree: Path, capsys, monkeypatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(tree.parent)
    (tree.parent / "empty").mkdir()
    assert main(["suite", *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and message in captured.err


def test_what_was_left_out_is_told_before_a_refusal(tmp_path: Path, capsys) -> None:
    write_tree(tmp_path / "tree", {".": "a"})
    (tmp_path / "tree" / "b").mkdir()
    (tmp_path / "tree" / "b" / "x.png").write_text("no picture")
    for more in ([], ["--json"]):
        assert main(["suite", "show", str(tmp_path / "tree"), *more]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert "x.png" in lines[0] and "warning" in lines[0] and "one class, 'a'" in lines[-1]
