"""Recipes whose experts, head or notes are not sound; each is one more case of `hostile_requests`."""

from typing import Any

import numpy as np
from hostile_requests import recipe
from hostile_shelf import Tensors

BANK = "ab" * 32


def with_head(described: dict[str, Any], tensors: Tensors, **changes: Any) -> None:
    described["head"] = {"kind": "ridge", "classes": {"cat": 0, "dog": 1}} | changes
    tensors["head:weight"] = ("F32", np.ones((2, 4), np.float32))
    tensors["head:bias"] = ("F32", np.ones(2, np.float32))


def with_experts(described: dict[str, Any], tensors: Tensors, *alpha: float) -> None:
    described["experts"] = {"bank": BANK}
    tensors["experts:alpha"] = ("F32", np.array(alpha, np.float32))


@recipe("abababababab", "smatter library experts")
def experts_of_an_unknown_bank(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, 0.5, 0.5)


@recipe("its mixture is [200000000, 0]")
def a_mixture_of_many_empty_rows(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["mixture"] = ("F64", np.zeros((200_000_000, 0)))


@recipe("head.classes.cat")
def a_row_that_is_a_word(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"cat": "0", "dog": 1})


@recipe("head.temperature")
def a_temperature_that_is_a_word(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, temperature="0.5")


@recipe("number its classes in their order")
def a_classifier_of_the_sources_with_rows(described: dict[str, Any], _tensors: Tensors) -> None:
    described["head"] = {"kind": "linear", "classes": {"cat": 1, "dog": 0}}


@recipe("cannot be seen")
def a_class_that_nobody_sees(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"\u200b": 0, "dog": 1})


@recipe("read alike")
def classes_that_differ_in_what_nobody_sees(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"dog\u200b": 0, "dog": 1})


@recipe("experts.bank")
def experts_of_a_bank_that_is_a_path(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, 0.5)
    described["experts"]["bank"] = "../" * 20 + "etc/passwd"


@recipe("sum to more than one")
def experts_off_the_simplex(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, 0.7, 0.7)


@recipe("must not be negative")
def experts_below_zero(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, -0.1, 0.7)


@recipe("must not be negative")
def experts_not_a_number(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, float("nan"), 0.7)


@recipe("0 experts")
def experts_without_any(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors)


@recipe("not a list")
def experts_in_a_matrix(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, 0.5)
    tensors["experts:alpha"] = ("F32", np.ones((1, 1), np.float32))


@recipe("'experts:alpha'")
def experts_that_nothing_describes(_described: dict[str, Any], tensors: Tensors) -> None:
    tensors["experts:alpha"] = ("F32", np.ones(1, np.float32))


@recipe("must not be negative and must increase")
def a_unit_below_zero(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, 0.5)
    tensors["experts:units"] = ("I64", np.array([-1, 3]))
    tensors["experts:gates"] = ("F32", np.array([0.5, 0.5], np.float32))


@recipe("between 0 and 1")
def a_unit_more_than_open(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, 0.5)
    tensors["experts:units"] = ("I64", np.array([0]))
    tensors["experts:gates"] = ("F32", np.array([2.0], np.float32))


@recipe("'experts:gates'")
def units_without_gates(described: dict[str, Any], tensors: Tensors) -> None:
    with_experts(described, tensors, 0.5)
    tensors["experts:units"] = ("I64", np.array([0]))


@recipe("does not lack weights", "make it again")
def a_classifier_of_the_sources_with_weights(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, kind="linear")


@recipe("head.kind")
def a_head_of_an_unknown_kind(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, kind="forest")


@recipe("2 classes and float32 coefficients [2, 4, 1]")
def a_head_of_too_many_dimensions(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors)
    tensors["head:weight"] = ("F32", np.ones((2, 4, 1), np.float32))


@recipe("3 classes and float32 coefficients [2, 4]")
def a_head_with_fewer_rows_than_classes(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"cat": 0, "dog": 1, "cow": 2})


@recipe("do not each have one of its rows")
def a_head_whose_classes_share_a_row(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"cat": 0, "dog": 0})


@recipe("NaN or Inf")
def a_head_that_is_not_a_number(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors)
    tensors["head:weight"] = ("F32", np.full((2, 4), np.nan, np.float32))


@recipe("temperature and length")
def a_head_of_no_temperature(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, temperature=0.0)


@recipe("read alike")
def classes_that_read_alike(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"caf\u00e9": 0, "cafe\u0301": 1})


@recipe("a control character")
def a_class_that_clears_the_screen(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"\x1b[2Jcat": 0, "dog": 1})


@recipe("a change of direction")
def a_class_that_reads_backwards(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"\u202etac": 0, "dog": 1})


@recipe("a class name of 0 characters")
def a_class_without_a_name(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"": 0, "dog": 1})


@recipe("1 classes")
def a_head_of_one_class(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={"dog": 0})


@recipe("recipe.safetensors", "with fewer names")
def a_million_classes(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={str(number): number for number in range(1_000_000)})


@recipe("100000 classes")
def a_hundred_thousand_classes(described: dict[str, Any], tensors: Tensors) -> None:
    with_head(described, tensors, classes={str(number): number for number in range(100_000)})


@recipe("'posterior', which this version cannot honour")
def a_record_of_a_later_version(described: dict[str, Any], _tensors: Tensors) -> None:
    described["posterior"] = {"kind": "dirichlet"}


@recipe("averages the predictions of 2 networks", "use `smatter predict`")
def members_to_be_averaged(described: dict[str, Any], _tensors: Tensors) -> None:
    described["members"] = [{"weight": 0.5, "mixture": {"base": 1.0}}]


@recipe("members take all of the weight")
def members_that_leave_nothing(described: dict[str, Any], _tensors: Tensors) -> None:
    described["members"] = [{"weight": 0.5, "mixture": {"base": 1.0}}] * 2


@recipe("weights sum to 0.2")
def members_off_the_simplex(described: dict[str, Any], _tensors: Tensors) -> None:
    described["members"] = [{"weight": 0.5, "mixture": {"base": 0.2}}]


@recipe("a member has the weight 0")
def members_of_no_weight(described: dict[str, Any], _tensors: Tensors) -> None:
    described["members"] = [{"weight": 0.0, "mixture": {"base": 1.0}}]


@recipe("a source of a member is not among those of the mixture")
def members_of_strangers(described: dict[str, Any], _tensors: Tensors) -> None:
    described["members"] = [{"weight": 0.5, "mixture": {"stranger": 1.0}}]


@recipe("none of them has")
def members_with_a_head_of_their_own(described: dict[str, Any], tensors: Tensors) -> None:
    described["members"] = [{"weight": 0.5, "mixture": {"base": 1.0}}]
    tensors["member:0:weight"] = ("F32", np.zeros((2, 4), np.float32))


@recipe("'member:1:weight', which no such recipe has")
def heads_of_members_that_are_not_there(described: dict[str, Any], tensors: Tensors) -> None:
    described["members"] = [{"weight": 0.5, "mixture": {"base": 1.0}}]
    tensors["member:1:weight"] = ("F32", np.zeros((2, 4), np.float32))


@recipe("not those that it was written with")
def tensors_that_are_not_pinned(described: dict[str, Any], _tensors: Tensors) -> None:
    described["pins"] = {"tensors": "cd" * 32}


@recipe("config.json of the base is not the one", "restore it, or make the recipe again")
def a_configuration_that_is_not_pinned(described: dict[str, Any], _tensors: Tensors) -> None:
    described["pins"] = {"files": {"config.json": "cd" * 32}}


@recipe("pins.files")
def a_pin_on_a_path(described: dict[str, Any], _tensors: Tensors) -> None:
    described["pins"] = {"files": {"../../etc/passwd": "cd" * 32}}


@recipe("budget.0.quantile")
def a_budget_beyond_all_times(described: dict[str, Any], _tensors: Tensors) -> None:
    described["budget"] = [{"value": 8.0, "unit": "ms forward", "quantile": 1.5, "profile": "cd" * 32}]


@recipe("decision.outcome")
def a_decision_that_nobody_takes(described: dict[str, Any], _tensors: Tensors) -> None:
    described["decision"] = {"outcome": "perhaps", "score": 0.5}


@recipe("origin.method")
def an_origin_outside_of_the_methods(described: dict[str, Any], _tensors: Tensors) -> None:
    described["origin"] = {"method": "../x"}
