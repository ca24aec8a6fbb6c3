"""`smatter train` and `smatter adapt --router`, as a stranger would use them."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from smatter.cli.main import main
from smatter.devices.profile import write_profile
from smatter.devices.stacks import make_bench
from smatter.devices.unmeasured import counted_profile
from smatter.files.reading import read_header
from smatter.library.library import Library
from smatter.route.store import read_router
from smatter.settings.devices import DeviceSetting
from smatter.tasks.packed import write_packed
from smatter.tasks.suite import Suite


def run(capsys, *words: object) -> dict:
    assert main([*map(str, words), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_suite: Suite) -> Path:
    folder = tmp_path_factory.mktemp("place")
    write_packed(folder / "suite", tiny_suite)
    for label in ("cats", "dogs"):
        (folder / "shots" / label).mkdir(parents=True)
        for number in range(3):
            colour = (40 * number + 20, 200 if label == "cats" else 30, 90)
            Image.new("RGB", (8, 8), colour).save(folder / "shots" / label / f"{number}.png")
    return folder


def test_a_router_is_trained_and_used(tiny_library: Library, place: Path, tmp_path: Path, capsys) -> None:
    library, router = tiny_library.folder, tmp_path / "router"
    options = ["--steps", 2, "--experts", 2, "--expert-share", 0.4, "--variant", "inverted:target=both"]
    told = run(capsys, "train", library, place / "suite", "-o", router, *options)
    assert told["steps"] == 2 and 0 <= told["validation"]["accuracy"] <= 1
    lines = [json.loads(line) for line in (tmp_path / "router.work" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 2]
    assert main(["train", str(library), str(place / "suite"), "-o", str(router)]) == 2
    assert "--replace" in capsys.readouterr().err
    routed = run(capsys, "adapt", library, place / "shots", "--router", router, "--set", "evidence=no")
    assert sum(routed["weights"].values()) == pytest.approx(1) and routed["losses"] == {}
    assert sum(routed["likeness"].values()) == pytest.approx(1) and len(routed["experts"]) == 2
    page = tmp_path / "page.html"
    told = run(capsys, "adapt", library, place / "shots", "--router", router, "--report", page)
    text = page.read_text()
    assert told["report"] == str(page) and "What the task is like" in text and "null expert" in text
    shots, foreign = str(place / "shots"), tmp_path / "index.html"
    foreign.write_text("<html>mine</html>")
    for words, message in (
        (["--report", page], "exists already"),
        (["--report", foreign, "--replace"], "no page of Smatter's"),
        (["--report", tmp_path / "new", "-o", tmp_path / "new"], "two names"),
        (["--report", tmp_path / "new.html", "--router", router, "--method", "private"], "leave out --report"),
    ):
        assert main(["adapt", str(library), shots, *map(str, words)]) == 2
        assert message in capsys.readouterr().err
    assert foreign.read_text() == "<html>mine</html>" and not (tmp_path / "new.html").exists()
    refine = [library, place / "shots", "--router", router, "--method", "refined"]
    run(capsys, "adapt", *refine, "--report", page, "--replace")
    assert "What the steps did" in page.read_text()
    for tune in ("weights", "experts"):
        refined = run(capsys, "adapt", *refine, "--set", f"tune={tune}", "--set", "n_steps=3")
        assert refined["steps"] and refined["steps"][-1] <= refined["steps"][0]
    assert main(["adapt", str(library), str(place / "shots"), "--router", str(router)]) == 0
    text = capsys.readouterr().out
    assert "leave-one-out loss" in text and "like " in text and "parameters corrected" in text


def test_what_is_common_is_in_every_recipe(tiny_library: Library, place: Path, tmp_path: Path, capsys) -> None:
    library, router, recipe = tiny_library.folder, tmp_path / "router", tmp_path / "recipe.safetensors"
    options = ["--steps", "2", "--common-share", "0.4", "--distill", "predictions=0.5", "--teacher", "ensemble"]
    assert main(["train", str(library), str(place / "suite"), "-o", str(router), *options]) == 0
    assert "every task uses" in capsys.readouterr().out
    told = read_router(router).record
    assert told["settings"]["imitation"]["teacher"] == "ensemble" and 0 < told["common_share"] <= 0.4
    page = tmp_path / "page.html"
    adapt = [library, place / "shots", "--router", router, "--report", page, "-o", recipe]
    assert run(capsys, "adapt", *adapt)["experts"] == {} and "null expert" not in page.read_text()
    assert load_file(recipe)["experts:alpha"].tolist() == [1.0]
    verified = ["compose", library, "--recipe", recipe, "--router", router, "--verify", "-o", tmp_path / "composed"]
    assert main([str(word) for word in verified]) == 0, capsys.readouterr().err


def test_experts_are_trained_for_budgets(tiny_library: Library, place: Path, tmp_path: Path, capsys) -> None:
    library, suite, profile = tiny_library.folder, place / "suite", tmp_path / "here.json"
    write_profile(profile, counted_profile(make_bench(tiny_library, DeviceSetting(batch=2))))
    variant = ["--variant", "inverted:target=both"]
    bare, router = tmp_path / "bare", tmp_path / "router"
    run(capsys, "train", library, suite, "-o", bare, "--steps", 1, "--experts", 1, *variant)
    train = ["train", library, suite, "-o", router, "--from", bare, "--budgets", "--profile", profile, *variant]
    told = run(capsys, *train, "--steps", 2)
    assert told["budgets"]["steps"] == 2 and told["budgets"]["validation"]["references"].keys() == {"before"}
    trained, before = read_router(router), read_router(bare)
    assert trained.unit_values is not None and trained.bank and before.bank
    assert trained.unit_values.shape == trained.bank.masks.shape and trained.bank.digest != before.bank.digest
    assert main([*map(str, train), "--steps", "2", "--replace"]) == 0
    assert "2 steps for budgets" in capsys.readouterr().out
    assert main([*map(str, train), "--experts", "2", "--replace"]) == 2
    assert "leave out --experts, or --from" in capsys.readouterr().err
    adapt = ["adapt", library, place / "shots", "--router", router, "--budget", "1.5x", "--profile", profile]
    (spent,) = run(capsys, *adapt)["budget"]
    assert spent["predicted"] <= 1.5 * spent["base"] * (1 + 1e-9)


def test_smat_is_trained_with_the_base_alone(tiny_library: Library, place: Path, tmp_path: Path, capsys) -> None:
    options = ["--source", "s0", "--experts", 2, "--units", "elements", "--distill", "experts=0.5"]
    options += ["--variant", "inverted", "--variant", "outline"]
    told = run(capsys, "train", tiny_library.folder, place / "suite", "-o", tmp_path / "r", "--steps", 2, *options)
    assert told["settings"]["router"]["units"] == "elements" and told["settings"]["imitation"]["experts"] == 0.5
    assert read_router(tmp_path / "r").sources.keys() == {"s0"}
    routed = run(
        capsys, "adapt", tiny_library.folder, place / "shots", "--router", tmp_path / "r", "--set", "evidence=no"
    )
    assert all(weight > 0 for weight in routed["weights"].values())  # sources that came later take part


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "s9"], "no source is named 's9'"),
        (["--distill", "alpha=1"], "weights=0.5, experts=0.5 or predictions=0.3"),
        (["--distill", "weights"], "is not one NAME=VALUE"),
        (["--distill", "experts=1"], "no experts to distil"),
        (["--distill", "weights=inf"], "finite"),
        (["--teacher", "ensemble"], "say --distill predictions=0.5"),
        (["--teacher", "ensemble", "--distill", "weights=0.5"], "predictions and no weights"),
        (["--teacher", "parrot"], "teacher"),
        (["--experts", "1", "--variant", "inverted", "--units", "components", "--rank", "4000"], "a smaller --rank"),
        (["--experts", "1"], "experts learn variants of tasks, and there are none: give --variant"),
        (["--experts", "1", "--variant", "inverted", "--expert-share", "1e-9"], "no room for any unit"),
        (["--shift", "worn:strength=3"], "it takes target, severity"),
        (["--variant", "nonsense"], "unknown shift 'nonsense': use one of label-noise, "),
        (["--expert-share", "2", "--experts", "1"], "expert_share is 2.0: give a share"),
        (["--pooling", "mean"], "pooling"),
        (["--budgets"], "give --profile"),
        (["--profile", "here.json"], "say --budgets"),
        (["--budgets", "--profile", "here.json"], "say --experts M"),
        (["--budgets", "--profile", "none.json", "--experts", "1", "--variant", "inverted"], "none.json"),
    ],
)
def test_mistakes_are_told_in_a_line(
    tiny_library: Library, place: Path, tmp_path: Path, capsys, words: list[str], message: str
) -> None:
    base = ["train", str(tiny_library.folder), str(place / "suite"), "-o", str(tmp_path / "router"), "--steps", "1"]
    assert main([*base, *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "router").exists()


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        ("state.safetensors", {"step": "x"}, "how many steps"),
        ("state.safetensors", {"step": "9" * 30}, "how many steps"),
        ("state.safetensors", {"drop": "value.score"}, "lacks value.score"),
        ("state.safetensors", {"cut": "value.score"}, "lacks value.score"),
        ("log.jsonl", b"x", "not the log"),
        ("log.jsonl", b'{"step": "one"}', "not the log"),
        ("log.jsonl", b"\xff", "not the log"),
        ("log.jsonl", b"[" * 100_000, "not the log"),
    ],
)
def test_a_broken_work_folder_is_refused_in_one_line(
    tiny_library: Library, place: Path, tmp_path: Path, capsys, file: str, damage: Any, words: str
) -> None:
    train = ["train", str(tiny_library.folder), str(place / "suite"), "--steps", "1", "-o"]
    run(capsys, *train, tmp_path / "router", "--work", tmp_path / "work")
    path = tmp_path / "work" / file
    if isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        tensors, metadata = load_file(path), dict(read_header(path).metadata)
        if "drop" in damage:
            del tensors[damage["drop"]]
        elif "cut" in damage:
            tensors[damage["cut"]] = tensors[damage["cut"]][:1].clone()
        else:
            metadata |= damage
        save_file(tensors, path, metadata)
    assert main([*train, str(tmp_path / "again"), "--work", str(tmp_path / "work")]) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1 and "delete it" in told
    assert not (tmp_path / "again").exists()
