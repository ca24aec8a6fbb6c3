"""Reliability: bins against a count one by one and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smatter.errors import InvalidScores
from smatter.scores.reliability import Bins, calibration_error, reliability_rows

announced = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    scores = generator.beta(4, 2, n)
    return scores, generator.random(n) < scores**1.5


@settings(max_examples=60, deadline=None)
@given(announced, st.integers(1, 12))
def test_equal_width_counts_each_score_in_its_bin(rows: list[tuple[float, bool]], n_bins: int) -> None:
    ends = np.linspace(0, 1, n_bins + 1)
    total = 0.0
    for number in range(n_bins):
        inside = [
            (score, event)
            for score, event in rows
            if ends[number] < score <= ends[number + 1] or (number == 0 and score == 0)
        ]
        total += abs(sum(event - score for score, event in inside))
    scores, events = zip(*rows, strict=True)
    assert calibration_error(scores, events, n_bins=n_bins) == pytest.approx(total / len(rows), abs=1e-9)


def test_equal_mass_is_a_split_of_the_sorted_scores() -> None:
    scores, events = drawn(1000, 0)
    order = np.argsort(scores)
    expected = sum(
        abs(events[part].sum() - scores[part].sum()) for part in np.array_split(order, 8)
    ) / len(scores)  # fmt: skip
    assert calibration_error(scores, events, n_bins=8, bins="mass") == pytest.approx(expected)
    assert {row.n for row in reliability_rows(scores, events, n_bins=8)} == {125}


@pytest.mark.parametrize(("bins", "strategy"), [("width", "uniform"), ("mass", "quantile")])
def test_rows_agree_with_scikit_learn(bins: Bins, strategy: str) -> None:
    sklearn = pytest.importorskip("sklearn.calibration")
    scores, events = drawn(1000, 1)
    rates, means = sklearn.calibration_curve(events, scores, n_bins=10, strategy=strategy)
    rows = reliability_rows(scores, events, n_bins=10, bins=bins)
    assert [row.rate for row in rows] == pytest.approx(rates.tolist())
    assert [row.score for row in rows] == pytest.approx(means.tolist())


@pytest.mark.parametrize("bins", ["width", "mass"])
def test_the_order_of_equal_scores_does_not_matter(bins: Bins) -> None:
    generator = np.random.default_rng(2)
    scores, events = np.round(generator.random(200), 1), generator.random(200) < 0.5
    order = generator.permutation(200)
    for first, second in zip(
        reliability_rows(scores, events, n_bins=7, bins=bins),
        reliability_rows(scores[order], events[order], n_bins=7, bins=bins),
        strict=True,
    ):
        assert (first.n, first.low, first.high, first.rate) == (second.n, second.low, second.high, second.rate)
        assert first.score == pytest.approx(second.score)


def test_bins_of_equal_mass_follow_a_monotone_transform() -> None:
    """Of an uncertainty that is no chance, such as an entropy, the rates do not depend on its unit."""
    scores, events = drawn(300, 3)
    plain, bent = (reliability_rows(each, events, n_bins=6) for each in (scores, -1 / scores))
    assert [(row.n, row.rate) for row in plain] == [(row.n, row.rate) for row in bent]


def test_rows_hold_every_score_once_between_their_ends() -> None:
    scores, events = drawn(500, 4)
    for bins in ("width", "mass"):
        rows = reliability_rows(scores, events, bins=bins)
        assert sum(row.n for row in rows) == 500
        assert all(row.low <= row.score <= row.high for row in rows)
        assert sum(row.n * row.rate for row in rows) == pytest.approx(events.sum())


def test_a_calibrated_score_has_an_error_of_noise_only() -> None:
    generator = np.random.default_rng(5)
    scores = generator.random(100_000)
    assert calibration_error(scores, generator.random(100_000) < scores) < 0.01
    assert calibration_error(scores, generator.random(100_000) < scores / 2) == pytest.approx(0.25, abs=0.01)


def test_what_is_no_chance_is_refused() -> None:
    with pytest.raises(InvalidScores, match="equal mass"):
        calibration_error([1.5], [True])
    with pytest.raises(InvalidScores, match="at least 1"):
        reliability_rows([0.5], [True], n_bins=0)
    with pytest.raises(InvalidScores, match="true or false"):
        reliability_rows([0.5], [2.0])
