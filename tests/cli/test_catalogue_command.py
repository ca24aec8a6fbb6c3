"""`smatter catalogue` and `smatter adapt --catalogue`: many tasks on few networks; files that are refused."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from small_routers import make_decided

import smatter
from smatter.cli.main import main
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.library.recipes import read_recipe
from smatter.methods.bayes import BayesSettings
from smatter.posterior.catalogue import BestMember, usual_catalogue
from smatter.posterior.task_table import read_task_table
from smatter.route.kept import KEY, KeptCatalogue, read_catalogue, write_catalogue
from smatter.route.store import read_router
from smatter.route.table import WITH_EXPERTS, row_names
from smatter.tasks.open import open_suite
from smatter.tasks.packed import write_packed
from smatter.tasks.suite import Suite
from smatter.train.curriculum import make_curriculum
from smatter.train.residents import query_losses
from smatter.train.tables import TABLES_SEED, TableMaker, training_jobs


def shots(folder: Path, seed: int) -> Path:
    random = np.random.default_rng(seed)
    for label in ("cats", "dogs"):
        (folder / label).mkdir(parents=True)
        mean = random.integers(0, 255, (8, 8, 3))
        for number in range(3):
            pixels = (mean + random.integers(-90, 90, (8, 8, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_library: Library, tiny_suite: Suite) -> Path:
    """A router with a posterior, one without, a suite, tasks, and a catalogue of two mixtures."""
    folder = tmp_path_factory.mktemp("catalogue")
    write_packed(folder / "suite", tiny_suite)
    make_decided(tiny_library, tiny_suite, folder / "router")
    for seed in range(3):
        shots(folder / f"shots{seed}", seed)
    line = ["catalogue", tiny_library.folder, folder / "router", folder / "suite", "--size", 2, "--tables", 6]
    with few_held_out():
        assert main([*map(str, line), "-o", str(folder / "two")]) == 0
    return folder


@contextmanager
def few_held_out() -> Iterator[None]:
    """One held-out task of each kind: tables take time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smatter.train.residents.make_curriculum", partial(make_curriculum, n_validation=1))
        yield


def run(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    assert main([*map(str, words), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_the_best_pair_for_the_queries_is_kept(place: Path, tiny_library: Library, capsys) -> None:
    line = ("catalogue", tiny_library.folder, place / "router", place / "suite", "--size", 2, "--tables", 6)
    with few_held_out():
        told = run(capsys, *line, "-o", place / "two", "--replace")
    assert len(told["mixtures"]) == 2 and told["tables"] == 6 and told["held_out"]["tasks"] > 0
    kept, trained = read_catalogue(place / "two"), read_router(place / "router")
    assert {each["name"] for each in told["mixtures"]} == set(kept.catalogue.names) == set(kept.mixtures)
    usual = usual_catalogue(tiny_library.names, trained.expert_names, pairs=True)
    jobs = training_jobs(make_curriculum(open_suite(str(place / "suite")), seed=TABLES_SEED), 6)
    made = TableMaker(tiny_library, trained, usual, place / "two.work" / "routings", jobs).open()
    names = row_names(usual)
    plain = [name for name in usual.names if f"{name}{WITH_EXPERTS}" in names]
    losses = query_losses([read_task_table(made.path(*job)) for job in jobs])
    judged = BestMember(losses[:, [names.index(f"{name}{WITH_EXPERTS}") for name in plain]])
    members = tuple(sorted(plain.index(name) for name in kept.catalogue.names))
    every = [judged(pair) for pair in combinations(range(len(plain)), 2)]
    assert judged(members) == pytest.approx(min(every), rel=0.01) and max(every) > 1.02 * min(every)


@pytest.mark.parametrize("router", ["router", "router-bare"])
def test_tasks_share_the_networks_of_a_catalogue(
    place: Path, tiny_library: Library, tmp_path: Path, capsys, router: str
) -> None:
    mixtures = read_catalogue(place / "two").mixtures
    library = smatter.open_library(tiny_library.folder)
    library.lend(read_router(place / router).bank)
    runtime = smatter.SharedRuntime(library, mixtures)
    for seed in range(3):
        recipe = tmp_path / f"{seed}.safetensors"
        line = ("adapt", tiny_library.folder, place / f"shots{seed}", "--router", place / router, "-o", recipe)
        told = run(capsys, *line, "--catalogue", place / "two")
        assert told["method"] == "bayes" and told["decision"]["rule"] == "map" and told["query_passes"] == 1
        assert read_recipe(recipe).mixture.mean_weights in [each.mean_weights for each in mixtures.values()]
        assert str(tmp_path) not in json.dumps(read_recipe(recipe).notes.model_dump())
        runtime.load(f"task {seed}", recipe)


def test_without_a_posterior_the_mixture_of_least_loss_is_taken(place: Path, tiny_library: Library) -> None:
    router, kept = read_router(place / "router-bare"), read_catalogue(place / "two")
    for seed in range(3):
        support = smatter.read_support(place / f"shots{seed}")
        chosen = smatter.adapt(tiny_library, support, "bayes", BayesSettings(router, catalogue=str(place / "two")))
        losses = {}
        for name in kept.catalogue.names:
            one = KeptCatalogue(
                kept.catalogue.subset([kept.catalogue.names.index(name)]), kept.sources, kept.bank, kept.record
            )
            write_catalogue(place / "one", one)
            alone = smatter.adapt(tiny_library, support, "bayes", BayesSettings(router, catalogue=str(place / "one")))
            losses[name] = alone.loss
        assert chosen.loss == pytest.approx(min(losses.values()), abs=1e-5)


def test_a_kept_result_is_that_of_the_catalogue_as_it_is_now(
    place: Path, tiny_library: Library, tmp_path: Path
) -> None:
    router, kept = read_router(place / "router"), read_catalogue(place / "two")
    support, file = smatter.read_support(place / "shots0"), tmp_path / "catalogue"
    for row in (0, 1):
        write_catalogue(file, replace(kept, catalogue=kept.catalogue.subset([row])))
        found = smatter.adapt(
            tiny_library, support, "bayes", BayesSettings(router, catalogue=str(file)), cache=tmp_path / "cache"
        )
        expected = next(iter(read_catalogue(file).mixtures.values())).mean_weights
        assert found.mixture.mean_weights == expected


def test_it_is_the_same_when_read_again(place: Path, tmp_path: Path) -> None:
    kept = read_catalogue(place / "two")
    write_catalogue(tmp_path / "again", kept)
    again = read_catalogue(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (place / "two").read_bytes()
    assert torch.equal(again.catalogue.points, kept.catalogue.points) and again.mixtures == kept.mixtures


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cost", "0.5"], "every routing costs more than 0.5"),
        (["--size", "0"], "--size"),
        (["--tables", "0"], "--tables"),
        (["--shift", "nonsense"], "unknown shift"),
    ],
)
def test_impossible_catalogues_are_one_line(place, tiny_library, tmp_path, capsys, options, message: str) -> None:
    line = ["catalogue", tiny_library.folder, place / "router", place / "suite", "--work", place / "two.work"]
    with few_held_out():
        assert main([*map(str, line), "--tables", "6", *options, "-o", str(tmp_path / "c")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--catalogue", "nowhere"], "`smatter catalogue` wrote"),
        (["--catalogue", "two", "--decision", "half:2"], "half:2 runs a mixture that is in no catalogue"),
        (["--catalogue", "two", "--decision", "top:9"], "give fewer"),
        (["--catalogue", "two", "--abstain", "entropy"], "leave out --abstain, or --catalogue"),
        (["--catalogue", "two", "--mix", "predictions"], "--catalogue and --mix both say"),
        (["--catalogue", "two", "--method", "router"], "--catalogue asks for the method bayes"),
        (["--catalogue", "shots0/cats/0.png"], "not a sound catalogue"),
        (["--catalogue", "router/router.safetensors"], "not a sound catalogue"),
    ],
)
def test_mistakes_are_one_line(place, tiny_library, capsys, monkeypatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(place)
    line = ["adapt", str(tiny_library.folder), "shots0", "--router", "router", *words]
    assert main(line) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"names": []}, {"names": ["one"]}, {"names": ["one", "one"]}, {"schema": 2}, {"stranger": 1}, {"bank": "x"},
        {"sources": {}}, {"sources": {"s0": "a" * 64}}, {"weights": [[0.5, 0.5, 0.5], [1, 0, 0]]},
        {"weights": [[float("nan"), 0.5, 0.5], [1, 0, 0]]}, {"costs": [1.0, float("inf")]}, {"costs": [1.0]},
    ],
)  # fmt: skip
def test_files_that_are_no_catalogue_are_refused(place: Path, tmp_path: Path, change: dict) -> None:
    with safe_open(place / "two", "pt") as file:
        header = json.loads(file.metadata()[KEY])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name in ("weights", "costs"):
        if name in change:
            tensors[name] = torch.tensor(change.pop(name))
    save_file(tensors, tmp_path / "file", {KEY: json.dumps(header | change)})
    with pytest.raises(InvalidSettings, match="make it again") as error:
        read_catalogue(tmp_path / "file")
    assert "\n" not in str(error.value)


def test_catalogues_of_other_sources_or_experts_are_refused(place: Path, tiny_library: Library) -> None:
    kept, trained = read_catalogue(place / "two"), read_router(place / "router")
    assert len(kept.check_fits(tiny_library, trained)) == 2
    with pytest.raises(InvalidSettings, match="other sources"):
        replace(kept, sources=dict.fromkeys(kept.sources, "a" * 64)).check_fits(tiny_library, trained)
    with pytest.raises(InvalidSettings, match="experts"):
        replace(kept, bank=None).check_fits(tiny_library, trained)
