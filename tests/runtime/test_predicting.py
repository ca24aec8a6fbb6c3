"""Classes of a batch of many tasks: each row by its own task's head, while tasks come and go."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runtimes import inputs_of, make_library, random_bank, random_head, random_residual

from smatter.backbones.heads import Head
from smatter.compose.experts import ExpertMix
from smatter.compose.head import ClassHead
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.errors import InvalidRecipe, InvalidSupport, NotFound
from smatter.library.library import Library
from smatter.live.mixture import Resident
from smatter.live.model import TaskModel
from smatter.live.predictions import Prediction
from smatter.runtime.merged import MergedRuntime
from smatter.runtime.shared import SharedRuntime

BASE = Mixture.of({"s0": 1.0})
HALF = Mixture.of({"s0": 0.5, "s1": 0.5})
Runtime = SharedRuntime | MergedRuntime


@pytest.fixture(scope="module")
def convnext(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library("convnext", tmp_path_factory.mktemp("convnext"))


@pytest.fixture(params=["shared", "merged"])
def runtime(request: pytest.FixtureRequest, convnext: Library) -> Runtime:
    return (
        SharedRuntime(convnext, {"base": BASE, "half": HALF}) if request.param == "shared" else MergedRuntime(convnext)
    )


def some_recipes(library: Library, n_tasks: int) -> list[Recipe]:
    """Tasks with experts, half of them with a residual too, on two mixtures."""
    maker = SharedRuntime(library, {"base": BASE})
    bank = random_bank(maker, "groups")
    generator, recipes = np.random.default_rng(0), []
    for number in range(n_tasks):
        alpha = tuple(map(float, generator.dirichlet([1.0] * 4).astype(np.float32)[:3]))
        residual = random_residual(maker, number, 0.2) if number % 4 > 1 else None
        mixture = (BASE, HALF)[number % 2]
        recipes.append(library.recipe(mixture, residual, ExpertMix(bank.digest, alpha), random_head(maker, number)))
    return recipes


def is_close(one: Prediction, other: Prediction, tolerance: float = 1e-5) -> bool:
    if one.class_names != other.class_names:
        return False
    return float((one.probabilities - other.probabilities).abs().max()) < tolerance


def test_each_row_is_named_as_its_own_model_names_it(runtime: Runtime, convnext: Library) -> None:
    recipes = some_recipes(convnext, 6)
    for number, recipe in enumerate(recipes):
        runtime.load(f"{number}", recipe)
    order = np.random.default_rng(1).integers(6, size=40)
    pixels = inputs_of(convnext, len(order))["pixel_values"]
    found = runtime.predict(runtime.prepare(pixels), [f"{number}" for number in order])
    resident = Resident(convnext)
    for number, recipe in enumerate(recipes):
        resident.compose(recipe)
        expected = TaskModel(resident, recipe).predict(pixels)
        for row in np.flatnonzero(order == number):
            assert is_close(found[row], expected[int(row)]) and found[row].name == expected.names[row]
    assert len({prediction.name for prediction in found}) > 6


def test_tasks_whose_classes_cannot_be_named_are_refused_by_name(runtime: Runtime, convnext: Library) -> None:
    maker, inputs = SharedRuntime(convnext, {"base": BASE}), inputs_of(convnext, 2)
    named = convnext.recipe(BASE, head=random_head(maker, 0))
    runtime.load("named", named)
    runtime.load("bare", convnext.recipe(BASE))
    runtime.load("linear", convnext.recipe(BASE, head=ClassHead("linear", {"a": 0, "b": 1})))
    with pytest.raises(InvalidRecipe, match="task 'bare' was loaded without a head, so it names no classes: load"):
        runtime.predict(inputs, ["named", "bare"])
    with pytest.raises(InvalidRecipe, match=r"task 'linear' is the sources' own classifier.*use `smatter predict`"):
        runtime.predict(inputs, ["named", "linear"])
    with pytest.raises(NotFound, match="'nobody'"):
        runtime.predict(inputs, ["named", "nobody"])
    with pytest.raises(InvalidSupport, match="names of tasks"):
        runtime.predict(inputs, ["named"])
    assert runtime.features(inputs, ["bare", "linear"]).shape[0] == 2
    for n_more in (-1, 1):
        width = named.head.weight.shape[1] + n_more
        other = replace(named.head, weight=np.ones((5, width), np.float32))
        with pytest.raises(InvalidRecipe, match=f"is for {width} features"):
            runtime.load("named", replace(named, head=other))
    assert len(runtime.predict(inputs, ["named"] * 2)) == 2  # the one that was there before


def test_what_is_loaded_is_a_copy(runtime: Runtime, convnext: Library) -> None:
    maker, inputs = SharedRuntime(convnext, {"base": BASE}), inputs_of(convnext, 1)
    recipe = convnext.recipe(BASE, head=random_head(maker, 1))
    runtime.load("task", recipe)
    (before,) = runtime.predict(inputs, ["task"])
    recipe.head.weight[:], recipe.head.bias[:] = 0, 0
    (after,) = runtime.predict(inputs, ["task"])
    assert is_close(before, after, 1e-9)


def test_heads_are_computed_in_float32(convnext: Library) -> None:
    recipe = some_recipes(convnext, 1)[0]
    inputs, whole = inputs_of(convnext, 4), MergedRuntime(convnext)
    whole.load("task", recipe)
    exact = whole.features(inputs, ["task"] * 4)
    for runtime in (SharedRuntime(convnext, {"base": BASE}, "BF16"), MergedRuntime(convnext, "BF16")):
        runtime.load("task", recipe)
        features = runtime.features(inputs, ["task"] * 4)
        assert features.dtype == torch.bfloat16 and float((features - exact).norm() / exact.norm()) < 0.02
        logits = Head.of(recipe.head).logits(features.float()) / recipe.head.temperature
        found = torch.stack([each.probabilities for each in runtime.predict(inputs, ["task"] * 4)])
        torch.testing.assert_close(found, logits.softmax(dim=1)[:, list(recipe.head.classes.values())])


def test_a_thousand_tasks_of_gates_are_loaded_quickly_and_take_little(convnext: Library) -> None:
    runtime, recipes = SharedRuntime(convnext, {"base": BASE, "half": HALF}), some_recipes(convnext, 2)
    for number in range(1_000):
        runtime.load(f"{number}", recipes[number % 2])
    assert len(runtime.tasks) == 1_000 and runtime.n_bytes("999") < 2_000
    inputs = inputs_of(convnext, 4)
    first, last = runtime.predict(inputs, ["0", "1", "998", "999"])[:2], runtime.predict(inputs, ["998", "999"] * 2)[:2]
    assert all(is_close(one, other) for one, other in zip(first, last, strict=True))


def test_tasks_come_and_go_while_others_are_predicted(runtime: Runtime, convnext: Library) -> None:
    """Features and head are of one version of a task, whatever is loaded meanwhile."""
    recipes, inputs = some_recipes(convnext, 6), inputs_of(convnext, 4)
    answers: list[list[Prediction]] = []
    for recipe in recipes:
        model = MergedRuntime(convnext)
        model.load("task", recipe)
        answers.append(model.predict(inputs, ["task"] * 4))
    runtime.load("steady", recipes[0])
    mistakes: list[str] = []
    n_batches, n_missing = [0, 0], [0, 0]
    stop_at = time.monotonic() + 3

    def serve(number: int) -> None:
        while time.monotonic() < stop_at:
            try:
                found = runtime.predict(inputs, ["steady", "changing", "steady", "changing"])
                if not any(all(is_close(found[row], answer[row], 2e-5) for row in (1, 3)) for answer in answers):
                    mistakes.append("changing")
            except NotFound:
                n_missing[number] += 1
                found = runtime.predict(inputs, ["steady"] * 4)
            if not all(is_close(found[row], answers[0][row], 2e-5) for row in (0, 2)):
                mistakes.append("steady")
            n_batches[number] += 1

    def change() -> None:
        generator = np.random.default_rng(0)
        while time.monotonic() < stop_at:
            runtime.load("changing", recipes[int(generator.integers(6))])
            runtime.load(f"other {generator.integers(5)}", recipes[int(generator.integers(6))])
            time.sleep(0.002)
            if generator.random() < 0.3:
                runtime.unload("changing")
                time.sleep(0.002)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(2)]
    threads.append(threading.Thread(target=change))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not mistakes and min(n_batches) > 5 and sum(n_missing) > 0
