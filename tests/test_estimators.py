"""The scikit-learn front: its own checks, and agreement with what it stands for."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from smatter.errors import SmatterWarning
from smatter.estimators import MixtureClassifier, MixtureRegressor


@parametrize_with_checks([MixtureRegressor(n_nonzero=1, alpha=0.1), MixtureClassifier(alpha=0.1)])
@pytest.mark.filterwarnings("ignore::smatter.errors.SmatterWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning", "ignore::FutureWarning")
def test_scikit_learn_accepts(estimator, check) -> None:
    check(estimator)


@parametrize_with_checks([MixtureRegressor(), MixtureClassifier()])
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_accepts_chosen_settings(estimator, check) -> None:
    check(estimator)


def make_data(n_examples: int = 60, n_features: int = 6, n_classes: int = 0, seed: int = 0):
    """Features and targets, or labels, around a linear truth; and two models fitted elsewhere."""
    generator = np.random.default_rng(seed)
    truth = generator.normal(size=(2, max(n_classes, 1), n_features))

    def draw(coefficients, size: int):
        features = generator.normal(size=(size, n_features))
        outputs = features @ coefficients.T + 1.0 + 0.3 * generator.normal(size=(size, len(coefficients)))
        if not n_classes:
            return features, outputs[:, 0]
        return features, (outputs[:, 0] > 1).astype(int) if n_classes == 1 else outputs.argmax(axis=1)

    model = LogisticRegression() if n_classes else LinearRegression()
    sources = [clone(model).fit(*draw(coefficients, 200)) for coefficients in truth]
    return *draw(truth[0], n_examples), sources


def test_all_coefficients_corrected_from_nothing_is_ridge() -> None:
    features, targets, _ = make_data()
    ours = MixtureRegressor(n_nonzero=6, alpha=0.2).fit(features, targets)
    ridge = Ridge(alpha=0.2 * len(targets)).fit(features, targets)
    np.testing.assert_allclose(ours.coef_, ridge.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(ridge.intercept_, abs=1e-6)
    assert ours.weights_.tolist() == [1.0] and ours.choice_ is None


@pytest.mark.filterwarnings("ignore::smatter.errors.SmatterWarning")
@pytest.mark.parametrize("n_classes", [1, 3])
def test_all_coefficients_corrected_from_nothing_is_logistic_regression(n_classes: int) -> None:
    features, labels, _ = make_data(n_classes=n_classes)
    ours = MixtureClassifier(n_nonzero=6 * n_classes, alpha=0.05).fit(features, labels)
    theirs = LogisticRegression(C=1 / (0.05 * len(labels)), tol=1e-10, max_iter=10_000).fit(features, labels)
    np.testing.assert_allclose(ours.predict_proba(features), theirs.predict_proba(features), atol=1e-4)


@pytest.mark.parametrize("n_classes", [0, 1, 3])
def test_a_task_of_one_source_puts_its_weight_there(n_classes: int) -> None:
    features, targets, sources = make_data(n_classes=n_classes)
    estimator = MixtureClassifier if n_classes else MixtureRegressor
    model = estimator(sources, n_nonzero=0, alpha=0.0).fit(features, targets)
    assert model.weights_[0] > 0.9 and model.weights_.sum() == pytest.approx(1)
    assert not model.residual_.any() and model.gap_ <= 1e-5
    assert model.score(features, targets) > 0.8


def test_models_and_their_coefficients_are_the_same_sources() -> None:
    features, targets, sources = make_data()
    for source in sources:
        source.intercept_ = 0.0
    first = MixtureRegressor(sources, n_nonzero=2, alpha=0.1).fit(features, targets)
    second = MixtureRegressor([source.coef_ for source in sources], n_nonzero=2, alpha=0.1).fit(features, targets)
    np.testing.assert_allclose(first.coef_, second.coef_)
    assert (first.residual_ != 0).sum() <= 2 and first.epsilon_ is not None


def test_groups_are_corrected_as_a_whole() -> None:
    features, targets, sources = make_data()
    model = MixtureRegressor(sources, n_nonzero=1, groups=["a", "a", "b", "b", "c", "c"], alpha=0.01).fit(
        features, targets
    )
    used = (model.residual_ != 0).reshape(3, 2)
    assert used.any(axis=1).sum() == 1 and used.all(axis=1).sum() == 1
    assert MixtureRegressor(sources, n_nonzero=0, alpha=0.01, max_sources=1).fit(features, targets).weights_.max() == 1


def test_order_of_examples_and_features_does_not_matter() -> None:
    features, targets, sources = make_data()
    order, columns = np.random.default_rng(1).permutation(60), np.array([3, 1, 0, 2, 5, 4])
    first = MixtureRegressor([s.coef_ for s in sources], n_nonzero=2, alpha=0.1).fit(features, targets)
    moved = MixtureRegressor([s.coef_[columns] for s in sources], n_nonzero=2, alpha=0.1)
    moved.fit(features[order][:, columns], targets[order])
    np.testing.assert_allclose(moved.coef_, first.coef_[columns], atol=1e-4)


def test_settings_are_chosen_and_said() -> None:
    features, targets, sources = make_data(n_examples=8)
    model = MixtureRegressor(sources).fit(features, targets)
    assert model.n_nonzero_ == model.choice_.n_kept and "8 examples tell little" in model.choice_.message


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"n_nonzero": 7, "alpha": 0.1}, "n_nonzero=7 is not between 0 and the 6 coefficients"),
        ({"n_nonzero": 1, "alpha": -1.0}, "alpha=-1.0 is negative"),
        ({"n_nonzero": 1, "alpha": float("nan")}, "not a number"),
        ({"n_nonzero": 1, "alpha": 1.0, "max_sources": 0}, "leaves no source"),
        ({"n_nonzero": 1, "alpha": 1.0, "groups": [0, 1]}, "groups has 2 entries but there are 6 features"),
        ({"pull": -1.0}, "pull=-1.0 is negative"),
        ({"pull": 1.0, "max_sources": 1}, "give one of them"),
        ({"sources": []}, "sources is empty"),
        ({"sources": [np.ones(5)]}, "source 0 has 1 outputs of 5 features"),
        ({"sources": [np.full(6, np.inf)]}, "not finite"),
        ({"sources": [LinearRegression()]}, "has no coef_"),
    ],
)
def test_mistakes_are_told_in_one_line(settings: dict, text: str) -> None:
    features, targets, _ = make_data()
    with pytest.raises(ValueError, match=text) as caught:
        MixtureRegressor(**settings).fit(features, targets)
    assert "\n" not in str(caught.value)


def test_sources_of_other_classes_are_refused() -> None:
    features, labels, sources = make_data(n_classes=1)
    with pytest.raises(ValueError, match="use sources of the same classes"):
        MixtureClassifier(sources).fit(features, np.where(labels == 1, "yes", "no"))
    with pytest.raises(ValueError, match="one class only, 0: give at least two"):
        MixtureClassifier([source.coef_ for source in sources]).fit(features, np.zeros(60, int))
    others = [sources[0], LogisticRegression().fit(features, labels + 1)]
    with pytest.raises(ValueError, match="sources know different classes, 0, 1 and 1, 2"):
        MixtureClassifier(others).fit(features, labels)


@pytest.mark.filterwarnings("ignore::smatter.errors.SmatterWarning")
@pytest.mark.parametrize("n_classes", [1, 3])
def test_examples_may_lack_classes_of_the_sources(n_classes: int) -> None:
    features, labels, sources = make_data(n_classes=n_classes)
    seen = labels != 1
    model = MixtureClassifier(sources).fit(features[seen], labels[seen])
    assert model.classes_.tolist() == sources[0].classes_.tolist()
    assert 1 in model.predict(features[~seen]) and model.pull_ >= 1


def test_a_pipeline_is_told_where_its_coefficients_live() -> None:
    features, targets, _ = make_data()
    source = make_pipeline(StandardScaler(), LinearRegression()).fit(features, targets)
    with pytest.raises(ValueError, match="transform the features first and pass its last step") as caught:
        MixtureRegressor([source]).fit(features, targets)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::smatter.errors.SmatterWarning")
@pytest.mark.parametrize("n_classes", [0, 3])
def test_a_strong_pull_is_the_plain_average(n_classes: int) -> None:
    features, targets, sources = make_data(n_classes=n_classes)
    estimator = MixtureClassifier if n_classes else MixtureRegressor
    model = estimator(sources, n_nonzero=0, alpha=0.0, pull=1e9).fit(features, targets)
    np.testing.assert_allclose(model.weights_, 0.5, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, np.mean([source.intercept_ for source in sources], axis=0), atol=1e-6)
    fitted = estimator(sources, n_nonzero=0, alpha=0.0, pull=6.0).fit(features, targets)
    assert fitted.weights_.min() >= 6 / (60 + 2 * 6) - 1e-12 and fitted.weights_.sum() == pytest.approx(1)
    mixed = np.einsum("s,s...->...", fitted.weights_, [source.coef_ for source in sources])
    np.testing.assert_allclose(fitted.coef_, mixed, atol=1e-9)


def test_each_failure_mode_has_its_warning() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(40, 30))
    source = generator.normal(size=30)
    twins = [source, source + 1e-6 * generator.normal(size=30), source + 3 * generator.normal(size=30)]
    with pytest.warns(SmatterWarning, match="cannot tell some sources apart"):
        MixtureRegressor(twins, n_nonzero=0, alpha=1.0).fit(features, features @ source + generator.normal(size=40))
    many = generator.normal(size=(400, 30))
    dense = many @ (source + 1.0)
    with pytest.warns(SmatterWarning, match="coefficients outside it still matter"):
        MixtureRegressor([source], n_nonzero=3, alpha=0.01).fit(many, dense)
    with pytest.warns(SmatterWarning, match="few examples for this much freedom"):
        MixtureRegressor([source], n_nonzero=5, alpha=0.01).fit(many[:6], dense[:6])
    quiet = features @ np.where(np.arange(30) < 2, source + 4, source) + 0.1 * generator.normal(size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MixtureRegressor([source, -source], n_nonzero=2, alpha=0.01).fit(features, quiet)
