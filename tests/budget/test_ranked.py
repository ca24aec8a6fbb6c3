"""Ranked units: levels add up, shares round down, what makes no sense is refused in one line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smatter.budget.latency import ModuleCost
from smatter.budget.ranked import Ranked, RankedModule, unit_costs
from smatter.errors import InvalidProfile, InvalidSettings


def module(**changes) -> RankedModule:
    fields = {"units": (2, 0, 1), "values": [3.0, 1.0, -0.5], "costs": [[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]}
    return RankedModule(**{**fields, "on": [0.5, 0.0], **changes})


def test_levels_add_up_with_the_cost_of_being_on() -> None:
    ranked = Ranked({"a": module(), "b": module(cap=0.7)}, ("ms", "MB"), (10.0, 1.0))
    assert module().level_values.tolist() == [0, 3, 4, 3.5]
    assert module().level_costs.tolist() == [[0, 1.5, 3.5, 6.5], [0, 0, 1, 1]]
    assert module(cap=0.7).level_values.tolist() == [0, 3, 4]
    assert ranked.cost({"a": 2, "b": 0}).tolist() == [13.5, 2.0]
    assert ranked.value({"a": 2, "b": 1}) == 7
    assert ranked.open_units({"a": 2, "b": 0}) == {"a": (2, 0), "b": ()}


@given(st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_shares_round_down_by_less_than_a_unit_and_stay_below_the_cap(shares: list[float]) -> None:
    ranked = Ranked({"a": module(), "b": module(cap=0.5)}, ("ms", "MB"))
    levels = ranked.levels(dict(zip("ab", shares, strict=True)))
    assert shares[0] * 3 - 1 < levels["a"] <= shares[0] * 3 + 1e-4
    assert levels["b"] <= 1


def test_shares_of_levels_give_the_levels_back_even_in_float32() -> None:
    for n_units in range(1, 200):
        ranked = Ranked({"a": RankedModule(tuple(range(n_units)), np.ones(n_units), np.ones(n_units), 1.0)})
        for level in range(n_units + 1):
            share = ranked.shares({"a": level})["a"]
            assert ranked.levels({"a": share}) == ranked.levels({"a": float(np.float32(share))}) == {"a": level}


def test_costs_of_units_add_up_to_what_the_profile_says() -> None:
    cost = ModuleCost(0.1, (0.02, 0.0, 0.3, 0.1))
    on, costs = unit_costs(cost, 12)
    ranked = RankedModule(tuple(range(12)), np.ones(12), costs, on)
    assert ranked.level_costs[0] == pytest.approx(cost(np.arange(13) / 12))
    assert unit_costs(ModuleCost(0.0, (0.0,) * 4), 3, least=0.01)[0] == 0.01


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"costs": [[1.0, np.nan, 1.0]] * 2}, "finite"),
        ({"costs": [[1.0, -1.0, 1.0]] * 2}, "none negative"),
        ({"on": [np.inf, 0.0]}, "finite"),
        ({"on": [0.0, 0.0], "costs": [[0.0, 1.0, 1.0]] * 2}, "costs nothing"),
    ],
)
def test_impossible_costs_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(InvalidProfile, match=message) as caught:
        module(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": [1.0, np.nan, 0.0]}, "finite"),
        ({"values": [1.0]}, "as many values"),
        ({"costs": [[1.0, 1.0, 1.0]]}, "as many costs"),
        ({"units": (0, 0, 1)}, "once"),
        ({"cap": np.nan}, "no share"),
        ({"cap": 1.5}, "no share"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as caught:
        module(**changes)
    assert "\n" not in str(caught.value)


def test_strange_names_shares_and_resources_are_refused() -> None:
    ranked = Ranked({"a": module()}, ("ms", "MB"))
    with pytest.raises(InvalidSettings, match="no ranked module 'x'"):
        ranked.cost({"x": 1})
    with pytest.raises(InvalidSettings, match="not between 0 and 1"):
        ranked.levels({"a": float("nan")})
    with pytest.raises(InvalidSettings, match="needs costs in ms"):
        Ranked({"a": module()}, ("ms",))
    with pytest.raises(InvalidSettings, match="nothing to allocate"):
        Ranked({})
    with pytest.raises(InvalidProfile, match="whatever is open"):
        Ranked({"a": module()}, ("ms", "MB"), (float("nan"), 1.0))
