"""The comparison of linear models across domains, without its data."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from linear_transfer import clustered_mean, draw_resample, fit_sources
from linear_transfer_chart import LOOKS, draw
from linear_transfer_data import Domain, edges_and_colours
from linear_transfer_methods import CLASSIFICATION, REGRESSION, Transfer, l1_path

pytestmark = pytest.mark.filterwarnings("ignore")


def make_domains(is_classification: bool) -> dict[str, Domain]:
    generator = np.random.default_rng(0)
    shared = generator.normal(size=(4, 3 if is_classification else 1))
    domains = {}
    for name in ("first", "second", "third"):
        features = generator.normal(size=(90, 4))
        outputs = features @ (shared + 0.2 * generator.normal(size=shared.shape)) + generator.gumbel(size=(90, 1))
        targets = outputs.argmax(axis=1) if is_classification else outputs[:, 0]
        domains[name] = Domain(features, targets, np.arange(90) < 40)
    return domains


@pytest.mark.parametrize("is_classification", [False, True])
def test_resamples_are_repeatable_and_keep_test_examples_apart(is_classification) -> None:
    domain = make_domains(is_classification)["first"]
    one, same, other = (draw_resample(domain, seed, (6, 15), is_classification) for seed in ((0, 1), (0, 1), (0, 2)))
    assert all(np.array_equal(one.support[size], same.support[size]) for size in (6, 15))
    assert not np.array_equal(one.test, other.test)
    for size, support in one.support.items():
        assert len(set(support.tolist())) == size
        assert not set(support.tolist()) & set(one.test.tolist())
        assert not domain.for_sources[support].any() and not domain.for_sources[one.test].any()
        if is_classification:
            assert np.bincount(domain.targets[support], minlength=3).min() >= 2


@pytest.mark.parametrize("is_classification", [False, True])
def test_every_method_predicts(is_classification) -> None:
    domains = make_domains(is_classification)
    sources = fit_sources(domains, "third", is_classification)
    assert np.allclose(np.concatenate(sources.features).mean(axis=0), 0)
    domain = domains["third"]
    resample = draw_resample(domain, (0, 0), (6,), is_classification)
    features, support = sources.scaled(domain.features), resample.support[6]
    data = Transfer(
        features[support], domain.targets[support], sources.models, sources.features, sources.targets, sources.pooled
    )
    for name, method in (CLASSIFICATION if is_classification else REGRESSION).items():
        predicted = method(data)(features[resample.test])
        assert len(predicted) == len(resample.test) and np.isfinite(predicted).all(), name
        if is_classification:
            assert np.allclose(predicted.sum(axis=1), 1), name


def test_lasso_agrees_with_scikit_learn() -> None:
    domain = make_domains(True)["first"]
    penalty, n = 0.03, len(domain.targets)
    [(slopes, biases)] = l1_path(
        domain.features, np.eye(3)[domain.targets], np.zeros((n, 3)), np.full((1, n), 1 / n), [penalty], n_steps=3000
    )
    peer = LogisticRegression(C=1 / (n * penalty), l1_ratio=1, solver="saga", max_iter=20000, tol=1e-8)
    peer.fit(domain.features, domain.targets)
    assert np.allclose(slopes[0].T, peer.coef_, atol=1e-3)
    assert np.allclose(biases[0, 0] - biases.mean(), peer.intercept_ - peer.intercept_.mean(), atol=1e-2)


def test_intervals_cluster_by_domain() -> None:
    same_within = {(domain, number): float(domain) for domain in "0123" for number in range(50)}
    found = clustered_mean(same_within)
    assert found["mean"] == 1.5 and found["low"] < 1 and found["high"] > 2


def test_charts_name_every_line() -> None:
    scores = [{"n": n, "method": method, "mean": 0.3 + 0.01 / n} for n in (5, 50) for method in LOOKS]
    for is_classification in (False, True):
        chart = draw(scores, is_classification)
        assert ElementTree.fromstring(chart).tag.endswith("svg") and len(chart) < 60_000
        assert all(f">{method}</text>" in chart for method in LOOKS)


def test_features_of_a_flat_picture_are_its_colour() -> None:
    features = edges_and_colours(np.full((36, 36, 3), 0.25))
    assert np.allclose(features[:54], 0) and np.allclose(features[54:], 0.25) and len(features) == 81


def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "linear-models.md").read_text()
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.S)[0], names)
    model = names["model"]
    assert np.flatnonzero(model.residual_).tolist() == [5] and abs(model.weights_[0] - 0.63) < 0.02
