"""The scikit-learn front: its own checks, and agreement with what it stands for."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
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
