"""Calibration: agreement with torch and with definitions; a temperature that is known is found again."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from smatter.errors import InvalidScores
from smatter.scores.calibration import (
    COLDEST,
    HOTTEST,
    answers_of,
    calibration_by_list,
    calibration_of,
    fitted_temperature,
    pooled_answers,
)


def tasks_of(n_tasks: int, seed: int, temperature: float = 1.0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Logits of tasks with two to six classes, and labels drawn from them at a temperature."""
    generator = np.random.default_rng(seed)
    logits, labels = [], []
    for _ in range(n_tasks):
        logits.append(generator.normal(0, 2, (40, generator.integers(2, 7))))
        chances = softmax(logits[-1] / temperature, axis=1)
        labels.append(np.array([generator.choice(len(row), p=row) for row in chances]))
    return logits, labels


def test_losses_agree_with_torch_and_their_definitions() -> None:
    (logits,), (labels,) = tasks_of(1, 0)
    chances = softmax(logits, axis=1)
    found = calibration_of(answers_of(chances, labels))
    expected = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(labels))
    assert found.nll == pytest.approx(float(expected))
    assert found.brier == pytest.approx(np.square(chances - np.eye(chances.shape[1])[labels]).sum(axis=1).mean())
    assert found.accuracy == np.mean(labels == logits.argmax(axis=1))
    assert found.confidence == pytest.approx(chances.max(axis=1).mean())


def test_pools_count_queries_alike() -> None:
    logits, labels = tasks_of(5, 1)
    answers = [answers_of(softmax(each, axis=1), own) for each, own in zip(logits, labels, strict=True)]
    pooled = pooled_answers(answers)
    expected = np.concatenate(
        [-log_softmax(each, axis=1)[np.arange(40), own] for each, own in zip(logits, labels, strict=True)]
    )
    assert pooled.nll.tolist() == pytest.approx(expected.tolist())
    assert calibration_of(pooled).n_queries == 200


def test_lists_are_pooled_apart_so_that_errors_do_not_cancel() -> None:
    """Always 75 % sure, right in 80 % of the easy and 70 % of the hard: together that looks calibrated."""
    chances = np.tile([0.75, 0.25], (20, 1))
    answers = [answers_of(chances, (np.arange(20) >= n_right).astype(int)) for n_right in (15, 13, 17, 15)]
    found = calibration_by_list(answers, ["easy", "hard", "easy", "hard"])
    assert found["easy"].n_queries == found["hard"].n_queries == 40
    assert found["easy"].accuracy == pytest.approx(0.8) and found["hard"].accuracy == pytest.approx(0.7)
    for each in found.values():
        assert each.ece == pytest.approx(0.05) and each.ece_mass == pytest.approx(0.05)
    assert calibration_of(pooled_answers(answers)).ece == pytest.approx(0, abs=1e-12)


def test_a_class_that_was_ruled_out_costs_infinitely() -> None:
    found = calibration_of(answers_of([[1.0, 0.0]], [1]))
    assert found.nll == math.inf and found.brier == 2 and found.ece == 1


def test_the_temperature_is_the_least_of_the_loss() -> None:
    logits, labels = tasks_of(30, 2, temperature=1.7)

    def loss(temperature: float) -> float:
        return float(
            np.mean(
                [
                    -log_softmax(each / temperature, axis=1)[np.arange(40), own].mean()
                    for each, own in zip(logits, labels, strict=True)
                ]
            )
        )

    expected = minimize_scalar(loss, bounds=(0.1, 10), method="bounded", options={"xatol": 1e-8}).x
    found = fitted_temperature(logits, labels)
    assert found == pytest.approx(expected, rel=1e-5)
    assert found == pytest.approx(1.7, rel=0.15)


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_the_temperature_scales_with_the_logits(factor: float) -> None:
    logits, labels = tasks_of(10, 3)
    plain = fitted_temperature(logits, labels)
    assert fitted_temperature([factor * each + 1000 for each in logits], labels) == pytest.approx(factor * plain)


def test_logarithms_of_chances_serve_as_logits() -> None:
    logits, labels = tasks_of(10, 4)
    assert fitted_temperature([log_softmax(each, axis=1) for each in logits], labels) == pytest.approx(
        fitted_temperature(logits, labels)
    )


def test_the_temperature_mends_calibration() -> None:
    logits, labels = tasks_of(200, 5, temperature=3.0)
    temperature = fitted_temperature(logits, labels)

    def calibration(divisor: float) -> float:
        answers = [answers_of(softmax(each / divisor, axis=1), own) for each, own in zip(logits, labels, strict=True)]
        return calibration_of(pooled_answers(answers)).ece

    assert calibration(1.0) > 0.2
    assert calibration(temperature) < 0.02


def test_answers_that_are_all_right_or_worse_than_chance_end_at_the_range() -> None:
    logits = [np.array([[2.0, 0.0], [0.0, 1.0]])]
    assert fitted_temperature(logits, [np.array([0, 1])]) == COLDEST
    assert fitted_temperature(logits, [np.array([1, 0])]) == HOTTEST


@pytest.mark.parametrize(
    ("probabilities", "labels", "words"),
    [
        ([[0.5, 0.4]], [0], "softmax"),
        ([[1.5, -0.5]], [0], "softmax"),
        ([[0.5, 0.5]], [2], "count them from 0"),
        ([[0.5, 0.5]], [-1], "count them from 0"),
        ([[0.5, 0.5]], [0.5], "count them from 0"),
        ([[0.5, 0.5]], [0, 1], "a label to each row"),
        ([0.5, 0.5], [0, 1], "a label to each row"),
        ([[math.nan, 0.5]], [0], "NaN"),
    ],
)
def test_what_is_no_prediction_is_refused(probabilities, labels, words: str) -> None:
    with pytest.raises(InvalidScores, match=words):
        answers_of(probabilities, labels)


def test_lists_and_labels_that_do_not_fit_are_refused() -> None:
    answers = [answers_of([[0.5, 0.5]], [0])]
    with pytest.raises(InvalidScores, match="list of each"):
        calibration_by_list(answers, ["a", "b"])
    with pytest.raises(InvalidScores, match="same tasks"):
        fitted_temperature([np.zeros((1, 2))], [])
    with pytest.raises(InvalidScores, match="at least one"):
        pooled_answers([])
