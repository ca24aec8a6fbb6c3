"""Fitted heads against independent answers, and what they must not depend on."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from smatter.backbones import heads as fitted_heads
from smatter.backbones.heads import (
    HEADS,
    RIDGES,
    SCALE,
    class_sums,
    held_out_accuracy,
    held_out_scores,
    logistic_head,
    prototype_logits,
    ridge_head,
)

LABELS = torch.tensor([0] * 5 + [1] * 2 + [2] * 7 + [3])
"""Classes of different sizes, one of a single example."""


def make(spread: float = 0.7, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(4, 6, generator=generator)
    return (means[LABELS] + spread * torch.randn(len(LABELS), 6, generator=generator) + 1).double()


def unit(features: Tensor) -> Tensor:
    return features / features.norm(dim=1, keepdim=True)


def balanced() -> np.ndarray:
    return (1 / (4 * torch.bincount(LABELS)[LABELS].double())).numpy()


def variance(features: Tensor) -> float:
    """Mean squared distance from the mean, where every class counts alike."""
    rows, shares = unit(features).numpy(), balanced()
    return float(shares @ ((rows - shares @ rows) ** 2).sum(axis=1))


def sklearn_ridge(features: Tensor, kept: np.ndarray, ridge: float) -> Ridge:
    targets = np.eye(4)[LABELS.numpy()]
    fitted = Ridge(alpha=ridge * variance(features))
    return fitted.fit(unit(features).numpy()[kept], targets[kept], sample_weight=balanced()[kept])


@pytest.mark.parametrize("ridge", [1.0, 0.03])
def test_ridge_agrees_with_scikit_learn(monkeypatch, ridge: float) -> None:
    monkeypatch.setattr(fitted_heads, "RIDGES", (ridge,))
    features = make()
    expected = sklearn_ridge(features, np.arange(len(LABELS)), ridge).predict(unit(features).numpy())
    logits = ridge_head(features, LABELS, 4).logits(features)
    np.testing.assert_allclose(logits.numpy(), SCALE * expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_the_ridge_is_the_one_that_leaving_out_prefers(monkeypatch, seed: int) -> None:
    features = make(spread=(0.2, 0.7, 1.5, 3.0)[seed], seed=seed)
    rows = np.arange(len(LABELS))
    errors = {}
    for ridge in RIDGES:
        errors[ridge] = 0.0
        for row in rows[:-1]:  # without the only one of its class
            fitted = sklearn_ridge(features, rows[rows != row], ridge)
            missed = fitted.predict(unit(features).numpy()[[row]])[0] - np.eye(4)[LABELS[row]]
            errors[ridge] += balanced()[row] * (missed**2).sum()
    best = min(RIDGES, key=errors.__getitem__)
    chosen = ridge_head(features, LABELS, 4)
    monkeypatch.setattr(fitted_heads, "RIDGES", (best,))
    assert torch.equal(chosen.weight, ridge_head(features, LABELS, 4).weight)


def test_another_ridge_is_chosen_for_other_features() -> None:
    """Else the test above would prove little."""
    norms = [float(ridge_head(make(spread), LABELS, 4).weight.norm()) for spread in (0.1, 5.0)]
    assert norms[0] > 3 * norms[1]


@pytest.mark.parametrize("ridge", [0.1, 0.001])
def test_logistic_agrees_with_scikit_learn(ridge: float) -> None:
    features = make()
    rows, shares = unit(features).numpy(), balanced()
    scaled = (rows - shares @ rows) / variance(features) ** 0.5
    theirs = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-10, max_iter=10_000)
    theirs.fit(scaled, LABELS.numpy(), sample_weight=shares)
    ours = logistic_head(features, LABELS, 4, ridge).logits(features).softmax(dim=1)
    np.testing.assert_allclose(ours.numpy(), theirs.predict_proba(scaled), atol=1e-6)


def test_the_prototype_head_is_the_prototypes() -> None:
    features = make()
    expected = prototype_logits(features, class_sums(features, LABELS, 4))
    torch.testing.assert_close(HEADS["prototype"](features, LABELS, 4).logits(features), expected)


@pytest.mark.parametrize("name", HEADS)
def test_order_of_examples_and_classes_and_lengths_of_features_do_not_matter(name: str) -> None:
    features, fit = make(), HEADS[name]
    queries = make(seed=1)
    expected = fit(features, LABELS, 4).logits(queries)
    order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(fit(features[order], LABELS[order], 4).logits(queries), expected, rtol=1e-5, atol=1e-5)
    renamed = torch.tensor([2, 3, 1, 0])
    found = fit(features, renamed[LABELS], 4).logits(queries)[:, renamed]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    lengths = torch.linspace(0.1, 5, len(LABELS), dtype=torch.float64)[:, None]
    torch.testing.assert_close(fit(features * lengths, LABELS, 4).logits(queries), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_classes_are_recognised_from_one_or_unequal_shots(name: str) -> None:
    centres = torch.eye(4, 6)
    generator = torch.Generator().manual_seed(0)
    queries = centres.repeat(5, 1) + 0.1 * torch.randn(20, 6, generator=generator)
    for labels in (torch.arange(4), LABELS):
        head = HEADS[name](centres[labels] + 0.1 * torch.randn(len(labels), 6, generator=generator), labels, 4)
        assert head.weight.dtype == torch.float32
        assert head.logits(queries).argmax(dim=1).tolist() == list(range(4)) * 5


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_features_that_are_all_alike_prefer_no_class(name: str, value: float) -> None:
    alike = torch.full((15, 6), value)
    probabilities = HEADS[name](alike, LABELS, 4).logits(alike).softmax(dim=1)
    torch.testing.assert_close(probabilities, torch.full((15, 4), 0.25))


@pytest.mark.parametrize("name", HEADS)
def test_held_out_accuracy_is_chance_for_noise_and_full_for_clear_classes(name: str) -> None:
    labels = torch.arange(4).repeat(12)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(48, 64, generator=generator)
    assert held_out_accuracy(held_out_scores(HEADS[name], noise, labels, 4), labels) < 0.5
    clear = 20 * torch.eye(4, 64)[labels] + noise
    assert held_out_accuracy(held_out_scores(HEADS[name], clear, labels, 4), labels) == 1.0


def test_the_only_example_of_a_class_is_not_held_out() -> None:
    seen = []

    def fit(features: Tensor, labels: Tensor, n_classes: int) -> fitted_heads.Head:
        seen.append(labels.tolist())
        return HEADS["prototype"](features, labels, n_classes)

    held_out_scores(fit, make(), LABELS, 4)
    assert len(seen) == 7 and all(set(labels) == {0, 1, 2, 3} for labels in seen)
    assert sum(15 - len(labels) for labels in seen) == 14
    assert np.isnan(held_out_accuracy(held_out_scores(fit, torch.eye(4), torch.arange(4), 4), torch.arange(4)))
