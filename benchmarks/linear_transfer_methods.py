"""What to do with linear models of other domains and a few examples of a new one: Smatter and its peers.

Every method takes a `Transfer` and gives a function from features to predictions: numbers, or class probabilities.
Peers are tuned on the target's examples, each by its own cross-validation; nobody sees the test examples.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LassoCV, LogisticRegression, LogisticRegressionCV, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold

from smatter.estimators import MixtureClassifier, MixtureRegressor

Array = np.ndarray[Any, Any]
Predictor = Callable[[Array], Array]

RIDGES = np.logspace(-3, 3, 13)
INVERSE_RIDGES = np.logspace(-4, 1, 7)
N_PENALTIES = 12
PATIENCE = 3
"""So many weaker penalties in a row that are worse on examples left out end the search."""


@dataclass(frozen=True)
class Transfer:
    """A new domain's few examples, the models of the other domains, and the data these were fitted on.

    Args:
        features, targets: the few examples, (n, n_features) and (n,).
        sources: fitted linear models.
        source_features, source_targets: what they were fitted on, one array a source.
        pooled: an unfitted model with a strength of ridge that suits the sources' data.
    """

    features: Array
    targets: Array
    sources: Sequence[Any]
    source_features: Sequence[Array]
    source_targets: Sequence[Array]
    pooled: Any

    @cached_property
    def pool(self) -> Any:
        """One model of all data."""
        features = np.concatenate([*self.source_features, self.features])
        return clone(self.pooled).fit(features, np.concatenate([*self.source_targets, self.targets]))

    @cached_property
    def slopes(self) -> Array:
        """Those of one model of all data with an intercept for each domain, (n_features,)."""
        features = np.concatenate([part - part.mean(axis=0) for part in (*self.source_features, self.features)])
        targets = np.concatenate([part - part.mean() for part in (*self.source_targets, self.targets)])
        return clone(self.pooled).fit(features, targets).coef_


def ridge(data: Transfer) -> Predictor:
    return RidgeCV(RIDGES).fit(data.features, data.targets).predict


def lasso(data: Transfer) -> Predictor:
    return _lasso().fit(data.features, data.targets).predict


def best_source(data: Transfer) -> Predictor:
    errors = [np.mean((source.predict(data.features) - data.targets) ** 2) for source in data.sources]
    return data.sources[int(np.argmin(errors))].predict


def average(data: Transfer) -> Predictor:
    return lambda features: np.mean([source.predict(features) for source in data.sources], axis=0)


def best_source_shifted(data: Transfer) -> Predictor:
    """The source that is best once its intercept is refitted."""
    misses = [data.targets - source.predict(data.features) for source in data.sources]
    best = int(np.argmin([miss.var() for miss in misses]))
    return lambda features: data.sources[best].predict(features) + misses[best].mean()


def average_shifted(data: Transfer) -> Predictor:
    mean = average(data)
    shift = np.mean(data.targets - mean(data.features))
    return lambda features: mean(features) + shift


def stacking(data: Transfer) -> Predictor:
    """Ridge on the sources' predictions, as StackingRegressor with cv="prefit" does, with more strengths to choose."""

    def inputs(features: Array) -> Array:
        return np.stack([source.predict(features) for source in data.sources], axis=1)

    final = RidgeCV(RIDGES).fit(inputs(data.features), data.targets)
    return lambda features: final.predict(inputs(features))


def pooling(data: Transfer) -> Predictor:
    return data.pool.predict


def pooling_shifted(data: Transfer) -> Predictor:
    """All data at once, each domain with an intercept of its own."""
    shift = np.mean(data.targets - data.features @ data.slopes)
    return lambda features: features @ data.slopes + shift


def two_steps(data: Transfer) -> Predictor:
    """Fit all data at once, then correct on the target by a lasso: the two steps of Trans-Lasso (Li, Cai & Li 2022).

    As there, the domains are centred first.
    """
    correction = _lasso().fit(data.features, data.targets - data.features @ data.slopes)
    return lambda features: features @ data.slopes + correction.predict(features)


def mixture(data: Transfer) -> Predictor:
    return MixtureRegressor(data.sources).fit(data.features, data.targets).predict


def mixture_only(data: Transfer) -> Predictor:
    return MixtureRegressor(data.sources, n_nonzero=0).fit(data.features, data.targets).predict


def _lasso() -> LassoCV:
    return LassoCV(alphas=30, cv=KFold(5, shuffle=True, random_state=0), max_iter=5000)


def ridge_classifier(data: Transfer) -> Predictor:
    return _tuned_logistic(data.features, data.targets).predict_proba


def lasso_classifier(data: Transfer) -> Predictor:
    return lasso_logistic(data.features, data.targets, np.zeros((len(data.targets), _n_classes(data))))


def best_source_classifier(data: Transfer) -> Predictor:
    losses = [log_loss(source.predict_proba(data.features), data.targets) for source in data.sources]
    return data.sources[int(np.argmin(losses))].predict_proba


def average_classifier(data: Transfer) -> Predictor:
    return lambda features: np.mean([source.predict_proba(features) for source in data.sources], axis=0)


def stacking_classifier(data: Transfer) -> Predictor:
    """Logistic regression on the sources' probabilities, as StackingClassifier does, with its ridge tuned."""

    def inputs(features: Array) -> Array:
        return np.concatenate([source.predict_proba(features) for source in data.sources], axis=1)

    final = _tuned_logistic(inputs(data.features), data.targets, 100 * INVERSE_RIDGES)
    return lambda features: final.predict_proba(inputs(features))


def pooling_classifier(data: Transfer) -> Predictor:
    return data.pool.predict_proba


def two_steps_classifier(data: Transfer) -> Predictor:
    correction = lasso_logistic(data.features, data.targets, data.pool.decision_function(data.features))
    return lambda features: correction(features, data.pool.decision_function(features))


def mixture_classifier(data: Transfer) -> Predictor:
    return MixtureClassifier(data.sources).fit(data.features, data.targets).predict_proba


def mixture_only_classifier(data: Transfer) -> Predictor:
    return MixtureClassifier(data.sources, n_nonzero=0).fit(data.features, data.targets).predict_proba


def _n_classes(data: Transfer) -> int:
    return len(data.sources[0].classes_)


def _tuned_logistic(features: Array, targets: Array, inverse_ridges: Array = INVERSE_RIDGES) -> Any:
    """Strength of ridge by stratified folds and log loss; scikit-learn's default where a class has one example."""
    fewest = int(np.unique(targets, return_counts=True)[1].min())
    if fewest < 2:
        return LogisticRegression(max_iter=500).fit(features, targets)
    return LogisticRegressionCV(
        Cs=inverse_ridges, cv=StratifiedKFold(min(5, fewest), shuffle=True, random_state=0), scoring="neg_log_loss",
        l1_ratios=(0,), max_iter=300, tol=1e-3, use_legacy_attributes=False,
    ).fit(features, targets)  # fmt: skip


def lasso_logistic(features: Array, targets: Array, offsets: Array) -> Predictor:
    """Softmax regression with a lasso, free intercepts, and given logits to start from; 5 folds choose the penalty.

    scikit-learn has no logistic regression with offsets; without them this is its multinomial model with l1_ratio=1.

    Returns:
        A function of features and, where there are, of their offsets.
    """
    n_examples, n_classes = offsets.shape
    one_hot = np.eye(n_classes)[targets]
    order = np.random.default_rng(0).permutation(n_examples) % min(5, n_examples)
    held_out = order == np.arange(min(5, n_examples))[:, None]
    shares = np.concatenate([~held_out, np.ones((1, n_examples), bool)]).astype(float)
    shares /= shares.sum(axis=1, keepdims=True)
    start = features.T @ (one_hot - softmax(offsets)) / n_examples
    penalties = np.abs(start).max() * np.logspace(0, -2, N_PENALTIES)
    best, slopes, biases, n_worse = np.inf, np.zeros(0), np.zeros(0), 0
    for tried, shifts in l1_path(features, one_hot, offsets, shares, penalties):
        probabilities = softmax(offsets + features @ tried[:-1] + shifts[:-1])
        loss = log_loss(probabilities[order, np.arange(n_examples)], targets)
        n_worse += 1
        if loss < best:
            best, slopes, biases, n_worse = loss, tried, shifts, 0
        if n_worse == PATIENCE:
            break
    return lambda rows, given=0.0: softmax(given + rows @ slopes[-1] + biases[-1])


def l1_path(
    features: Array, one_hot: Array, offsets: Array, shares: Array, penalties: Sequence[float], n_steps: int = 100
) -> Iterator[tuple[Array, Array]]:
    """Softmax regressions with an l1 penalty on slopes, one a row of `shares`, by accelerated proximal steps.

    Args:
        features: (n, n_features).
        one_hot, offsets: (n, n_classes).
        shares: weights of the examples in each of the fits, (n_fits, n); rows sum to one.
        penalties: falling; each starts from the last one's result.
        n_steps: for each penalty.

    Yields:
        For each penalty slopes, (n_fits, n_features, n_classes), and intercepts, (n_fits, 1, n_classes).
    """
    design = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    # Softmax curvature is at most 1/2 times that of the features.
    step = 2 / max(np.linalg.norm(design * np.sqrt(share)[:, None], 2) ** 2 for share in shares)
    theta = np.zeros((len(shares), design.shape[1], one_hot.shape[1]))
    for penalty in penalties:
        ahead, momentum = theta, 1.0
        for _ in range(n_steps):
            miss = (softmax(offsets + design @ ahead) - one_hot) * shares[..., None]
            moved = ahead - step * (design.T @ miss)
            moved[:, :-1] = np.sign(moved[:, :-1]) * np.maximum(np.abs(moved[:, :-1]) - step * penalty, 0)
            faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            change = moved - theta
            ahead, theta, momentum = moved + (momentum - 1) / faster * change, moved, faster
            if np.abs(change).max() < 1e-5:
                break
        yield theta[:, :-1], theta[:, -1:]


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def log_loss(probabilities: Array, targets: Array) -> float:
    return float(-np.log(np.maximum(probabilities[np.arange(len(targets)), targets], 1e-9)).mean())


SMATTER, SMATTER_MIXTURE = "smatter", "smatter, mixture only"
REGRESSION: Mapping[str, Callable[[Transfer], Predictor]] = {
    "ridge": ridge,
    "lasso": lasso,
    "best source": best_source,
    "best source, shifted": best_source_shifted,
    "average": average,
    "average, shifted": average_shifted,
    "stacking": stacking,
    "pooling": pooling,
    "pooling, shifted": pooling_shifted,
    "pooling + lasso": two_steps,
    SMATTER_MIXTURE: mixture_only,
    SMATTER: mixture,
}
CLASSIFICATION: Mapping[str, Callable[[Transfer], Predictor]] = {
    "ridge": ridge_classifier,
    "lasso": lasso_classifier,
    "best source": best_source_classifier,
    "average": average_classifier,
    "stacking": stacking_classifier,
    "pooling": pooling_classifier,
    "pooling + lasso": two_steps_classifier,
    SMATTER_MIXTURE: mixture_only_classifier,
    SMATTER: mixture_classifier,
}
