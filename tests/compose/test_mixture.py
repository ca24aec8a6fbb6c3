import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smatter.compose.mixture import Mixture
from smatter.compose.plan import make_plan
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidRecipe, InvalidResidual, InvalidWeights, UnknownModule, UnknownSource
from smatter.records import Partition, TensorSpec

SPECS = {"x.weight": TensorSpec("F32", (4, 2)), "y.weight": TensorSpec("F32", (3,)), "ids": TensorSpec("I64", (2,))}
PARTITION = Partition({"x": ("x.weight", "ids"), "y": ("y.weight",)})
DIGESTS = {"one": "b" * 64, "two": "a" * 64, "three": "c" * 64}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20).filter(lambda values: sum(values) > 1e-3))
def test_normalised_weights_are_accepted_and_scaled_ones_refused(values: list[float]) -> None:
    total = math.fsum(values)
    weights = {f"s{index}": value / total for index, value in enumerate(values)}
    assert Mixture.of(weights).rows == (tuple(weights.values()),)
    with pytest.raises(InvalidWeights, match="sum"):
        Mixture.of({name: 1.5 * weight for name, weight in weights.items()})


@pytest.mark.parametrize("bad", [{}, {"a": math.nan}, {"a": math.inf}, {"a": 1.5, "b": -0.5}, {"a": 0.0}, {"a": 1e40}])
def test_weights_off_the_simplex_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidWeights):
        Mixture.of(bad)


def test_task_arithmetic_is_base_plus_scaled_task_vectors() -> None:
    base, one, two = np.random.default_rng(0).normal(size=(3, 5))
    mixture = Mixture.task_arithmetic("base", {"one": 0.8, "two": 0.6}, scale=0.5)
    mixed = sum(mixture.coefficient("m", name) * value for name, value in (("base", base), ("one", one), ("two", two)))
    np.testing.assert_allclose(mixed, base + 0.5 * (0.8 * (one - base) + 0.6 * (two - base)))


def test_terms_are_ordered_by_content_and_zero_weights_are_never_read() -> None:
    plan = make_plan(Mixture.of({"one": 0.25, "three": 0.0, "two": 0.75}), SPECS, PARTITION, DIGESTS)
    assert [term.source for term in plan.steps[0].terms] == ["two", "one"]
    assert [term.source for term in plan.steps[2].terms] == ["two"], "integers are copied from one source"


def test_each_module_follows_its_own_row() -> None:
    mixture = Mixture.per_module({"x": {"one": 1.0}, "y": {"two": 0.5, "three": 0.5}})
    plan = make_plan(mixture, SPECS, PARTITION, DIGESTS)
    sources = {step.tensor: [term.source for term in step.terms] for step in plan.steps}
    assert sources == {"x.weight": ["one"], "y.weight": ["two", "three"], "ids": ["one"]}
    assert "y: 1 tensors" in str(plan)


def test_plans_refuse_what_the_library_does_not_have() -> None:
    with pytest.raises(UnknownSource, match="four"):
        make_plan(Mixture.of({"four": 1}), SPECS, PARTITION, DIGESTS)
    with pytest.raises(UnknownModule, match="z"):
        make_plan(Mixture.per_module({"x": {"one": 1}, "y": {"one": 1}, "z": {"one": 1}}), SPECS, PARTITION, DIGESTS)
    with pytest.raises(UnknownModule, match="y"):
        make_plan(Mixture.per_module({"x": {"one": 1}}), SPECS, PARTITION, DIGESTS)


def elements(*indices: int) -> Elements:
    return Elements(np.array(indices, np.int64), np.ones(len(indices), np.float32))


@pytest.mark.parametrize(
    "make",
    [
        lambda: elements(2, 1),
        lambda: elements(1, 1),
        lambda: elements(-1),
        lambda: Elements(np.array([0]), np.array([np.nan], np.float32)),
        lambda: Elements(np.array([0]), np.ones(2, np.float32)),
        lambda: Residual({"x.weight": elements(0)}, {"x.weight": np.zeros((4, 2), np.float32)}),
        lambda: Residual({"x.weight": elements(8)}).check_fits(SPECS),
        lambda: Residual({"other": elements(0)}).check_fits(SPECS),
        lambda: Residual({"ids": elements(0)}).check_fits(SPECS),
        lambda: Residual(dense={"y.weight": np.zeros(4, np.float32)}).check_fits(SPECS),
    ],
)
def test_residuals_out_of_order_or_range_are_refused(make) -> None:
    with pytest.raises(InvalidResidual):
        make()


def test_a_residual_counts_parameters_and_modules() -> None:
    residual = Residual({"x.weight": elements(0, 5)}, {"y.weight": np.array([0, 1, 2], np.float32)})
    assert residual.n_nonzero == 4
    assert residual.active_modules(PARTITION) == ("x", "y")


def test_a_recipe_finds_its_sources_by_content_under_other_names() -> None:
    recipe = Recipe(Mixture.of({"one": 0.3, "two": 0.7}), {"one": "b" * 64, "two": "a" * 64}, "net", "d" * 64)
    renamed = recipe.mixture_in({"uno": "b" * 64, "two": "a" * 64, "more": "e" * 64})
    assert dict(zip(renamed.sources, renamed.rows[0], strict=True)) == {"uno": 0.3, "two": 0.7}


def test_a_recipe_without_a_source_says_what_it_would_lose() -> None:
    recipe = Recipe(Mixture.of({"one": 0.3, "two": 0.7}), {"one": "b" * 64, "two": "a" * 64}, "net", "d" * 64)
    with pytest.raises(InvalidRecipe, match=r"'two' is not in this library.*70\.0%"):
        recipe.mixture_in({"one": "b" * 64})
    with pytest.raises(InvalidRecipe, match=r"'two' has other contents.*70\.0%"):
        recipe.mixture_in({"one": "b" * 64, "two": "f" * 64})


def test_two_identical_sources_keep_their_two_terms() -> None:
    recipe = Recipe(Mixture.of({"one": 0.3, "copy": 0.7}), {"one": "b" * 64, "copy": "b" * 64}, "net", "d" * 64)
    assert recipe.mixture_in({"x": "b" * 64, "copy": "b" * 64}).rows in (((0.3, 0.7),), ((0.7, 0.3),))
    with pytest.raises(InvalidRecipe, match="second name"):
        recipe.mixture_in({"one": "b" * 64})
