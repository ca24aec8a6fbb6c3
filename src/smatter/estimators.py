"""scikit-learn estimators of the convex regime: mix linear models, correct a few coefficients.

Install with `pip install 'smatter[sklearn]'`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from smatter.errors import MissingExtra, SmatterWarning
from smatter.linear.advice import advise
from smatter.linear.alternate import solve_pair
from smatter.linear.choose import PULLS, Choice, choose, pulled, pulled_weights
from smatter.linear.links import Link, Logistic, Squared
from smatter.linear.loss import LinearLoss
from smatter.linear.task import LinearTask, PairSolution
from smatter.solve.pattern import Pattern

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.pipeline import Pipeline
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
        pull: float | None = None,
        max_sources: int | None = None,
    ) -> None:
        self.sources = sources
        self.n_nonzero = n_nonzero
        self.groups = groups
        self.alpha = alpha
        self.pull = pull
        self.max_sources = max_sources

    def _fit(self, features: Array, targets: Array, link: Link) -> None:
        """Targets are (n_outputs, n)."""
        n_examples, n_features = features.shape
        n_outputs = len(targets)
        rows = _coefficients(self.sources, n_outputs, n_features)
        design = np.concatenate([features, np.ones((n_examples, 1))], axis=1)
        loss = LinearLoss(torch.tensor(design)[None], torch.tensor(targets)[None], link)
        self._check(n_outputs * n_features, n_features, len(rows))
        blocks, free = self._layout(n_outputs, n_features)
        task = LinearTask(loss, torch.tensor(rows).flatten(1)[None], Pattern(0, blocks, free), self.alpha or 0.0)
        # Examples left out cannot tell what becomes of a class that no example shows.
        unseen = isinstance(link, Logistic) and bool((targets.min(axis=1) == targets.max(axis=1)).any())
        pulls = self._pulls(fewest=1.0 if unseen else 0.0)
        self.choice_ = self._choose(task, pulls)
        settings = (self.choice_.n_kept, self.choice_.alpha, self.choice_.pull) if self.choice_ else None
        k, alpha, pull = settings or (self.n_nonzero or 0, self.alpha or 0.0, pulls[0])
        self.n_nonzero_, self.alpha_, self.pull_ = int(k), float(alpha), float(pull)
        task = replace(pulled(task, self.pull_), pattern=Pattern(self.n_nonzero_, blocks, free), alpha=self.alpha_)
        # A chosen k was judged by greedy searches; a given one deserves the best correction of its size.
        pair = solve_pair(task, self.max_sources, thorough=self.n_nonzero is not None)
        for warning in advise(task, pair):
            warnings.warn(warning, SmatterWarning, stacklevel=3)
        self._keep(replace(pair, weights=pulled_weights(task, self.pull_, pair.weights)), n_outputs)

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
        if self.pull is not None and not self.pull >= 0:
            raise ValueError(f"pull={self.pull} is negative or not a number")
        if self.pull and self.max_sources is not None:
            raise ValueError(
                f"pull={self.pull} gives every source some weight, max_sources forbids it: give one of them"
            )

    def _layout(self, n_outputs: int, n_features: int) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Block of each coefficient, and the free intercepts; an intercept comes last in each output."""
        free = torch.zeros(n_outputs, n_features + 1, dtype=torch.bool)
        free[:, -1] = True
        if self.groups is None:
            return None, free.flatten()
        _, numbers = np.unique(self.groups, return_inverse=True)
        blocks = torch.tensor([*numbers.tolist(), int(numbers.max()) + 1])
        return blocks.expand(n_outputs, -1).flatten(), free.flatten()

    def _pulls(self, fewest: float) -> Sequence[float]:
        """Candidates for the pull; the first where nothing can be chosen."""
        if self.pull is not None:
            return [self.pull]
        if self.sources is None or self.max_sources is not None:
            return [0.0]
        return [1.0, *(pull for pull in PULLS if pull >= fewest and pull != 1)]

    def _choose(self, task: LinearTask, pulls: Sequence[float]) -> Choice | None:
        assert isinstance(task.loss, LinearLoss)
        all_given = self.n_nonzero is not None and self.alpha is not None and len(pulls) == 1
        if all_given or task.loss.features.shape[1] < 2:
            return None
        n_kept = None if self.n_nonzero is None else [self.n_nonzero]
        alpha = None if self.alpha is None else [self.alpha]
        return choose(task, n_kept, alpha, pulls, self.max_sources)

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
        pull: towards the plain average of the sources, in examples: every source has a weight of at least
            pull / (n + pull * n_sources), and the intercept's correction a ridge of pull / n. Chosen by leaving
            examples out where it is None; 0 without sources and with max_sources.
        max_sources: the most sources with weight.

    Attributes:
        weights_: of the sources, on the simplex.
        residual_: the correction of each coefficient; `residual_intercept_` that of the intercept.
        coef_, intercept_: of the model they make.
        gap_: an upper bound on what better weights would gain for this correction.
        epsilon_: an upper bound on what any other pair would gain; None where none is known.
        choice_: how n_nonzero_, alpha_ and pull_ were chosen, with a message; None where all were given.
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

    Takes and has what `MixtureRegressor` does. Sources are fitted linear classifiers of the same classes, of which
    the examples may lack some; or their coefficients, for the classes of the examples in their order: (n_sources,
    n_features) for two classes, (n_sources, n_classes, n_features) for more.
    """

    def fit(self, X: Any, y: Any) -> "MixtureClassifier":  # noqa: N803
        """Find weights and correction from examples, (n, n_features), and their labels, (n,)."""
        features, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_ = _classes(self.sources, np.unique(labels))
        one_hot = (labels == self.classes_[:, None]).astype(np.float64)
        self._fit(features, one_hot[1:] if len(self.classes_) == 2 else one_hot, Logistic())
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


def _classes(sources: Sources, shown: Array) -> Array:
    """The classes of the sources where these are models that know them, else those of the examples."""
    known = [np.asarray(source.classes_) for source in ([] if sources is None else sources) if _knows_classes(source)]
    classes = known[0] if known else shown
    for theirs in known:
        if theirs.tolist() != classes.tolist():
            raise ValueError(
                f"sources know different classes, {_list(classes)} and {_list(theirs)}: use sources of the same"
            )
    strange = [label for label in shown.tolist() if label not in classes.tolist()]
    if strange:
        raise ValueError(
            f"no source knows the class {strange[0]!r} of the examples: use sources of the same classes, which are "
            f"{_list(classes)} here"
        )
    if len(classes) < 2:
        raise ValueError(
            f"the examples have one class only, {shown.tolist()[0]!r}: give at least two, or fitted models as sources"
        )
    return classes


def _knows_classes(source: Any) -> bool:
    return hasattr(source, "coef_") and hasattr(source, "classes_")


def _list(classes: Array) -> str:
    return ", ".join(map(repr, classes.tolist()))


def _coefficients(sources: Sources, n_outputs: int, n_features: int) -> Array:
    """Coefficients and, last, intercepts of the sources, (n_sources, n_outputs, n_features + 1)."""
    if sources is None:
        return np.zeros((1, n_outputs, n_features + 1))
    if len(sources) == 0:
        raise ValueError("sources is empty: give fitted linear models or their coefficients, or None")
    rows = [_coefficients_of(number, source) for number, source in enumerate(sources)]
    for number, row in enumerate(rows):
        if row.shape != (n_outputs, n_features + 1):
            raise ValueError(
                f"source {number} has {row.shape[0]} outputs of {row.shape[1] - 1} features but the examples need "
                f"{n_outputs} of {n_features}: use sources of the same features and classes"
            )
        if not np.isfinite(row).all():
            raise ValueError(f"source {number} has coefficients that are not finite: fit it again without outliers")
    return np.stack(rows)


def _coefficients_of(number: int, source: Any) -> Array:
    if not hasattr(source, "fit"):
        coefficients = np.atleast_2d(np.asarray(source, np.float64))
        return np.concatenate([coefficients, np.zeros((len(coefficients), 1))], axis=1)
    if isinstance(source, Pipeline):
        raise ValueError(
            f"source {number} is a Pipeline, whose coefficients belong to the features that its steps make: transform "
            "the features first and pass its last step"
        )
    if not hasattr(source, "coef_"):
        raise ValueError(f"source {number}, {type(source).__name__}, has no coef_: fit it first, or use a linear model")
    coefficients = np.atleast_2d(np.asarray(source.coef_, np.float64))
    intercepts = np.broadcast_to(np.asarray(getattr(source, "intercept_", 0.0), np.float64).ravel(), len(coefficients))
    return np.concatenate([coefficients, intercepts[:, None]], axis=1)
