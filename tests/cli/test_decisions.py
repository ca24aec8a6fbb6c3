"""`smatter adapt --decision`, and what `smatter predict` and pages say of a decision."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from small_routers import make_decided

from smatter.cli.main import main
from smatter.demo.page import _decided
from smatter.library.library import Library
from smatter.library.recipes import read_recipe
from smatter.route.store import read_router, write_router
from smatter.tasks.suite import Suite


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_library: Library, tiny_suite: Suite) -> Path:
    """A router with a posterior, one that is never sure, and a task of two classes."""
    folder = tmp_path_factory.mktemp("decisions")
    trained = read_router(make_decided(tiny_library, tiny_suite, folder / "router")[0])
    assert trained.posterior
    unsure = {
        rule: replace(each, scores={name: values - 100 for name, values in each.scores.items()})
        for rule, each in trained.posterior.calibrations.items()
    }
    write_router(folder / "unsure", replace(trained, posterior=replace(trained.posterior, calibrations=unsure)))
    for label, red in (("cats", 30), ("dogs", 200)):
        (folder / "shots" / label).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (8, 8), (40 * number + 20, red, 90)).save(folder / "shots" / label / f"{number}.png")
    return folder


def adapt(place: Path, library: Library, *words: object, router: str = "router") -> list[str]:
    return [*map(str, ("adapt", library.folder, place / "shots", "--router", place / router, *words))]


def told(capsys: pytest.CaptureFixture[str], words: list[str]) -> dict:
    assert main([*words, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("words", "rule"), [(["--decision", "map"], "map"), (["--abstain", "entropy"], "half:3")])
def test_each_option_asks_for_the_posterior(place, tiny_library, capsys, words, rule: str) -> None:
    found = told(capsys, adapt(place, tiny_library, *words))
    assert found["method"] == "bayes" and found["decision"]["rule"] == rule
    assert found["decision"]["passes"] == found["query_passes"]


def test_answers_say_how_they_were_decided(place, tiny_library, capsys, tmp_path: Path) -> None:
    recipe, page = tmp_path / "task.safetensors", tmp_path / "page.html"
    words = adapt(place, tiny_library, "--abstain", "entropy", "--fallback", "base", "-o", recipe, router="unsure")
    assert main([*words, "--report", str(page)]) == 0
    out = capsys.readouterr().out
    decision = read_recipe(recipe).notes.decision
    assert decision and decision.outcome == "abstained" and out.count(decision.told) == 1
    assert decision.told[1:] in page.read_text().replace("&#x27;", "'")
    predict = ["predict", str(recipe), str(place / "shots"), "--library", str(tiny_library.folder)]
    assert main([*predict, "--json"]) == 0
    captured = capsys.readouterr()
    answers = [json.loads(line) for line in captured.out.splitlines()]
    expected = {"rule": "half:3", "passes": 1.0, "abstained": True, "reason": decision.reason}
    assert len(answers) == 6 and all(expected.items() <= answer.items() for answer in answers)
    assert decision.told in captured.err and captured.err.count("\n") == 1
    assert main(predict) == 0  # a table of answers has the columns that it always had
    captured = capsys.readouterr()
    assert captured.out.startswith("input,class,probability,error\n") and decision.told in captured.err


def test_what_was_routed_is_no_warning(place, tiny_library, capsys, tmp_path: Path) -> None:
    recipe = tmp_path / "task.safetensors"
    assert main(adapt(place, tiny_library, "--decision", "half:2", "-o", recipe)) == 0
    assert "decided by half:2: 3 passes of each input" in capsys.readouterr().out
    predict = ["predict", recipe, place / "shots", "--library", tiny_library.folder, "--router", place / "router"]
    assert main([*map(str, predict), "--json"]) == 0
    captured = capsys.readouterr()
    answers = [json.loads(line) for line in captured.out.splitlines()]
    assert not captured.err and [each["abstained"] for each in answers] == [False] * 6
    assert main(adapt(place, tiny_library, "-o", recipe, "--replace")) == 0
    assert main([*map(str, predict), "--json"]) == 0
    assert "rule" not in json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_task_is_fitted_again_by_the_same_decision(place, tiny_library, capsys, tmp_path: Path) -> None:
    recipe = tmp_path / "task.safetensors"
    assert main(adapt(place, tiny_library, "--decision", "top:2", "-o", recipe)) == 0
    capsys.readouterr()
    again = told(capsys, adapt(place, tiny_library, "--refit", recipe))
    assert again["method"] == "bayes" and again["decision"]["rule"] == "top:2"


def test_the_demo_tells_decisions_where_there_are_some() -> None:
    assert _decided([]) == []
    (told,) = _decided([["thai", "decided by map"]])
    assert "thai</td>" in told and "decided by map</td>" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--decision", "mode"], "unknown decision"),
        (["--decision", "half"], "unknown decision"),
        (["--decision", "top:99"], "give fewer"),
        (["--decision", "map", "--method", "router"], "--decision asks for the method bayes"),
        (["--abstain", "entropy", "--mix", "predictions"], "--abstain and --mix both say"),
        (["--decision", "map", "--passes", "2"], "--decision and --passes both say"),
        (["--fallback", "base"], "say when with --abstain SCORE"),
        (["--decision", "map", "--set", "decision=top:2"], "say the same"),
        (["--abstain", "entropy@coverage=2"], "is no limit"),
        (["--abstain", "entropy@risk=nan"], "is no limit"),
        (["--abstain", "surprise"], "unknown score 'surprise'"),
        (["--abstain", "doubt"], "give them with --queries"),
        (["--abstain", "entropy", "--decision", "top:2"], "top:2 was not calibrated, only half:3, map"),
        (["--abstain", "entropy", "--fallback", "nobody"], "unknown fallback 'nobody'"),
    ],
)
def test_mistakes_are_one_line_and_code_two(place, tiny_library, capsys, words: list[str], message: str) -> None:
    assert main(adapt(place, tiny_library, *words)) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_a_posterior_needs_a_router_that_has_one(place, tiny_library, capsys) -> None:
    assert main(adapt(place, tiny_library, "--decision", "map", router="router-bare")) == 2
    assert "smatter train" in capsys.readouterr().err
    assert main(["adapt", str(tiny_library.folder), str(place / "shots"), "--decision", "map"]) == 2
    assert "--router" in capsys.readouterr().err
