"""scikit-learn estimators of the convex regime: mix linear models, correct a few coefficients.

Install with `pip install 'smatter[sklearn]'`.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from smatter.errors import MissingExtra, SmatterWarning
from smatter.solve.advice import advise
from smatter.solve.alternate import solve_pair
from smatter.solve.choose import Choice, choose
from smatter.solve.linear import LinearLoss
from smatter.solve.links import Link, Logistic, Squared
from smatter.solve.pattern import Pattern
from smatter.solve.task import LinearTask, PairSolution

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtra("the estimators need scikit-learn: pip install 'smatter[sklearn]'") from None

Array = np.ndarray[Any, Any]
Sources = Sequence[Any] | Array | None


class _Mixture(BaseEstimator):  # type: ignore[misc]
    """theta = sum_r w_r theta_r + D, with w on the simplex and D sparse."""

    def __init__(
        self,
        sources: Sources = None,
        *,
        n_nonzero: int | None = None,
        groups: Any = None,
        alpha: float | None = None,
        max_sources: int | None = None,
    ) -> None:
        self.sources = sources
        self.n_nonzero = n_nonzero
        self.groups = groups
        self.alpha = alpha
        self.max_sources = max_sources

    def _fit(self, features: Array, targets: Array, link: Link, classes: Array | None = None) -> None:
        """Targets are (n_outputs, n)."""
        n_examples, n_features = features.shape
        n_outputs = len(targets)
        rows = _coefficients(self.sources, n_outputs, n_features, classes)
        design = np.concatenate([features, np.ones((n_examples, 1))], axis=1)
        loss = LinearLoss(torch.tensor(design)[None], torch.tensor(targets)[None], link)
        self._check(n_outputs * n_features, n_features, len(rows))
        blocks, free = self._layout(n_outputs, n_features)
        task = LinearTask(loss, torch.tensor(rows).flatten(1)[None], Pattern(0, blocks, free), self.alpha or 0.0)
        self.choice_ = self._choose(task, n_examples)
        k, alpha = (self.choice_.n_kept, self.choice_.alpha) if self.choice_ else (self.n_nonzero, self.alpha)
        task = LinearTask(loss, task.sources, Pattern(int(k or 0), blocks, free), float(alpha or 0.0))
        pair = solve_pair(task, self.max_sources)
        for warning in advise(task, pair):
            warnings.warn(warning, SmatterWarning, stacklevel=3)
        self.n_nonzero_, self.alpha_ = int(k or 0), float(alpha or 0.0)
        self._keep(pair, n_outputs)

    def _check(self, n_coefficients: int, n_features: int, n_sources: int) -> None:
        most = n_coefficients if self.groups is None else len(np.unique(self.groups))
        what = "coefficients" if self.groups is None else "groups"
        if self.n_nonzero is not None and not 0 <= self.n_nonzero <= most:
            raise ValueError(f"n_nonzero={self.n_nonzero} is not between 0 and the {most} {what}")
        if self.groups is not None and len(self.groups) != n_features:
            raise ValueError(f"groups has {len(self.groups)} entries but there are {n_features} features")
        if self.alpha is not None and not self.alpha >= 0:
            raise ValueError(f"alpha={self.alpha} is negative or not a number")
        if self.max_sources is not None and not self.max_sources >= 1:
            raise ValueError(f"max_sources={self.max_sources} leaves no source; there are {n_sources}")

    def _layout(self, n_outputs: int, n_features: int) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Block of each coefficient, and the free intercepts; an intercept comes last in each output."""
        free = torch.zeros(n_outputs, n_features + 1, dtype=torch.bool)
        free[:, -1] = True
        if self.groups is None:
            return None, free.flatten()
        _, numbers = np.unique(self.groups, return_inverse=True)
        blocks = torch.tensor([*numbers.tolist(), int(numbers.max()) + 1])
        return blocks.expand(n_outputs, -1).flatten(), free.flatten()

    def _choose(self, task: LinearTask, n_examples: int) -> Choice | None:
        if (self.n_nonzero is not None and self.alpha is not None) or n_examples < 2:
            return None
        n_kept = None if self.n_nonzero is None else [self.n_nonzero]
        alpha = None if self.alpha is None else [self.alpha]
        return choose(task, n_kept, alpha, self.max_sources)

    def _keep(self, pair: PairSolution, n_outputs: int) -> None:
        theta = pair.theta.reshape(n_outputs, -1).numpy()
        residual = pair.residual.reshape(n_outputs, -1).numpy()
        self.weights_ = pair.weights.flatten().numpy()
        self.coef_: Array = theta[:, :-1]
        self.intercept_: Array | float = theta[:, -1]
        self.residual_: Array = residual[:, :-1]
        self.residual_intercept_: Array | float = residual[:, -1]
        self.gap_ = float(pair.gap)
        self.epsilon_ = None if pair.epsilon is None else float(pair.epsilon)
        self.n_iter_ = max(pair.rounds, 1)

    def _outputs(self, X: Any) -> Array:  # noqa: N803
        check_is_fitted(self)
        outputs: Array = validate_data(self, X, reset=False, dtype=np.float64) @ self.coef_.T + self.intercept_
        return outputs


class MixtureRegressor(RegressorMixin, _Mixture):  # type: ignore[misc]
    """Least squares on a mixture of given linear models plus a sparse correction.

    Args:
        sources: fitted linear regressors, or their coefficients, (n_sources, n_features). None stands for one source
            of zeros, so that all is correction.
        n_nonzero: the most coefficients, or groups, that may differ from the mixture's; chosen by leaving examples
            out where it is None.
        groups: group of each feature, (n_features,); a group is corrected as a whole.
        alpha: strength of the ridge that pulls the correction towards zero, in units of the mean squared loss; chosen
            by leaving examples out where it is None.
        max_sources: the most sources with weight.

    Attributes:
        weights_: of the sources, on the simplex.
        residual_: the correction of each coefficient; `residual_intercept_` that of the intercept, which is free.
        coef_, intercept_: of the model they make.
        gap_: an upper bound on what better weights would gain for this correction.
        epsilon_: an upper bound on what any other pair would gain; None where none is known.
        choice_: how n_nonzero_ and alpha_ were chosen, with a message; None where both were given.
    """

    def fit(self, X: Any, y: Any) -> "MixtureRegressor":  # noqa: N803
        """Find weights and correction from examples, (n, n_features), and their targets, (n,)."""
        features, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._fit(features, np.asarray(targets, np.float64)[None], Squared())
        assert isinstance(self.intercept_, np.ndarray) and isinstance(self.residual_intercept_, np.ndarray)
        self.coef_, self.residual_ = self.coef_[0], self.residual_[0]
        self.intercept_, self.residual_intercept_ = self.intercept_.item(), self.residual_intercept_.item()
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Targets of new examples."""
        return self._outputs(X)


class MixtureClassifier(ClassifierMixin, _Mixture):  # type: ignore[misc]
    """Logistic regression on a mixture of given linear classifiers plus a sparse correction.

    Takes and has what `MixtureRegressor` does. Sources are fitted linear classifiers of the same classes, or their
    coefficients: (n_sources, n_features) for two classes, (n_sources, n_classes, n_features) for more.
    """

    def fit(self, X: Any, y: Any) -> "MixtureClassifier":  # noqa: N803
        """Find weights and correction from examples, (n, n_features), and their labels, (n,)."""
        features, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"the examples have one class only, {self.classes_[0]}; give at least two classes")
        one_hot = np.eye(len(self.classes_))[numbers].T
        self._fit(features, one_hot[1:] if len(self.classes_) == 2 else one_hot, Logistic(), self.classes_)
        return self

    def decision_function(self, X: Any) -> Array:  # noqa: N803
        """Log-odds of the second of two classes, (n,), or a score for every class, (n, n_classes)."""
        outputs = self._outputs(X)
        return outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Probabilities of the classes, (n, n_classes)."""
        outputs = torch.tensor(self._outputs(X))
        if len(self.classes_) == 2:
            outputs = torch.cat([torch.zeros_like(outputs), outputs], dim=1)
        probabilities: Array = outputs.softmax(dim=1).numpy()
        return probabilities

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The most probable classes of new examples."""
        best = self.predict_proba(X).argmax(axis=1)
        predicted: Array = self.classes_[best]
        return predicted


def _coefficients(sources: Sources, n_outputs: int, n_features: int, classes: Array | None) -> Array:
    """Coefficients and, last, intercepts of the sources, (n_sources, n_outputs, n_features + 1)."""
    if sources is None:
        return np.zeros((1, n_outputs, n_features + 1))
    if len(sources) == 0:
        raise ValueError("sources is empty: give fitted linear models or their coefficients, or None")
    rows = [_coefficients_of(number, source, classes) for number, source in enumerate(sources)]
    for number, row in enumerate(rows):
        if row.shape != (n_outputs, n_features + 1):
            raise ValueError(
                f"source {number} has {row.shape[0]} outputs of {row.shape[1] - 1} features but the examples need "
                f"{n_outputs} of {n_features}"
            )
        if not np.isfinite(row).all():
            raise ValueError(f"source {number} has coefficients that are not finite")
    return np.stack(rows)


def _coefficients_of(number: int, source: Any, classes: Array | None) -> Array:
    if not hasattr(source, "fit"):
        coefficients = np.atleast_2d(np.asarray(source, np.float64))
        return np.concatenate([coefficients, np.zeros((len(coefficients), 1))], axis=1)
    if not hasattr(source, "coef_"):
        raise ValueError(f"source {number}, {type(source).__name__}, has no coef_: fit it first, or use a linear model")
    theirs = getattr(source, "classes_", None)
    if classes is not None and theirs is not None and list(theirs) != list(classes):
        raise ValueError(
            f"source {number} was fitted on classes {list(theirs)} but the examples have {list(classes)}: "
            "use sources of the same classes"
        )
    coefficients = np.atleast_2d(np.asarray(source.coef_, np.float64))
    intercepts = np.broadcast_to(np.asarray(getattr(source, "intercept_", 0.0), np.float64).ravel(), len(coefficients))
    return np.concatenate([coefficients, intercepts[:, None]], axis=1)
