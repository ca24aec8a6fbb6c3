"""`smatter predict --sets`: the set of classes beside the named one, and what it is refused for."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_suites import picture, write_tree

import smatter
from smatter.adapted import Adapted
from smatter.certify.conformal import ConformalLimit, least_ambiguous_scores, prediction_sets
from smatter.cli.main import main
from smatter.compose.records import ClassSets
from smatter.library.library import Library
from smatter.library.recipes import read_recipe, write_recipe

SETS = ClassSets(
    tasks="some-list", n=60, coverages=(0.8, 0.9), limits=(0.6, 0.67), domains={"greek": (0.5, 1.0)},
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory, vit_library: Library) -> tuple[list[str], Path, Adapted]:
    """Words that predict by a recipe with sets, inputs, and the model."""
    folder = tmp_path_factory.mktemp("sets")
    adapted = smatter.adapt(vit_library, write_tree(folder / "shots", {".": "abc"}))
    notes = adapted.recipe.notes.model_copy(update={"sets": SETS})
    write_recipe(folder / "task.safetensors", vit_library.pinned(replace(adapted.recipe, notes=notes)))
    (folder / "new").mkdir()
    for number in range(12):
        picture(number, (8, 8)).save(folder / "new" / f"{number:02}.png")
    words = ["predict", str(folder / "task.safetensors"), str(folder / "new"), "--library", str(vit_library.folder)]
    return words, folder / "new", adapted


@pytest.mark.parametrize(("options", "limit"), [(["0.8"], 0.6), (["0.9"], 0.67), (["0.8", "--domain", "greek"], 0.5)])
def test_sets_are_those_of_the_limit_in_csv_and_json(place, capsys, options: list[str], limit: float) -> None:
    words, inputs, adapted = place
    assert main([*words, "--sets", *options, "--json"]) == 0
    found = capsys.readouterr()
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert found.err.count("\n") == 1 and f"at least {float(options[0]):.0%}".replace("%", " %") in found.err
    assert ("those of greek alone" in found.err) == ("greek" in options)
    probabilities = adapted.predict(sorted(inputs.iterdir())).probabilities.double().numpy()
    wanted = prediction_sets(least_ambiguous_scores(probabilities), ConformalLimit(limit, 0.1, 60))
    names = np.array(adapted.class_names)
    assert [set(row["set"]) for row in rows] == [set(names[each].tolist()) for each in wanted]
    assert all(row["set"][0] == row["class"] and row["coverage"] == float(options[0]) for row in rows)
    assert main([*words, "--sets", *options]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [next(csv.reader([row["set"]])) for row in table] == [row["set"] for row in rows]


def test_without_sets_nothing_is_different(place, capsys) -> None:
    assert main([*place[0], "--json"]) == 0
    found = capsys.readouterr()
    assert not found.err and all(
        json.loads(line).keys() == {"input", "class", "probability"} for line in found.out.split("\n") if line
    )


def test_too_few_tasks_let_every_class_in_and_say_so(place, capsys) -> None:
    assert main([*place[0], "--sets", "0.9", "--domain", "greek", "--json"]) == 0
    found = capsys.readouterr()
    assert "every class is in each set" in found.err
    assert all(len(json.loads(line)["set"]) == 3 for line in found.out.splitlines())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sets", "0.95"], "calibrated for a coverage of 0.8, 0.9, not 0.95"),
        (["--sets", "nan"], "not nan"),
        (["--sets", "0.9", "--domain", "latin"], "domain 'latin': some-list has greek"),
        (["--domain", "greek"], "give --sets too"),
        (["--sets", "0.9", "--transductive"], "leave out --transductive"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(place, capsys, options: list[str], said: str) -> None:
    assert main([*place[0], *options]) == 2
    found = capsys.readouterr()
    assert said in found.err and found.err.count("\n") == 1 and not found.out


def test_a_recipe_without_sets_says_how_to_have_them(place, vit_library: Library, tmp_path: Path, capsys) -> None:
    words, _, adapted = place
    adapted.save(tmp_path / "bare.safetensors")
    assert main([words[0], str(tmp_path / "bare.safetensors"), *words[2:], "--sets", "0.9"]) == 2
    found = capsys.readouterr().err
    assert "no sets of classes: run `smatter calibrate`" in found and found.count("\n") == 1


def test_what_changes_predictions_drops_sets(place, vit_library: Library) -> None:
    words, _, _ = place
    recipe = read_recipe(words[1])
    assert recipe.notes.sets == SETS, "a recipe is read as it was written"
    model = smatter.open_task(recipe, vit_library)
    left = dict(list(vit_library.manifest.digests.items())[:-1])
    assert recipe.renormalised(left).notes.sets is None
    prototypes = [head.weight for head in model.heads]
    moved = model.with_prototypes(prototypes[0][None] * 2, model.heads[0].bias)
    assert moved.recipe.notes.sets is None is not model.recipe.notes.sets


@pytest.mark.parametrize(
    "change",
    [{"limits": (0.5,)}, {"limits": (0.5, 1.5)}, {"domains": {"a": (0.1,)}}, {"n": 0}, {"coverages": ()}, {"more": 1}],
    ids=str,
)
def test_absurd_sets_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ClassSets.model_validate(SETS.model_dump() | change)
