"""`smatter adapt --budget` as a person types it: what is kept, what is promised, what is refused."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from small_routers import make_router

import smatter
from smatter.cli.main import main
from smatter.devices.profile import read_profile, write_profile
from smatter.library.library import Library
from smatter.tasks.export import write_task
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_library: Library, tiny_suite: Suite) -> Path:
    """A library, a router of experts, one without, a task, a profile in bytes and one as if it had been timed."""
    folder = tmp_path_factory.mktemp("my budgets")
    (folder / "library").symlink_to(tiny_library.folder)
    make_router(tiny_library, tiny_suite, folder / "router")
    sampler = Sampler(tiny_suite, SamplerSettings("validation", n_way=(3, 3), n_shot=(3, 3), n_query=4))
    write_task(folder / "task", sampler.episode(1))
    assert main(["profile", str(tiny_library.folder), "--method", "bytes", "-o", str(folder / "bytes.json")]) == 0
    counted = read_profile(folder / "bytes.json")
    timed = {**counted.model_dump(), "unit": "ms", "method": "stacks", "base": 10.0, "kappa": 1.05, "quantile": 0.95}
    write_profile(folder / "ms.json", type(counted)(**timed))
    return folder


def words(place: Path, *more: object) -> list[str]:
    given = ["adapt", place / "library", place / "task" / "support", "--router", place / "router", *more]
    return [str(word) for word in given]


def run(capsys, *given: object) -> dict:
    code = main([*map(str, given), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def refused(capsys, *given: object) -> str:
    assert main([*map(str, given)]) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 and not told.out
    return told.err


def test_a_recipe_says_what_it_was_made_to_fit_and_everybody_serves_it_alike(
    place: Path, capsys, tmp_path: Path, tiny_library: Library
) -> None:
    path = tmp_path / "task.safetensors"
    told = run(capsys, *words(place, "--budget", "11.5ms@p95", "--profile", place / "ms.json", "-o", path))
    (budget,) = told["budget"]
    assert budget["asked"] == "11.5ms@p95" and budget["base"] == 10.0 and budget["unit"] == "ms forward"
    assert 0 < told["units"][0] < told["units"][1]
    assert budget["predicted"] < budget["promised"] <= 11.5 and budget["promised"] == 1.05 * budget["predicted"]
    recipe = smatter.read_recipe(path)
    (record,) = recipe.notes.budget
    assert record.value == 11.5 and record.quantile == 0.95 and record.promised == budget["promised"]
    assert record.profile == read_profile(place / "ms.json").digest
    assert recipe.experts and recipe.experts.opened and len(recipe.experts.opened.indices) == told["units"][0]

    spending = {"budget": "11.5ms@p95", "profile": place / "ms.json"}
    adapted = smatter.adapt(tiny_library, place / "task" / "support", router=place / "router", **spending)
    assert [each.predicted for each in adapted.latency] == [budget["predicted"]]
    again = adapted.recipe.experts
    assert again and again.opened and recipe.experts.opened
    np.testing.assert_array_equal(again.opened.indices, recipe.experts.opened.indices)

    pictures = sorted((place / "task" / "query").rglob("*.png"))
    found = adapted.predict(pictures)
    model = smatter.open_task(path, tiny_library, router=place / "router")
    assert torch.equal(model.predict(pictures).probabilities, found.probabilities)
    runtime = smatter.SharedRuntime(tiny_library, {"mixed": recipe.mixture})
    runtime.load("task", path)
    served = runtime.predict(runtime.prepare(pictures), ["task"] * len(pictures))
    assert [each.name for each in served] == list(found.names)

    out = ["--recipe", path, "--router", place / "router", "-o", tmp_path / "out"]
    run(capsys, "compose", place / "library", *out)


def test_people_are_told_what_is_kept_and_what_is_promised(place: Path, capsys) -> None:
    assert main(words(place, "--budget", "1.2x", "--profile", str(place / "ms.json"))) == 0
    out = capsys.readouterr().out
    assert "units open for a budget of 1.2x: " in out and "10 ms with none" in out
    assert "promised: at most " in out and "for 90% of networks with random units open" in out
    assert main(words(place, "--budget", "1.2x", "--profile", str(place / "bytes.json"))) == 0
    assert "promised" not in capsys.readouterr().out


def test_several_budgets_hold_together(place: Path, capsys) -> None:
    profiles = ["--profile", place / "ms.json", "--profile", place / "bytes.json"]
    told = run(capsys, *words(place, "--budget", "13ms", "--budget", "1.25x", *profiles))
    assert [each["asked"] for each in told["budget"]] == ["13ms", "1.25x", "1.25x"]
    for each in told["budget"]:
        assert each["promised"] <= each["value"] * (1 + 1e-9)


def test_the_smallest_budget_that_is_named_is_enough(place: Path, capsys) -> None:
    for budget, profile in (("9ms", "ms.json"), ("1kB", "bytes.json"), ("0.3x", "bytes.json"), ("1.01x", "ms.json")):
        told = refused(capsys, *words(place, "--budget", budget, "--profile", place / profile))
        least = told.rpartition("smallest possible one, ")[2].partition(",")[0]
        found = run(capsys, *words(place, "--budget", least, "--profile", place / profile))
        assert found["units"][0] == 0


def test_a_task_is_not_fitted_again_without_its_budget(place: Path, capsys, tmp_path: Path) -> None:
    path = tmp_path / "task.safetensors"
    spending = ["--budget", "1.2x", "--profile", place / "bytes.json"]
    run(capsys, *words(place, *spending, "-o", path))
    assert "give --budget and --profile again" in refused(capsys, *words(place, "--refit", path))
    found = run(capsys, *words(place, "--refit", path, *spending))
    assert found["budget"][0]["asked"] == "1.2x"
    renormalised = ["adapt", place / "library", "--refit", path, "--renormalise", *spending]
    assert "leave out all options" in refused(capsys, *renormalised)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--budget nanms --profile bytes.json", "not positive"),
        ("--budget=-8ms --profile bytes.json", "not positive"),
        ("--budget 8 --profile bytes.json", "has no unit"),
        ("--budget 8ms", "needs a profile: give one"),
        ("--profile bytes.json", "a profile alone bounds nothing"),
        ("--budget 8ms --profile bytes.json", "needs a profile in ms, not in bytes"),
        ("--budget 20ms@p50 --profile ms.json", "bounds the quantile 0.95, not 0.5"),
        ("--budget 1.1x --profile no.json", "there is no profile"),
        ("--budget 1.1x --profile bytes.json --mix predictions", "is for one network"),
        ("--budget 1.1x --profile bytes.json --method refined --set tune=modules", "is for one network"),
        ("--budget 1.1x --profile other.json", "of another network"),
        ("--budget 1.1x --profile ranks.json", "of other units"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_one_line(place: Path, capsys, options: str, message: str) -> None:
    counted = read_profile(place / "bytes.json")
    for name, change in (("other", {"network": "0" * 64}), ("ranks", {"rank": 4})):
        at = counted.fingerprint.model_copy(update=change)
        write_profile(place / f"{name}.json", counted.model_copy(update={"fingerprint": at}))
    given = [str(place / word) if word.endswith(".json") else word for word in shlex.split(options)]
    assert message in refused(capsys, *words(place, *given))


def test_without_experts_there_is_nothing_to_cut(place: Path, capsys) -> None:
    given = ["adapt", place / "library", place / "task" / "support", "--budget", "2x"]
    assert "give --router of one trained with --experts" in refused(capsys, *given, "--profile", place / "bytes.json")
