"""Tasks that open experts of a bank, in both runtimes: gates on one shared delta give what a merged network gives."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runtimes import FAMILIES, inputs_of, make_library, random_bank, random_head, random_residual
from torch import Tensor

import smatter
from smatter.compose.experts import ExpertMix
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidRecipe, InvalidResidual, NotFound, UnknownSource
from smatter.library.banks import Bank, router_bank
from smatter.library.library import Library, open_library
from smatter.library.recipes import write_recipe
from smatter.live.predictions import Prediction
from smatter.runtime import shared
from smatter.runtime.deltas import OwnDeltas
from smatter.runtime.gates import OpenUnits
from smatter.runtime.merged import MergedRuntime
from smatter.runtime.shared import SharedRuntime

SHIPPED = Path(smatter.__file__).parent / "shipped"
BASE = Mixture.of({"s0": 1.0})
HALF = Mixture.of({"s0": 0.5, "s1": 0.5})


@pytest.fixture(scope="module", params=FAMILIES)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library(request.param, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def convnext(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library("convnext", tmp_path_factory.mktemp("convnext"))


def mix_of(bank: Bank, seed: int) -> ExpertMix:
    """Weights of its experts; what is missing to one is the null expert's."""
    alpha = np.random.default_rng(seed).dirichlet([0.7] * (len(bank.masks) + 1)).astype(np.float32)
    return ExpertMix(bank.digest, tuple(map(float, alpha[:-1])))


def sixteen(runtime: SharedRuntime, bank: Bank, mixtures: Sequence[Mixture]) -> dict[str, Recipe]:
    """Tasks on these mixtures in turn: some with a residual too, one with that alone, one with nothing."""
    library, recipes = runtime.library, {}
    for number in range(16):
        residual = random_residual(runtime, number, 0.2) if number % 3 == 1 else None
        mix = None if number in (4, 15) else mix_of(bank, number)
        head = random_head(runtime, number, 3 + number % 4)
        recipes[f"task {number}"] = library.recipe(mixtures[number % 2], residual, mix, head)
    return recipes


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest relative difference of a row."""
    return float(((found - expected).norm(dim=1) / expected.norm(dim=1)).max())


def check_agreement(runtime: SharedRuntime, recipes: dict[str, Recipe], inputs: dict[str, Tensor]) -> None:
    """Rows of all tasks in one batch, in random order, against a merged network for each."""
    n_rows = len(next(iter(inputs.values())))
    tasks = [list(recipes)[number] for number in np.random.default_rng(0).permutation(n_rows) % len(recipes)]
    for task, recipe in recipes.items():
        runtime.load(task, recipe)
    features, predictions = runtime.features(inputs, tasks), runtime.predict(inputs, tasks)
    merged = MergedRuntime(runtime.library)
    for task, recipe in recipes.items():
        merged.load(task, recipe)
        rows = [row for row, name in enumerate(tasks) if name == task]
        own = {name: tensor[rows] for name, tensor in inputs.items()}
        assert apart(features[rows], merged.features(own, [task] * len(rows))) < 1e-5
        check_same([predictions[row] for row in rows], merged.predict(own, [task] * len(rows)))
        assert [predictions[row].class_names for row in rows] == [recipe.head.class_names] * len(rows)
        merged.unload(task)


def check_same(found: Sequence[Prediction], expected: Sequence[Prediction]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.class_names == other.class_names
        torch.testing.assert_close(one.probabilities, other.probabilities, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["groups", "components", "elements"])
def test_a_batch_of_sixteen_tasks_agrees_with_merged_networks(library: Library, kind: str) -> None:
    runtime = SharedRuntime(library, {"base": BASE, "half": HALF})
    bank = random_bank(runtime, kind)
    recipes = sixteen(runtime, bank, (BASE, HALF))
    check_agreement(runtime, recipes, inputs_of(library, 24))
    plain = MergedRuntime(library)
    plain.load("plain", library.recipe(BASE))
    inputs = inputs_of(library, 2)
    assert apart(runtime.features(inputs, ["task 0"] * 2), plain.features(inputs, ["plain"] * 2)) > 1e-3


def test_the_shipped_experts_agree_with_merged_networks() -> None:
    library, bank = open_library(SHIPPED / "signs-library"), router_bank(SHIPPED / "signs-router")
    library.lend(bank)
    mixtures = Mixture.of({"base": 1.0}), Mixture.of({"latin": 0.62, "emoji": 0.38})
    runtime = SharedRuntime(library, {"base": mixtures[0], "two": mixtures[1]})
    recipes = sixteen(runtime, bank, mixtures)
    check_agreement(runtime, recipes, runtime.bases["base"].resident.network.random_inputs(16))
    gates_alone = library.recipe(mixtures[0], experts=mix_of(bank, 0))
    runtime.load("gates", gates_alone)
    runtime.load("packed", library.recipe(mixtures[0], library.correction(gates_alone)))
    assert 0 < runtime.n_bytes("gates") < runtime.n_bytes("packed") / 500
    head = recipes["task 0"].head
    runtime.load("named", replace(gates_alone, head=head))
    assert runtime.n_bytes("named") == runtime.n_bytes("gates") + 4 * len(head.classes) * (head.weight.shape[1] + 1)


@pytest.mark.parametrize("is_joint", [True, False])
def test_tasks_together_and_one_by_one_agree(library: Library, is_joint: bool, monkeypatch) -> None:
    """Whichever is quicker is taken: all units for all rows at once, or what is open, task by task."""
    monkeypatch.setattr("smatter.runtime.runs.OpenRows.is_joint", lambda *_: is_joint)
    runtime = SharedRuntime(library, {"base": BASE, "half": HALF})
    for kind in ("groups", "components"):
        check_agreement(runtime, sixteen(runtime, random_bank(runtime, kind, 1), (BASE, HALF)), inputs_of(library, 16))


def test_a_scale_of_experts_and_one_of_the_task_add_up(convnext: Library) -> None:
    """Both multiply the outputs of an operator: one after the other they would be a product."""
    runtime = SharedRuntime(convnext, {"half": HALF})
    bank = random_bank(runtime, "groups", 3)
    scales = [name for name in convnext.specs if name.endswith("layer_scale_parameter")]
    residual = Residual(dense={name: np.full(convnext.specs[name].shape, 0.7, np.float32) for name in scales})
    placed = convnext.bank(bank.digest)
    always = replace(bank, masks=np.ones_like(bank.masks), values=placed.values.astype(np.float16), digest="")
    assert all(placed.values[placed.numbering.tensors[name]].any() for name in scales)
    convnext.lend(always)
    mix = ExpertMix(always.digest, (0.5, 0.25, 0.0))
    recipes = {
        "both": convnext.recipe(HALF, residual, mix, random_head(runtime, 0)),
        "gates": convnext.recipe(HALF, None, mix, random_head(runtime, 1)),
        "own": convnext.recipe(HALF, residual, None, random_head(runtime, 2)),
    }
    check_agreement(runtime, recipes, inputs_of(convnext, 9))
    check_agreement(runtime, {"both": recipes["both"]}, inputs_of(convnext, 2))


def test_one_delta_serves_all_tasks_of_a_bank_on_a_base(convnext: Library, monkeypatch) -> None:
    made: list[object] = []

    def slowly(*given: object) -> object:
        made.append(given)
        time.sleep(0.05)
        return gate_bank(*given)

    gate_bank = shared.gate_bank
    monkeypatch.setattr(shared, "gate_bank", slowly)
    runtime = SharedRuntime(convnext, {"base": BASE, "half": HALF})
    bank = random_bank(runtime, "groups")
    recipes = [convnext.recipe(mixture, experts=mix_of(bank, 0)) for mixture in (BASE, HALF)]
    run([lambda number=number: runtime.load(f"{number}", recipes[number % 2]) for number in range(8)])
    assert len(made) == 2 and len(runtime.tasks) == 8


def run(jobs: Sequence[Callable[[], None]]) -> None:
    """All at once; what one raises is raised here."""
    raised: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def forms(runtime: SharedRuntime, task: str) -> dict[type, int]:
    """Bytes of what a task keeps, by kind."""
    return {type(part): part.n_bytes for part in runtime._tasks[task][0].deltas.parts}


def test_units_that_cannot_be_gates_are_the_tasks_own(tmp_path: Path) -> None:
    vit, olmo = make_library("vit", tmp_path / "vit"), make_library("olmo2", tmp_path / "olmo2")
    for library, kind, expected in (
        (vit, "groups", {OpenUnits}),
        (vit, "components", {OpenUnits, OwnDeltas}),  # the patches' convolution
        (vit, "elements", {OpenUnits, OwnDeltas}),
        (olmo, "groups", {OpenUnits, OwnDeltas}),  # norms of queries and keys, that heads are cut from
    ):
        runtime = SharedRuntime(library, {"base": BASE})
        recipe = library.recipe(BASE, None, mix_of(random_bank(runtime, kind), 0), random_head(runtime, 0))
        check_agreement(runtime, {"task": recipe}, inputs_of(library, 3))
        found = forms(runtime, "task")
        assert set(found) == expected and (found[OpenUnits] > 0) == (kind != "elements")


def test_experts_in_embeddings_of_tokens_need_the_merged_runtime_only_where_they_are_open(tmp_path: Path) -> None:
    library = make_library("bert", tmp_path)
    runtime = SharedRuntime(library, {"base": BASE})
    for kind in ("groups", "components", "elements"):
        bank = random_bank(runtime, kind, placed_only=False)
        recipe = library.recipe(BASE, experts=ExpertMix(bank.digest, (0.4, 0.3, 0.2)))
        with pytest.raises(InvalidResidual, match="use the merged runtime"):
            runtime.load("task", recipe)
        MergedRuntime(library).load("task", recipe)
        placed, places = library.bank(bank.digest), runtime.bases["base"].places
        gates = bank.gates(recipe.experts)
        if kind == "components":
            for number, name in enumerate(placed.factors):
                gates[2 * number : 2 * number + 2] *= name in places
        else:
            for name, where in placed.numbering.tensors.items():
                gates[placed.unit_of[where]] *= name in places
        units = np.flatnonzero(gates)
        closed = replace(recipe.experts, opened=Elements(units, gates[units]))
        assert units.size
        named = library.recipe(BASE, None, closed, random_head(runtime, 0))
        check_agreement(runtime, {"task": named}, inputs_of(library, 3))


def test_what_cannot_be_served_is_refused_by_name(convnext: Library, tmp_path: Path) -> None:
    runtime, merged = SharedRuntime(convnext, {"base": BASE, "even": HALF}), MergedRuntime(convnext)
    with pytest.raises(
        InvalidRecipe,
        match=r"task 'x' is on 0.62 s1 \+ 0.38 s0, which is not in the catalogue \(base, even\): add it there, or use "
        "the merged runtime",
    ):
        runtime.load("x", convnext.recipe(Mixture.of({"s0": 0.38, "s1": 0.62})))
    rows = {module: {"s0": 0.1, "s1": 0.9} for module in convnext.partition.modules}
    with pytest.raises(InvalidRecipe, match=r"0.9 s1 \+ 0.1 s0, mean over modules, which"):
        runtime.load("x", convnext.recipe(Mixture.per_module(rows)))
    other = replace(convnext.recipe(Mixture.per_module(rows)), partition_digest="0" * 64)
    for each in (runtime, merged):
        with pytest.raises(InvalidRecipe, match="another partition: make it again"):
            each.load("x", other)
        with pytest.raises(UnknownSource, match="--router"):
            each.load("x", replace(convnext.recipe(BASE), experts=ExpertMix("0" * 64, (1.0,))))
        each.load("idle", replace(convnext.recipe(BASE), experts=ExpertMix("0" * 64, (0.0,))))
        with pytest.raises(NotFound):
            each.load("x", tmp_path / "nowhere.safetensors")
        each.unload("idle")
        assert each.tasks == ()


def test_tasks_are_loaded_from_their_files(convnext: Library, tmp_path: Path) -> None:
    runtime, merged = SharedRuntime(convnext, {"base": BASE}), MergedRuntime(convnext)
    recipe = convnext.recipe(BASE, None, mix_of(random_bank(runtime, "groups"), 0), random_head(runtime, 1))
    path = tmp_path / "task.safetensors"
    write_recipe(path, recipe)
    for each in (runtime, merged):
        each.load("file", path)
        each.load("word", str(path))
        each.load("recipe", recipe)
    path.unlink()  # what was loaded stays
    inputs = inputs_of(convnext, 3)
    for each in (runtime, merged):
        one, two, three = each.predict(inputs, ["file", "word", "recipe"])
        assert one.class_names == two.class_names == three.class_names
        expected = each.predict(inputs, ["recipe"] * 3)
        check_same([one, two, three], expected)
    check_same(runtime.predict(inputs, ["file"] * 3), merged.predict(inputs, ["file"] * 3))
