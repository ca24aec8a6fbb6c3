"""`smatter train --posterior`: from a suite to decisions, resumed after a kill, and mistakes in one line."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image
from small_routers import make_router

from smatter.cli.main import main
from smatter.errors import BudgetInfeasible, InvalidSettings
from smatter.library.library import Library
from smatter.posterior.categorical import Categorical
from smatter.route.store import read_router
from smatter.settings.posteriors import PosteriorTraining, Prior
from smatter.tasks.packed import write_packed
from smatter.tasks.suite import Suite
from smatter.train.curriculum import make_curriculum
from smatter.train.posterior import Exercise
from smatter.train.routings import Learning, prior_of, routing_temperature
from smatter.train.tables import TABLES_SEED, held_out_jobs, training_jobs


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_library: Library, tiny_suite: Suite) -> Path:
    folder = tmp_path_factory.mktemp("routings")
    write_packed(folder / "suite", tiny_suite)
    make_router(tiny_library, tiny_suite, folder / "router")
    for label, red in (("cats", 30), ("dogs", 200)):
        (folder / "shots" / label).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (8, 8), (40 * number + 20, red, 90)).save(folder / "shots" / label / f"{number}.png")
    return folder


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps: what is learnt is tested elsewhere."""
    few = partial(PosteriorTraining, n_steps=10)
    monkeypatch.setattr("smatter.cli.train_options.PosteriorTraining", few)
    monkeypatch.setattr("smatter.train.routings.Learning", partial(Learning, n_held_out=1))


def words(place: Path, library: Library, output: Path, *more: object) -> list[str]:
    given = ("train", library.folder, place / "suite", "-o", output, "--tables", 6, "--work", place / "work")
    return [*map(str, (*given, *more))]


def run(capsys: pytest.CaptureFixture[str], line: list[str]) -> dict:
    assert main([*line, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_a_router_that_exists_is_given_a_posterior_and_decides(place, tiny_library, tmp_path, capsys) -> None:
    options = [
        "--from",
        place / "router",
        "--posterior",
        "categorical",
        "--cvar",
        0.5,
        "--kl",
        0.1,
        "--prior",
        "cost=1",
    ]
    told = run(capsys, words(place, tiny_library, tmp_path / "router", *options))["posterior"]
    assert told["tables"] == 6 and told["settings"]["cvar"] == 0.5 and told["settings"]["prior"] == "cost=1"
    assert told["held_out"]["tasks"] > 0 and told["held_out"]["tail"] >= told["held_out"]["loss"]
    before, after = read_router(place / "router"), read_router(tmp_path / "router")
    assert (
        before.posterior is None
        and after.posterior
        and after.posterior.record == {name: value for name, value in told.items() if name != "temperature"}
    )
    assert all(
        torch.equal(value, after.router.state_dict()[name]) for name, value in before.router.state_dict().items()
    )
    adapt = ["adapt", str(tiny_library.folder), str(place / "shots"), "--router", str(tmp_path / "router")]
    assert run(capsys, [*adapt, "--decision", "half:2"])["decision"]["passes"] == 3


@pytest.mark.parametrize("family", ["two-level", "concrete", "logistic-normal", "dirichlet"])
def test_every_family_that_is_offered_works(place, tiny_library, tmp_path, capsys, family: str) -> None:
    line = words(place, tiny_library, tmp_path / "router", "--from", place / "router", "--posterior", family)
    assert main(line) == 0
    text = capsys.readouterr().out
    assert f"{family} posterior from 6 tasks" in text and "--decision half:3" in text
    adapt = ["adapt", str(tiny_library.folder), str(place / "shots"), "--router", str(tmp_path / "router")]
    assert run(capsys, [*adapt, "--decision", "map"])["decision"]["rule"] == "map"


@pytest.mark.slow
def test_a_router_and_its_posterior_in_one_go(place, tiny_library, tmp_path, capsys) -> None:
    line = words(place, tiny_library, tmp_path / "router", "--steps", 1, "--posterior", "categorical")
    line[line.index(str(place / "work"))] = str(tmp_path / "work")
    told = run(capsys, line)
    assert told["steps"] == 1 and told["posterior"]["tables"] == 6
    assert len(list((tmp_path / "work" / "routings").iterdir())) == 6 + told["posterior"]["held_out"]["tasks"]


@pytest.mark.slow
def test_other_settings_and_more_processes_use_the_same_tables(place, tiny_library, tmp_path, capsys) -> None:
    base = ["--from", place / "router", "--posterior", "categorical"]
    run(capsys, words(place, tiny_library, tmp_path / "one", *base))
    kept = {path: path.stat().st_mtime_ns for path in (place / "work" / "routings").iterdir()}
    run(capsys, words(place, tiny_library, tmp_path / "two", *base, "--target", "gibbs", "--prior", "mean-cost=2"))
    assert {path: path.stat().st_mtime_ns for path in (place / "work" / "routings").iterdir()} == kept
    line = words(place, tiny_library, tmp_path / "three", *base, "--workers", 2)
    line[line.index(str(place / "work"))] = str(tmp_path / "work")
    run(capsys, line)
    for path in kept:
        assert (tmp_path / "work" / "routings" / path.name).read_bytes() == path.read_bytes()
    one, three = (read_router(tmp_path / name).posterior for name in ("one", "three"))
    assert one and three and one.temperature == three.temperature
    states = one.network.state_dict(), three.network.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.slow
def test_a_killed_training_goes_on(place, tiny_library, tmp_path, capsys) -> None:
    base = ["--from", place / "router", "--posterior", "categorical"]
    line = words(place, tiny_library, tmp_path / "router", *base)
    line[line.index(str(place / "work"))] = str(tmp_path / "work")
    process = subprocess.Popen([sys.executable, "-m", "smatter", *line], env=os.environ, stderr=subprocess.DEVNULL)
    folder = tmp_path / "work" / "routings"
    while not (folder.is_dir() and len(list(folder.glob("*.safetensors"))) >= 3):
        assert process.poll() is None, "it ended by itself"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=20)
    assert not (tmp_path / "router").exists()
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.safetensors")}
    run(capsys, line)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())
    run(capsys, words(place, tiny_library, tmp_path / "whole", *base))
    halves, whole = (read_router(tmp_path / name).posterior for name in ("router", "whole"))
    assert halves and whole and halves.temperature == whole.temperature and halves.record == whole.record


def test_no_task_of_tables_is_one_of_the_routers(tiny_suite: Suite) -> None:
    own, tables = make_curriculum(tiny_suite), make_curriculum(tiny_suite, seed=TABLES_SEED)
    jobs = training_jobs(tables, 20)
    assert jobs == training_jobs(tables, 30)[:20]
    assert {tasks.sampler.settings.split for tasks, _ in jobs} == {"router"}
    assert {tasks.sampler.settings.split for tasks, _ in held_out_jobs(tables)} == {"validation"}
    seeds = {each.tasks.sampler.seed for each in own.training} | {each.sampler.seed for each in own.validation}
    assert not seeds & {tasks.sampler.seed for tasks, _ in (*jobs, *held_out_jobs(tables))}


def test_the_temperature_is_that_of_the_likeliest_queries() -> None:
    """Where one routing in five is right, and q says so, T is 1; where q exaggerates, T takes that back."""
    from test_posterior import N_ROUTINGS, planted

    exercises = [Exercise.of(planted(seed), queries=False) for seed in range(40)]
    points = exercises[0].table.points
    logits = [torch.randn(N_ROUTINGS, generator=torch.Generator().manual_seed(seed)) for seed in range(40)]

    def surprise(temperature: float) -> float:
        found = 0.0
        for each, row in zip(exercises, logits, strict=True):
            q = (row.double() / temperature).softmax(dim=0)
            n = len(each.table.truth)
            found -= float((q * (-n * each.losses.double()).exp()).sum().log()) / n
        return found

    grid = torch.logspace(-1.2, 1.2, 200).tolist()
    best = min(grid, key=surprise)
    found = routing_temperature([Categorical(points, row) for row in logits], exercises)
    assert surprise(found) <= surprise(best) + 1e-6
    sharper = routing_temperature([Categorical(points, 2 * row) for row in logits], exercises)
    if 0.1 < found < 9:
        assert sharper == pytest.approx(2 * found, rel=1e-2)


def test_priors_by_cost_are_what_they_say() -> None:
    costs = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert torch.equal(prior_of(Prior(), costs), torch.full((3,), 1 / 3, dtype=torch.float64).log())
    by_cost = prior_of(Prior.parse("cost=2"), costs).exp()
    torch.testing.assert_close(by_cost, torch.exp(-2 * costs) / torch.exp(-2 * costs).sum())
    assert float(prior_of(Prior.parse("mean-cost=1.5"), costs).exp() @ costs) == pytest.approx(1.5)
    with pytest.raises(BudgetInfeasible, match="choose one between"):
        prior_of(Prior.parse("mean-cost=9"), costs)
    for text in ("cost", "cost=-1", "cost=nan", "costs=1", ""):
        with pytest.raises(InvalidSettings, match="use uniform"):
            Prior.parse(text)
    for wrong in ({"n_tables": 0}, {"n_held_out": 0}):
        with pytest.raises(InvalidSettings):
            Learning(PosteriorTraining(), **wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cvar", "0"], "give --cvar above 0"),
        (["--cvar", "1.5"], "give --cvar above 0"),
        (["--cvar", "nan"], "give --cvar above 0"),
        (["--cvar", "0.01"], "the worst 0.01 of the 32 tasks of a step is less than one"),
        (["--cvar", "0.01", "--window", "50"], "give --window 101"),
        (["--kl", "-1"], "kl is -1"),
        (["--prior", "cheap"], "use uniform, cost=BETA"),
        (["--prior", "mean-cost=99"], "choose one between"),
        (["--steps", "3"], "leave out --steps, or --from"),
        (["--expert-share", "0.3"], "leave out --expert-share"),
        (["--map", "entmax"], "leave out --map"),
        (["--catalogue", "nowhere"], "`smatter catalogue` wrote"),
        (["--source", "s9"], "no source is named"),
    ],
)
def test_mistakes_are_one_line(place, tiny_library, tmp_path, capsys, options: list[str], message: str) -> None:
    line = words(
        place, tiny_library, tmp_path / "r", "--from", place / "router", "--posterior", "categorical", *options
    )
    assert main(line) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cvar", "0.1", "--steps", "1"], "the worst 0.1 of the 4 tasks of a step is less than one"),
        (["--from", "nowhere", "--posterior", "categorical"], "is no folder"),
        (["--from", "router"], "--from is about a posterior"),
        (["--kl", "1"], "--kl is about a posterior"),
        (["--catalogue", "x"], "--catalogue is about a posterior"),
    ],
)
def test_what_contradicts_itself_is_one_line(place, tiny_library, tmp_path, capsys, options, message: str) -> None:
    line = ["train", str(tiny_library.folder), str(place / "suite"), "-o", str(tmp_path / "r"), *options]
    assert main(line) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "r").exists()
