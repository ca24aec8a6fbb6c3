"""Settings chosen by leaving examples out: agreement with plain refits, and what the choice does with noise."""

import numpy as np
import pytest
import torch
from problems import normal
from scipy import stats
from sklearn.linear_model import Ridge

from smatter.errors import InvalidSettings
from smatter.linear.choose import PULLS, _t_quantile, choose
from smatter.linear.loss import LinearLoss
from smatter.linear.task import LinearTask
from smatter.solve.pattern import Pattern


def make(n_examples: int, seed: int, shift: float = 0.0, noise: float = 1.0) -> LinearTask:
    """Half of each of two sources, but for three coefficients that are shifted."""
    features, sources = normal(1, n_examples, 12, seed=seed), normal(1, 2, 12, seed=seed + 1)
    theta = sources[0].mean(dim=0)
    theta[:3] += shift
    targets = (features[0] @ theta + noise * normal(n_examples, seed=seed + 2)).reshape(1, 1, -1)
    return LinearTask(LinearLoss(features, targets), sources, Pattern(0))


def test_losses_are_those_of_refits_without_each_example() -> None:
    task = make(9, seed=0)
    features, targets = task.loss.features[0].numpy(), task.loss.targets[0, 0].numpy()
    nothing = LinearTask(task.loss, torch.zeros_like(task.sources), Pattern(0))
    found = choose(nothing, n_kept=[12], alpha=[0.3]).losses[12, 0.3]
    losses = []
    for index in range(9):
        others = np.arange(9) != index
        refit = Ridge(0.3 * 8, fit_intercept=False).fit(features[others], targets[others])
        losses.append(0.5 * (refit.predict(features[index : index + 1])[0] - targets[index]) ** 2)
    assert found == pytest.approx(np.mean(losses), rel=1e-6)


def test_noise_is_not_corrected_but_a_clear_shift_is() -> None:
    kept = [choose(make(16, seed)).n_kept for seed in range(0, 60, 3)]
    assert np.mean([k == 0 for k in kept]) >= 0.8
    kept = [choose(make(40, seed, shift=2.0, noise=0.3)).n_kept for seed in range(0, 30, 3)]
    assert np.mean([3 <= k <= 8 for k in kept]) >= 0.8


def test_a_pull_is_chosen_where_it_helps() -> None:
    even = [choose(make(6, seed, noise=3.0), [0], pull=PULLS).pull for seed in range(0, 60, 3)]
    task = make(40, seed=0, noise=0.1)
    lone = (task.loss.features[0] @ task.sources[0, 0]).reshape(1, 1, -1)
    far = choose(LinearTask(LinearLoss(task.loss.features, lone), task.sources, Pattern(0)), [0], pull=PULLS)
    assert np.mean(even) > 1 and far.pull == 0


def test_progress_counts_to_the_end() -> None:
    seen: list[float] = []
    choose(make(8, seed=0), pull=PULLS, progress=lambda share, _="": seen.append(share))
    assert len(seen) > len(PULLS) and sum(seen) == pytest.approx(1)


@pytest.mark.parametrize("freedom", [3, 4, 9, 49, 1000])
def test_quantile_agrees_with_scipy(freedom: int) -> None:
    assert _t_quantile(freedom) == pytest.approx(stats.t.ppf(0.95, freedom), rel=0.005)


def test_one_example_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="cannot be left out"):
        choose(make(1, seed=0))
