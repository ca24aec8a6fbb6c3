"""Conformal limits and sets: exact coverage, closed forms, and agreement with MAPIE and crepes where installed."""

import numpy as np
import pytest
from scipy.stats import beta

from smatter.algebra.conformal import conformal_rank
from smatter.certify.conformal import (
    ConformalLimit,
    adaptive_scores,
    conformal_limit,
    conformal_limit_of_tasks,
    coverage_by_group,
    excess_loss_limit,
    least_ambiguous_scores,
    limits_by_group,
    prediction_sets,
    scores_for_coverage,
    true_class_scores,
)
from smatter.errors import InvalidCertificate

RULES = {"lac": least_ambiguous_scores, "aps": adaptive_scores}


def draw_queries(generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions of five classes that are too sure, and true classes."""
    logits = generator.normal(size=(n, 5))
    labels = (logits + generator.gumbel(size=(n, 5))).argmax(axis=1)
    sure = np.exp(3 * logits)
    return sure / sure.sum(axis=1, keepdims=True), labels


def test_a_limit_of_tasks_with_one_query_each_is_the_usual_one() -> None:
    generator = np.random.default_rng(0)
    for n in (1, 18, 19, 20, 57):
        scores = generator.random(n).round(1)  # with ties
        for delta in (0.05, 0.1, 0.3):
            assert conformal_limit_of_tasks(scores[:, None], delta) == conformal_limit(scores, delta)


def test_queries_of_new_tasks_are_covered_though_those_of_a_task_are_alike() -> None:
    """Tasks differ much and have from 1 to 30 queries; as if all queries were independent, coverage is too low."""
    generator, found, naive = np.random.default_rng(0), [], []

    def draw(n: int) -> list[np.ndarray]:
        sizes = generator.choice([1, 30], size=n)
        return [generator.exponential() * (size == 1) + 0.1 * generator.random(size) for size in sizes]

    for _ in range(400):
        known, new = draw(30), draw(20)
        limit = conformal_limit_of_tasks(known, 0.2).value
        found.append(np.mean([(each <= limit).mean() for each in new]))
        naive.append(np.mean([(each <= conformal_limit(np.concatenate(known), 0.2).value).mean() for each in new]))
    error = 3 * np.std(found) / 20
    assert 0.8 - error <= np.mean(found) <= 0.8 + 2 / 31 + error and np.mean(naive) < 0.7


def test_a_task_without_queries_and_a_score_that_is_no_number_are_refused() -> None:
    assert conformal_limit_of_tasks([], 0.1).vacuous
    for scores in ([[0.1], []], [[0.1], [np.nan]], [[[0.1]]]):
        with pytest.raises(InvalidCertificate, match="a row of numbers for each task"):
            conformal_limit_of_tasks(scores, 0.1)


@pytest.mark.parametrize("rule", RULES)
def test_sets_cover_as_promised(rule: str) -> None:
    generator, covered, sizes = np.random.default_rng(0), [], []
    for _ in range(150):
        probabilities, labels = draw_queries(generator, 100 + 50)
        scores = RULES[rule](probabilities)
        limit = conformal_limit(true_class_scores(scores[:100], labels[:100]), 0.1)
        sets = prediction_sets(scores[100:], limit)
        covered.append(sets[np.arange(50), labels[100:]].mean())
        sizes.append(sets.sum(axis=1).mean())
    error = 3 * np.std(covered) / np.sqrt(150)
    assert 0.9 - error <= np.mean(covered) <= 0.91 + 0.02 + error
    assert np.mean(sizes) < 4.5


def test_random_parts_make_adaptive_sets_exact_and_smaller() -> None:
    generator = np.random.default_rng(0)
    probabilities, labels = draw_queries(generator, 40_000)
    uniforms = generator.random(40_000)
    random, whole = adaptive_scores(probabilities, uniforms), adaptive_scores(probabilities)
    assert (random <= whole + 1e-12).all()
    half = slice(20_000), slice(20_000, None)
    for scores in (random, whole):
        limit = conformal_limit(true_class_scores(scores[half[0]], labels[half[0]]), 0.2)
        within = scores[half[1]] <= limit.value
        assert within[np.arange(20_000), labels[half[1]]].mean() == pytest.approx(0.8, abs=0.015)


def test_adaptive_scores_by_hand() -> None:
    assert adaptive_scores([0.2, 0.5, 0.3]) == pytest.approx([1.0, 0.5, 0.8])
    assert adaptive_scores([[0.2, 0.5, 0.3]], [0.0]) == pytest.approx(np.array([[0.8, 0.0, 0.5]]))


def test_no_set_is_empty_and_too_few_scores_give_all_classes() -> None:
    scores = least_ambiguous_scores([[0.5, 0.3, 0.2]])
    assert prediction_sets(scores, ConformalLimit(0.1, 0.1, 50)).tolist() == [[True, False, False]]
    assert prediction_sets(scores, conformal_limit([0.2, 0.3], 0.1)).all()


def test_groups_with_limits_of_their_own_are_covered_one_by_one() -> None:
    generator, together, apart = np.random.default_rng(0), [], []
    for _ in range(200):
        groups = np.repeat(["easy", "hard"], 100)
        scores = generator.random(200) * np.where(groups == "hard", 3.0, 1.0)
        new = generator.random(200) * np.where(groups == "hard", 3.0, 1.0)
        one, each = conformal_limit(scores, 0.1).value, limits_by_group(scores, groups.tolist(), 0.1)
        together.append(coverage_by_group(new <= one, groups.tolist())["hard"])
        apart.append(coverage_by_group(new <= [each[group].value for group in groups], groups.tolist()))
    assert np.mean(together) < 0.85
    assert min(np.mean([row[group] for row in apart]) for group in ("easy", "hard")) > 0.89
    with pytest.raises(InvalidCertificate, match="group of each"):
        limits_by_group([0.1, 0.2], ["a"], 0.1)


def test_the_next_excess_loss_is_below_its_limit() -> None:
    generator, kept, scaled = np.random.default_rng(0), [], []
    for _ in range(1500):
        scales = generator.random(60) + 0.1
        excess = scales * generator.normal(size=60)
        kept.append(excess[-1] <= excess_loss_limit(excess[:-1], 0.1).value)
        scaled.append(excess[-1] <= scales[-1] * excess_loss_limit(excess[:-1], 0.1, scales[:-1]).value)
    assert min(np.mean(kept), np.mean(scaled)) > 0.9 - 0.025 and max(np.mean(kept), np.mean(scaled)) < 0.94
    with pytest.raises(InvalidCertificate, match="above 0"):
        excess_loss_limit([0.1, 0.2], 0.1, [0.0, 1.0])


def test_the_size_of_a_calibration_set_meets_its_wish() -> None:
    n = scores_for_coverage(0.1, 0.02, 0.95)
    shortfalls = [beta.cdf(0.88, conformal_rank(m, 0.1), m + 1 - conformal_rank(m, 0.1)) for m in range(n - 1, n + 500)]
    assert shortfalls[0] > 0.05 >= max(shortfalls[1:])
    generator = np.random.default_rng(0)
    coverage = [conformal_limit(generator.random(n), 0.1).value for _ in range(800)]
    assert np.mean(np.array(coverage) < 0.88) == pytest.approx(0.05, abs=0.025)
    assert scores_for_coverage(0.1, 0.05, 0.95) < n < scores_for_coverage(0.1, 0.01, 0.95)
    with pytest.raises(InvalidCertificate, match="slack"):
        scores_for_coverage(0.1, 0.0, 0.95)


class Given:
    """An estimator that has been asked already: its inputs are its predictions."""

    classes_ = np.arange(5)

    def fit(self, inputs, labels):
        return self

    def predict_proba(self, inputs):
        return inputs

    def predict(self, inputs):
        return inputs.argmax(axis=1)

    def __sklearn_is_fitted__(self) -> bool:
        return True


@pytest.mark.parametrize("rule", ["lac", "aps"])
@pytest.mark.filterwarnings("ignore")
def test_sets_are_mapies(rule: str) -> None:
    classification = pytest.importorskip("mapie.classification")
    from sklearn.base import BaseEstimator, ClassifierMixin

    estimator = type("Estimator", (Given, ClassifierMixin, BaseEstimator), {})()
    probabilities, labels = draw_queries(np.random.default_rng(0), 400)
    known, new = slice(200), slice(200, None)
    theirs = classification.SplitConformalClassifier(
        estimator, confidence_level=0.9, conformity_score=rule, prefit=True, random_state=7
    ).conformalize(probabilities[known], labels[known])
    parameters = {"include_last_label": "randomized"} if rule == "aps" else {}
    sets = theirs.predict_set(probabilities[new], conformity_score_params=parameters)[1][:, :, 0]
    # MAPIE draws the part that is left out, once for calibration and once for prediction, from the same seed.
    parts = 1 - np.random.RandomState(7).uniform(size=200)
    scores = [
        adaptive_scores(probabilities[rows], parts) if rule == "aps" else least_ambiguous_scores(probabilities[rows])
        for rows in (known, new)
    ]
    limit = conformal_limit(true_class_scores(scores[0], labels[known]), 0.1)
    ours = prediction_sets(scores[1], limit)
    filled = sets.any(axis=1)  # theirs may be empty, ours never is
    assert filled.mean() > 0.5 and (ours[filled] == sets[filled]).all()


def test_sets_and_limits_are_those_of_crepes() -> None:
    crepes = pytest.importorskip("crepes")
    probabilities, labels = draw_queries(np.random.default_rng(0), 400)
    scores = least_ambiguous_scores(probabilities)
    known = true_class_scores(scores[:200], labels[:200])
    classifier = crepes.ConformalClassifier().fit(known)
    theirs = classifier.predict_set(scores[200:], confidence=0.9, smoothing=False).astype(bool)
    ours = scores[200:] <= conformal_limit(known, 0.1).value
    assert (ours == theirs).all()
    residuals = np.random.default_rng(1).normal(size=150)
    interval = crepes.ConformalRegressor().fit(residuals).predict_int(np.zeros(1), confidence=0.9)
    assert interval[0, 1] == pytest.approx(conformal_limit(np.abs(residuals), 0.1).value)
