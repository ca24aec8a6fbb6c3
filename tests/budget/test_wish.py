"""Budgets as words, and what they allow on a profile."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smatter.budget.allowance import allowance
from smatter.budget.kept import budgets_kept
from smatter.budget.latency import bent
from smatter.budget.wish import BudgetWish, parse_budget
from smatter.errors import BudgetInfeasible, InvalidProfile, InvalidSettings


@pytest.mark.parametrize(
    ("words", "value", "unit", "quantile"),
    [
        ("8ms", 8.0, "ms", None),
        ("8ms@p95", 8.0, "ms", 0.95),
        (" 8.5 ms @ p99.9 ", 8.5, "ms", 0.999),
        ("1.1x", 1.1, "x", None),
        ("1.1x@p50", 1.1, "x", 0.5),
        ("90mJ", 90.0, "mJ", None),
        ("12MB", 12e6, "bytes", None),
        ("0.02s", 20.0, "ms", None),
        ("1e3us", 1.0, "ms", None),
        (".5GB", 5e8, "bytes", None),
    ],
)
def test_words_become_budgets(words: str, value: float, unit: str, quantile: float | None) -> None:
    wish = parse_budget(words)
    assert wish.value == pytest.approx(value) and wish.unit == unit
    assert wish.quantile == (None if quantile is None else pytest.approx(quantile))


@given(st.floats(1e-3, 1e6), st.sampled_from(["ms", "mJ", "bytes", "x"]), st.sampled_from([None, 0.5, 0.95, 0.999]))
def test_budgets_say_themselves_in_words_that_can_be_read(value: float, unit: str, quantile: float | None) -> None:
    wish = BudgetWish(value, unit, None if unit == "bytes" else quantile)
    again = parse_budget(str(wish))
    assert again.value == pytest.approx(wish.value, rel=1e-5) and again.unit == unit
    assert again.quantile == (None if wish.quantile is None else pytest.approx(wish.quantile))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("8", "has no unit"),
        ("8parsecs", "unknown unit 'parsecs'"),
        ("8MS", "unknown unit"),
        ("nanms", "not positive"),
        ("-8ms", "not positive"),
        ("0ms", "not positive"),
        ("infms", "not positive"),
        ("ms", "is no budget"),
        ("", "is no budget"),
        ("8ms 9ms", "is no budget"),
        ("8ms@95", "is no quantile"),
        ("8ms@", "is no quantile"),
        ("8ms@p100", "not between 0 and 1"),
        ("8ms@p0", "not between 0 and 1"),
        ("12MB@p95", "bytes do not vary"),
        ("8" * 500 + "\n", "has no unit"),
    ],
)
def test_what_is_no_budget_is_refused_in_one_line(words: str, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as caught:
        parse_budget(words)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


@given(st.floats(1.0, 3.0), st.floats(-0.3, 0.3), st.floats(1.0, 1.2), st.floats(0, 1))
def test_what_is_allowed_just_keeps_the_budget(multiple: float, bend: float, kappa: float, epsilon: float) -> None:
    base, factor = 20.0, 1.1
    least = kappa * base + epsilon
    wish = BudgetWish(least * multiple, "ms", 0.95)
    total = allowance(
        wish, base=base, unit="ms", quantile=0.95, kappa=kappa, epsilon=epsilon, extra_factor=factor, bend=bend
    )
    if np.isfinite(total):
        spent = kappa * base * (1 + factor * float(bent(np.array(total), bend))) + epsilon
        assert spent == pytest.approx(wish.value)
    else:  # savings that saturate: everything fits
        assert kappa * base * (1 + factor / -bend) + epsilon <= wish.value * (1 + 1e-9)


def test_multiples_are_of_the_base_and_budgets_below_it_name_the_smallest() -> None:
    profile = {"base": 20.0, "unit": "ms", "quantile": 0.5}
    assert allowance(BudgetWish(1.25, "x"), **profile) == pytest.approx(0.25)
    assert allowance(BudgetWish(25.0, "ms"), **profile) == pytest.approx(0.25)
    assert allowance(BudgetWish(20.0, "ms"), **profile) == 0
    with pytest.raises(BudgetInfeasible, match=r"8ms is below the smallest possible one, 21ms"):
        allowance(BudgetWish(8.0, "ms"), **profile, kappa=1.05)
    with pytest.raises(BudgetInfeasible, match=r"0.9x is below the smallest possible one, 1x"):
        allowance(BudgetWish(0.9, "x"), **profile)
    with pytest.raises(InvalidProfile, match="needs a profile in mJ, this one is in ms"):
        allowance(BudgetWish(90.0, "mJ"), **profile)
    with pytest.raises(InvalidProfile, match=r"bounds the quantile 0.5, not 0.95"):
        allowance(BudgetWish(30.0, "ms", 0.95), **profile)


def test_how_well_budgets_were_kept_is_counted_beyond_the_base() -> None:
    measured, budgets = np.array([21.0, 22.0, 24.5, 23.0]), np.full(4, 24.0)
    kept = budgets_kept(measured, budgets, 20.0)
    assert kept.share == 0.75 and kept.used == pytest.approx((1 + 2 + 4.5 + 3) / 16)
    assert kept.overrun == pytest.approx(np.quantile([0, 0, 0.125, 0], 0.95))
    with pytest.raises(InvalidSettings, match="allows nothing"):
        budgets_kept(measured, np.full(4, 20.0), 20.0)
