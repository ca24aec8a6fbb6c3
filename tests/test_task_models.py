"""A recipe as a task's model: written, read by others, opened, fitted again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from small_routers import make_router
from tiny_libraries import pixels_support, texts_support
from toy_suite import draw_episode

import smatter
from smatter.backbones.heads import HEADS
from smatter.cli.main import main
from smatter.compose.experts import ExpertMix
from smatter.compose.head import ClassHead
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.records import BudgetRecord, Decision, Notes, Origin, Pins
from smatter.compose.residual import Elements, Residual
from smatter.errors import CannotWrite, InvalidRecipe, InvalidSettings, InvalidSupport
from smatter.library.library import Library, open_library
from smatter.live.task import Task
from smatter.methods.task_arithmetic import TaskArithmeticSettings
from smatter.tasks.support import Support

SHA = "ab" * 32
EVERYTHING = Recipe(
    Mixture(("one", "two"), ((0.25, 0.75), (1.0, 0.0)), ("embeddings", "layer")),
    {"one": SHA, "two": "cd" * 32},
    "SomeModel",
    SHA,
    residual=Residual({"t": Elements(np.array([1, 4]), np.array([0.5, -2], np.float32))}, {"u": np.ones((2, 3), "f4")}),
    experts=ExpertMix(SHA, (0.5, 0.25), Elements(np.array([0, 7]), np.array([0.5, 1], np.float32))),
    head=ClassHead("ridge", {"b": 1, "a": 0}, np.ones((2, 4), "f4"), np.arange(2, dtype="f4"), 0.5, length=3.5),
    notes=Notes(
        origin=Origin(method="solver", settings={"n_steps": "3"}, task=SHA, loss=0.25),
        decision=Decision(outcome="routed", score=0.1, reason="sure"),
        budget=(BudgetRecord(value=8, unit="ms forward", quantile=0.95, profile=SHA, predicted=7.5, promised=7.9),),
    ),
)


def test_all_of_a_recipe_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    smatter.write_recipe(path, EVERYTHING)
    back = smatter.read_recipe(path)
    assert back.mixture == EVERYTHING.mixture and back.digests == EVERYTHING.digests
    assert back.notes.pins and back.notes.pins.tensors
    assert back.notes.model_copy(update={"pins": None}) == EVERYTHING.notes
    np.testing.assert_equal(_plain(back.residual), _plain(EVERYTHING.residual))
    np.testing.assert_equal(_plain(back.experts), _plain(EVERYTHING.experts))
    np.testing.assert_equal(_plain(back.head), _plain(EVERYTHING.head))
    assert back.head and back.head.class_names == ("b", "a")
    first = path.read_bytes()
    smatter.write_recipe(path, back)
    assert path.read_bytes() == first


def _plain(value: object) -> object:
    """Records as mappings, so that arrays in them are compared."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(each) for name, each in vars(value).items()}
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def test_another_program_names_classes_with_plain_safetensors(toy, tmp_path: Path) -> None:
    """What docs/recipes.md says of the head is all that is needed."""
    episode = draw_episode(toy.domains, "red", 3)
    adapted = smatter.adapt(toy.library, episode.support, head="ridge")
    adapted.save(tmp_path / "r.safetensors")
    with safe_open(tmp_path / "r.safetensors", "np") as file:
        described = json.loads(file.metadata()["smatter_recipe"])
        weight, bias = file.get_tensor("head:weight"), file.get_tensor("head:bias")
    assert described["schema"] == 2 and described["origin"]["method"] == "evidence"
    features = adapted._live.features(adapted._live.prepare(episode.queries)).numpy()
    scores = features / np.linalg.norm(features, axis=1, keepdims=True) @ weight.T + bias
    classes = described["head"]["classes"]
    best = scores[:, list(classes.values())].argmax(axis=1)
    assert tuple(list(classes)[index] for index in best) == adapted.predict(episode.queries).names


@pytest.mark.parametrize("head", HEADS)
def test_a_saved_task_predicts_to_the_bit(toy, topics: Library, tmp_path: Path, head: str) -> None:
    episode = draw_episode(toy.domains, "red+green", 3)
    texts = texts_support("food", n_shot=3)
    more = [*texts_support("food", n_shot=30, seed=2).inputs, "food0a filler1"]  # more than one pass holds
    for library, support, inputs in ((toy.library, episode.support, episode.queries), (topics, texts, more)):
        adapted = smatter.adapt(library, support, head=head)
        adapted.save(tmp_path / "r.safetensors")
        opened = smatter.open_task(tmp_path / "r.safetensors", library.folder).predict(inputs)
        expected = adapted.predict(inputs)
        assert opened.class_names == expected.class_names == support.class_names
        assert torch.equal(opened.probabilities, expected.probabilities) and opened.names == expected.names


def test_the_sources_own_classifier_needs_no_coefficients(vit_library: Library, tmp_path: Path) -> None:
    support = pixels_support()
    support = replace(support, class_names=("LABEL_2", "LABEL_0", "LABEL_1"))
    adapted = smatter.adapt(vit_library, support, head="linear")
    adapted.save(tmp_path / "r.safetensors")
    assert adapted.recipe.head and adapted.recipe.head.weight is None
    opened = smatter.open_task(tmp_path / "r.safetensors", vit_library)
    expected = adapted.predict(support.inputs)
    assert torch.equal(opened.predict(support.inputs).probabilities, expected.probabilities)


def test_the_order_of_classes_changes_no_bit_of_the_head(toy) -> None:
    support = draw_episode(toy.domains, "red", 3).support
    renamed = {name: f"z{9 - int(name)}" for name in support.class_names}
    turned = Support.of(support.inputs, [renamed[support.class_names[label]] for label in support.labels])
    one, other = (smatter.adapt(toy.library, each, head="logistic").recipe.head for each in (support, turned))
    assert one and other and one.weight is not None and other.weight is not None
    assert np.array_equal(one.weight, other.weight)
    assert {renamed[name]: row for name, row in one.classes.items()} == dict(other.classes)
    assert list(other.classes) == sorted(other.classes)


def test_what_cannot_predict_is_refused(toy, topics: Library, tmp_path: Path) -> None:
    episode = draw_episode(toy.domains, "red", 3)
    recipe = smatter.adapt(toy.library, episode.support).recipe
    with pytest.raises(InvalidRecipe, match="smatter adapt"):
        smatter.open_task(replace(recipe, head=None), toy.library)
    head = recipe.head
    assert head and head.weight is not None
    with pytest.raises(InvalidRecipe, match="features and the network has"):
        smatter.open_task(replace(recipe, head=replace(head, weight=head.weight[:, 1:].copy())), toy.library)
    with pytest.raises(InvalidRecipe, match="in this library"):
        smatter.open_task(recipe, topics)
    with pytest.raises(InvalidSupport, match="read alike"):
        replace(episode.support, class_names=("caf\u00e9", "cafe\u0301", "c", "d", "e"))


def test_a_routed_task_is_small_and_needs_its_experts(tiny_library: Library, tiny_suite, tmp_path: Path) -> None:
    router, support = make_router(tiny_library, tiny_suite, tmp_path / "router")
    before = {path: path.stat().st_mtime_ns for path in tiny_library.folder.rglob("*")}
    adapted = smatter.adapt(open_library(tiny_library.folder), support, router=router)
    assert {path: path.stat().st_mtime_ns for path in tiny_library.folder.rglob("*") if "seal" not in path.name} == {
        path: time for path, time in before.items() if "seal" not in path.name
    }  # adapting writes nothing to a library
    adapted.save(tmp_path / "r.safetensors")
    assert adapted.needs_router and adapted.n_corrected > 0 and adapted.recipe.residual is None
    assert (tmp_path / "r.safetensors").stat().st_size < 4096 + 4 * adapted.recipe.head.weight.size
    with pytest.raises(LookupError, match="--router"):
        smatter.open_task(tmp_path / "r.safetensors", tiny_library.folder)
    expected = adapted.predict(support.inputs).probabilities
    lent = smatter.open_task(tmp_path / "r.safetensors", tiny_library.folder, router)
    assert torch.equal(lent.predict(support.inputs).probabilities, expected)
    adapted.save(tmp_path / "whole.safetensors", self_contained=True)
    whole = smatter.open_task(tmp_path / "whole.safetensors", tiny_library.folder)
    assert torch.equal(whole.predict(support.inputs).probabilities, expected)
    cached = [smatter.adapt(tiny_library.folder, support, router=router, cache=tmp_path / "cache") for _ in range(2)]
    for each in cached:
        assert torch.equal(each.predict(support.inputs).probabilities, expected)


def test_private_weights_tell_nothing_of_the_examples(tiny_library: Library, tiny_suite, tmp_path: Path) -> None:
    router, support = make_router(tiny_library, tiny_suite, tmp_path / "router")
    adapted = smatter.adapt(tiny_library, support, "private", router=router)
    recipe = adapted.recipe
    assert recipe.head is None and recipe.experts is None and recipe.residual is None
    assert recipe.notes == Notes(origin=Origin(method="private"))
    adapted.save(tmp_path / "r.safetensors")
    kept = smatter.read_recipe(tmp_path / "r.safetensors")
    assert kept.head is None and kept.notes.origin == Origin(method="private")
    assert adapted.predict(support.inputs).names  # in this process they are at hand


@pytest.fixture
def shelf(toy, tmp_path: Path) -> Path:
    """A copy of the toy library that a test may take sources from."""
    shutil.copytree(toy.library.folder, tmp_path / "library")
    return tmp_path / "library"


def test_refitting_says_what_is_lost(toy, shelf: Path, tmp_path: Path, capsys) -> None:
    support = draw_episode(toy.domains, "red+green", 3).support
    settings = smatter.SolverSettings(n_elements=50, n_steps=3)
    before = smatter.adapt(shelf, support, "solver", settings, head="ridge")
    before.save(tmp_path / "r.safetensors")
    gone = max((name for name in before.mixture.sources if name != "base"), key=before.mixture.mean_weights.get)
    smatter.remove_source(shelf, gone)
    with pytest.raises(InvalidRecipe, match="smatter adapt --refit"):
        smatter.open_task(tmp_path / "r.safetensors", shelf)
    recipe = smatter.read_recipe(tmp_path / "r.safetensors")
    lost = recipe.lost_in(open_library(shelf).manifest.digests)
    assert lost == {gone: pytest.approx(before.mixture.mean_weights[gone])}
    after = smatter.refit(shelf, support, tmp_path / "r.safetensors")
    assert after.method == "solver" and after.origin.settings == {"n_elements": "50", "n_steps": "3"}
    assert after.recipe.residual and 0 < after.recipe.residual.n_nonzero <= 50
    assert after.recipe.head.kind == "ridge" and gone not in after.mixture.sources
    plain = smatter.adapt(shelf, support, "solver", settings, head="ridge")
    assert torch.equal(after.predict(support.inputs).probabilities, plain.predict(support.inputs).probabilities)


def test_refitting_on_the_command_line(topics: Library, tmp_path: Path, capsys) -> None:
    shutil.copytree(topics.folder, tmp_path / "library")
    support = texts_support("food")
    rows = [f"{text},{support.class_names[label]}" for text, label in zip(support.inputs, support.labels, strict=True)]
    (tmp_path / "shots.csv").write_text("\n".join(["text,label", *rows]))
    recipe, shots, library = (str(tmp_path / each) for each in ("r.safetensors", "shots.csv", "library"))
    assert main(["adapt", library, shots, "-o", recipe, "--head", "logistic"]) == 0
    smatter.remove_source(library, "food")
    capsys.readouterr()

    def run(*words: str) -> dict:
        assert main(["adapt", library, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    again = run(shots, "--refit", recipe, "-o", str(tmp_path / "again"))
    assert again["refit"]["lost"].keys() == {"food"} and again["head"] == "logistic"
    assert again["loss"] == again["refit"]["loss"] > again["refit"]["loss_before"] > 0
    (tmp_path / "other.csv").write_text("\n".join(["text,label", *rows[:-1]]))
    assert run(str(tmp_path / "other.csv"), "--refit", recipe)["refit"]["loss_before"] is None
    shared = run("--refit", recipe, "--renormalise", "-o", str(tmp_path / "shared"))
    assert shared["refit"]["loss"] is None and sum(shared["weights"].values()) == pytest.approx(1)
    left = smatter.open_task(tmp_path / "shared", library)
    assert left.predict(["food0a food0b"]).class_names == support.class_names
    assert left.recipe.notes.origin.loss is None
    for words in (["--refit", recipe], [shots, "--renormalise"], [shots, "--refit", recipe, "--renormalise"], []):
        assert main(["adapt", library, *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "SUPPORT" in error
    assert main(["adapt", library, "--refit", recipe, "--renormalise", "--head", "ridge"]) == 2
    assert "leave out all options" in capsys.readouterr().err
    assert main(["adapt", library, "--refit", recipe, "--renormalise"]) == 0
    assert "nobody knows" in capsys.readouterr().out


def test_nothing_left_cannot_be_shared_out() -> None:
    recipe = Recipe(Mixture.of({"a": 1.0, "b": 0.0}), {"a": SHA, "b": "cd" * 32}, "M", SHA)
    with pytest.raises(InvalidRecipe, match="fit again with examples"):
        recipe.renormalised({"b": "cd" * 32})
    with pytest.raises(InvalidRecipe, match="task arithmetic"):
        replace(recipe, mixture=Mixture.arithmetic({"a": 2.0, "b": 1.0})).renormalised({"b": "cd" * 32})
    shared = replace(recipe, mixture=Mixture.of({"a": 0.75, "b": 0.25})).renormalised({"other": "cd" * 32})
    assert shared.mixture == Mixture.of({"other": 1.0}) and shared.digests == {"other": "cd" * 32}


def test_sources_of_the_same_contents_share_a_place_when_weights_are_shared_out() -> None:
    one, two, three = SHA, "cd" * 32, "ef" * 32
    twins = Recipe(Mixture.of({"a": 0.3, "b": 0.3, "c": 0.4}), {"a": one, "b": one, "c": two}, "M", SHA)
    assert twins.lost_in({"b": one, "c": two}) == {}
    with pytest.raises(InvalidRecipe, match="second name"):
        twins.mixture_in({"b": one, "c": two})  # one term instead of two would give other bits
    assert twins.renormalised({"b": one, "c": two}).mixture.mean_weights == pytest.approx({"b": 0.6, "c": 0.4})
    idle = Recipe(Mixture.of({"a": 0.0, "b": 0.6, "c": 0.4}), {"a": one, "b": one, "c": two}, "M", SHA)
    assert idle.mixture_in({"b": one, "c": two, "d": three}) == Mixture.of({"b": 0.6, "c": 0.4})
    pinned = replace(twins, notes=Notes(pins=Pins(result=SHA)))
    assert pinned.renormalised({"b": one}).notes.pins is None  # other bits


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    head = ClassHead("ridge", {f"{'x' * 100}{n}": n for n in range(50_000)}, np.ones((50_000, 1), "f4"))
    with pytest.raises(CannotWrite, match="shorten them"):
        smatter.write_recipe(tmp_path / "r.safetensors", replace(EVERYTHING, head=head))
    assert not list(tmp_path.iterdir())
    with pytest.raises(InvalidRecipe, match="unknown head"):
        ClassHead("forest", {"a": 0, "b": 1}, np.ones((2, 1), "f4"))  # type: ignore[arg-type]


def test_a_source_that_is_not_used_may_be_damaged(topics: Library, tmp_path: Path) -> None:
    shutil.copytree(topics.folder.parent, tmp_path / "shelf")
    table = tmp_path / "shelf" / "library" / "library.json"
    table.write_text(table.read_text().replace(str(topics.folder.parent), str(tmp_path / "shelf")))
    library = open_library(table.parent)
    recipe = smatter.adapt(library, texts_support("food"), "best_source").recipe
    unused = next(name for name in library.names if name not in (*recipe.mixture.active_sources, "base"))
    (library.path_of(library.manifest.source(unused)) / "model.safetensors").write_bytes(b"")
    assert smatter.open_task(recipe, open_library(table.parent)).predict(["food0a"]).names
    used = next(name for name in recipe.mixture.active_sources)
    (library.path_of(library.manifest.source(used)) / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="cut short"):
        smatter.open_task(recipe, open_library(table.parent))


def test_a_kept_result_without_its_experts_is_none(tiny_library: Library, tiny_suite, tmp_path: Path) -> None:
    router, support = make_router(tiny_library, tiny_suite, tmp_path / "router")
    expected = smatter.adapt(tiny_library.folder, support, router=router, cache=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").glob("*.safetensors")
    recipe = smatter.read_recipe(kept)
    smatter.write_recipe(kept, replace(recipe, experts=replace(recipe.experts, bank="0" * 64)))
    again = smatter.adapt(tiny_library.folder, support, router=router, cache=tmp_path / "cache")
    assert again.recipe.experts == expected.recipe.experts


def test_settings_that_no_recipe_holds_are_refused_before_any_work(topics: Library) -> None:
    settings = TaskArithmeticSettings(strengths=tuple(n / 7 for n in range(10_000)))
    with pytest.raises(InvalidSettings, match="too long"):
        smatter.adapt(topics, texts_support("food"), "task_arithmetic", settings)


def test_the_task_of_a_refit_is_told_apart_by_its_examples(toy) -> None:
    support = draw_episode(toy.domains, "red", 3).support
    adapted = smatter.adapt(toy.library, support)
    live = adapted._live
    assert adapted.recipe.notes.origin.task == Task.of(live, support).digest


def test_a_recipe_is_bound_to_its_bits(topics: Library, tmp_path: Path, capsys) -> None:
    shutil.copytree(topics.folder, tmp_path / "library")
    library = open_library(tmp_path / "library")
    path, words = tmp_path / "r.safetensors", ["compose", str(library.folder), "--recipe"]
    smatter.adapt(library, texts_support("food")).save(path)
    recipe = smatter.read_recipe(path)
    assert recipe.notes.pins and set(recipe.notes.pins.files) >= {"config.json", "vocab.txt"}
    assert main([*words, str(path), "--verify", "-o", str(tmp_path / "out")]) == 0
    other = recipe.notes.pins.model_copy(update={"result": SHA})
    smatter.write_recipe(path, replace(recipe, notes=recipe.notes.model_copy(update={"pins": other})))
    capsys.readouterr()
    assert main([*words, str(path), "--verify", "-o", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "none").exists()
    assert main(["compose", str(library.folder), "--weights", "base=1", "--verify"]) == 2
    table = json.loads((library.folder / "library.json").read_text())
    table["sources"][0]["files"]["vocab.txt"]["sha256"] = SHA
    (library.folder / "library.json").write_text(json.dumps(table))
    with pytest.raises(InvalidRecipe, match=r"vocab\.txt of the base"):
        open_library(library.folder).plan(recipe)
