"""Ranking: agreement with scipy and with pairs counted one by one; monotone transforms change nothing."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from smatter.errors import InvalidScores
from smatter.scores.ranking import auroc, average_ranks, partial_rank_correlation

few_values = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=25)


def correlated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores and outcomes that share a covariate and lists of different level, and the covariate and the lists."""
    generator = np.random.default_rng(seed)
    lists = generator.integers(0, 4, n)
    hardness = generator.normal(size=n)
    scores = np.round(hardness + lists + generator.normal(size=n), 1)
    outcomes = 2 * hardness - 3 * lists + generator.normal(size=n) + 0.5 * scores
    return scores, outcomes, hardness, lists


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_ranks_agree_with_scipy(values: list[int]) -> None:
    assert average_ranks(values).tolist() == stats.rankdata(values).tolist()


@settings(max_examples=60, deadline=None)
@given(few_values)
def test_auroc_counts_pairs(rows: list[tuple[int, bool]]) -> None:
    scores, events = [each for each, _ in rows], [each for _, each in rows]
    pairs = [
        0.5 * (score > other) + 0.5 * (score >= other)
        for score, event in rows
        for other, without in rows
        if event and not without
    ]
    found = auroc(scores, events)
    assert found == pytest.approx(np.mean(pairs)) if pairs else math.isnan(found)


def test_auroc_agrees_with_mann_and_whitney() -> None:
    generator = np.random.default_rng(0)
    scores, events = np.round(generator.normal(size=300), 1), generator.random(300) < 0.3
    expected = stats.mannwhitneyu(scores[events], scores[~events]).statistic / (events.sum() * (~events).sum())
    assert auroc(scores, events) == pytest.approx(expected)
    assert auroc(np.exp(scores), events) == pytest.approx(expected)
    assert auroc(-scores, events) == pytest.approx(1 - expected)


def test_without_anything_else_it_is_spearmans() -> None:
    scores, outcomes, _, _ = correlated(200, 1)
    assert partial_rank_correlation(scores, outcomes) == pytest.approx(stats.spearmanr(scores, outcomes).statistic)


def test_one_covariate_has_a_closed_form() -> None:
    scores, outcomes, hardness, _ = correlated(200, 2)
    both, first, second = (
        stats.spearmanr(*pair).statistic for pair in ((scores, outcomes), (scores, hardness), (outcomes, hardness))
    )
    expected = (both - first * second) / math.sqrt((1 - first**2) * (1 - second**2))
    assert partial_rank_correlation(scores, outcomes, covariates=[hardness]) == pytest.approx(expected)


def test_lists_take_their_own_means() -> None:
    scores, outcomes, _, lists = correlated(200, 3)
    left = []
    for values in (scores, outcomes):
        ranks = stats.rankdata(values)
        means = np.array([ranks[lists == each].mean() for each in range(4)])
        left.append(ranks - means[lists])
    expected = stats.pearsonr(*left).statistic
    names = [f"list {each}" for each in lists]
    assert partial_rank_correlation(scores, outcomes, memberships=[names]) == pytest.approx(expected)


def test_monotone_transforms_and_order_change_nothing() -> None:
    scores, outcomes, hardness, lists = correlated(150, 4)
    expected = partial_rank_correlation(scores, outcomes, covariates=[hardness], memberships=[lists, lists % 2])
    order = np.random.default_rng(0).permutation(150)
    found = partial_rank_correlation(
        np.exp(scores)[order],
        (outcomes**3)[order],
        covariates=[np.arctan(hardness)[order]],
        memberships=[lists[order], lists[order] % 2],
    )
    assert found == pytest.approx(expected)


def test_a_score_that_knows_only_the_covariate_knows_nothing() -> None:
    generator = np.random.default_rng(5)
    hardness = generator.normal(size=4000)
    scores, outcomes = (hardness + generator.normal(size=4000) for _ in range(2))
    assert partial_rank_correlation(scores, outcomes) > 0.4
    # Ranks of a sum are not linear in the ranks of its parts: a little of the covariate is left.
    assert abs(partial_rank_correlation(scores, outcomes, covariates=[hardness])) < 4 / math.sqrt(4000)


def test_where_nothing_remains_there_is_no_correlation() -> None:
    scores, outcomes, hardness, _ = correlated(50, 6)
    assert math.isnan(partial_rank_correlation(scores, outcomes, covariates=[scores]))
    assert math.isnan(partial_rank_correlation(scores, outcomes, covariates=[hardness], memberships=[range(50)]))
    assert math.isnan(partial_rank_correlation(np.ones(50), outcomes))


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(InvalidScores, match="true or false"):
        auroc([1.0, 2.0], [0.3, 1.0])
    with pytest.raises(InvalidScores, match="same tasks"):
        auroc([1.0, 2.0], [True])
    with pytest.raises(InvalidScores, match="same tasks"):
        partial_rank_correlation([1.0, 2.0], [1.0, 2.0], covariates=[[1.0]])
    with pytest.raises(InvalidScores, match="group of each"):
        partial_rank_correlation([1.0, 2.0], [1.0, 2.0], memberships=[["a"]])
