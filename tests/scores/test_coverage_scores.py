"""Risk and coverage: agreement with all orders of equal scores, one by one; monotone transforms change nothing."""

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smatter.errors import InvalidScores
from smatter.scores.coverage import (
    area_under_risk_coverage,
    kept_shares,
    risk_coverage,
    risk_with_fallback,
    selective_risk_at,
    share_of_gain,
)

tied_tasks = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=6)
many_tasks = st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 1)), min_size=2, max_size=30)


def orders(scores: list[int]) -> list[tuple[int, ...]]:
    """All orders of the rows in which scores never fall."""
    found = permutations(range(len(scores)))
    return [order for order in found if all(scores[a] <= scores[b] for a, b in pairwise(order))]


def columns(rows: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [score for score, _ in rows], [loss for _, loss in rows]


@settings(max_examples=60, deadline=None)
@given(tied_tasks)
def test_the_curve_is_the_mean_over_all_orders_of_equal_scores(rows: list[tuple[int, int]]) -> None:
    scores, losses = columns(rows)
    curves = [np.cumsum(np.array(losses)[list(order)]) / np.arange(1, len(rows) + 1) for order in orders(scores)]
    expected = np.mean(curves, axis=0)
    found = risk_coverage(scores, losses)
    assert found.risk.tolist() == pytest.approx(expected.tolist())
    assert found.coverage.tolist() == pytest.approx([(each + 1) / len(rows) for each in range(len(rows))])
    assert area_under_risk_coverage(scores, losses).risk == pytest.approx(expected.mean())


@settings(max_examples=60, deadline=None)
@given(tied_tasks, st.floats(0.05, 1))
def test_a_task_is_kept_as_often_as_over_all_orders(rows: list[tuple[int, int]], coverage: float) -> None:
    scores, losses = columns(rows)
    counted = np.zeros(len(rows))
    found = orders(scores)
    for order in found:
        counted[list(order)] += np.clip(coverage * len(rows) - np.arange(len(rows)), 0, 1)
    kept = kept_shares(scores, coverage)
    assert kept.tolist() == pytest.approx((counted / len(found)).tolist(), abs=1e-9)
    assert kept.sum() == pytest.approx(coverage * len(rows))
    assert selective_risk_at(scores, losses, coverage).risk == pytest.approx(kept @ losses / kept.sum(), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(many_tasks, st.integers(1, 30))
def test_the_risk_at_a_coverage_is_on_the_curve(rows: list[tuple[float, float]], n_kept: int) -> None:
    scores, losses = columns(rows)
    n_kept = min(n_kept, len(rows))
    found = selective_risk_at(scores, losses, n_kept / len(rows)).risk
    assert found == pytest.approx(risk_coverage(scores, losses).risk[n_kept - 1], abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(many_tasks, st.floats(0.05, 1), st.randoms())
def test_transforms_and_order_change_nothing_and_the_oracle_is_best(rows, coverage: float, random) -> None:
    scores, losses = columns([(round(score, 1), loss) for score, loss in rows])
    order = list(range(len(rows)))
    random.shuffle(order)
    bent = [math.exp(scores[each]) for each in order]
    for scored in (
        lambda *pair: selective_risk_at(*pair, coverage),
        area_under_risk_coverage,
    ):
        found, again = scored(scores, losses), scored(bent, [losses[each] for each in order])
        assert found.risk == pytest.approx(again.risk, abs=1e-9)
        assert found.oracle <= min(found.risk, found.random) + 1e-9
        assert found.random == pytest.approx(np.mean(losses))


def test_an_oracle_has_all_and_a_constant_nothing() -> None:
    losses = np.random.default_rng(0).random(50)
    for scored in (area_under_risk_coverage(losses, losses), selective_risk_at(losses, losses, 0.8)):
        assert scored.share_of_oracle == pytest.approx(1)
    for scored in (area_under_risk_coverage(np.ones(50), losses), selective_risk_at(np.ones(50), losses, 0.8)):
        assert scored.share_of_oracle == pytest.approx(0, abs=1e-9)
    assert area_under_risk_coverage(-losses, losses).share_of_oracle < -0.5
    assert math.isnan(selective_risk_at(losses, np.full(50, 0.1), 0.8).share_of_oracle)


def test_the_area_of_zero_one_losses_has_a_closed_form() -> None:
    """With a share e of errors the oracle's area approaches e + (1 - e) log(1 - e)."""
    losses = np.arange(100_000) >= 70_000
    found = area_under_risk_coverage(losses, losses)
    assert found.oracle == pytest.approx(0.3 + 0.7 * math.log(0.7), abs=1e-4)
    assert found.random == pytest.approx(0.3)


def test_unsure_tasks_get_the_fallback() -> None:
    scores, losses, fallback = [0.1, 0.9, 0.5, 0.5], [0.2, 0.8, 0.4, 0.6], [1.0, 0.3, 0.0, 0.1]
    assert risk_with_fallback(scores, losses, fallback, 1) == pytest.approx(0.5)
    assert risk_with_fallback(scores, losses, fallback, 0.75) == pytest.approx((0.2 + 0.3 + 0.4 + 0.6) / 4)
    expected = (0.2 + 0.3 + (0.4 + 0.1 + 0.0 + 0.6) / 2) / 4  # one of the two equal ones, either way
    assert risk_with_fallback(scores, losses, fallback, 0.5) == pytest.approx(expected)


def test_gains_are_had_where_they_are_spent() -> None:
    gains = np.array([4.0, 1.0, 3.0, 2.0])
    assert share_of_gain(gains, gains, 0.5) == pytest.approx(0.7)
    assert share_of_gain(-gains, gains, 0.5) == pytest.approx(0.3)
    assert share_of_gain(np.zeros(4), gains, 0.25) == pytest.approx(0.25)
    assert math.isnan(share_of_gain(gains, -gains, 0.5))


def test_the_share_of_gain_is_what_escalation_gains() -> None:
    generator = np.random.default_rng(1)
    scores, losses = np.round(generator.random(80), 1), generator.random(80)
    more = losses - generator.random(80) / 5
    gain = losses.mean() - risk_with_fallback(scores, losses, more, 0.6)
    assert gain / (losses - more).mean() == pytest.approx(share_of_gain(scores, losses - more, 0.4))


def test_bad_shares_and_columns_are_refused() -> None:
    for coverage in (0.0, 1.1, math.nan):
        with pytest.raises(InvalidScores, match="coverage"):
            kept_shares([1.0], coverage)
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidScores, match="between 0 and 1"):
            share_of_gain([1.0], [1.0], share)
    with pytest.raises(InvalidScores, match="same tasks"):
        risk_coverage([1.0], [1.0, 2.0])
    with pytest.raises(InvalidScores, match="fallback"):
        risk_with_fallback([1.0], [1.0], [1.0, 2.0], 0.5)
    with pytest.raises(InvalidScores, match="row 0 is nan"):
        selective_risk_at([math.nan], [1.0], 0.5)
