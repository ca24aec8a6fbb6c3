"""From the Gibbs loss to averages, votes and the most probable routing: inequalities that hold task by task."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smatter.certify.bound import UpperBound
from smatter.certify.ensembles import AVERAGE_FACTORS, average_bound, gibbs_losses, map_loss_limits
from smatter.errors import InvalidCertificate


def random_routings(seed: int, n_routings: int = 5, n_classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """A posterior and predictions that are sometimes sure and sometimes not; class 0 is the true one."""
    generator = np.random.default_rng(seed)
    posterior = generator.dirichlet(np.full(n_routings, 0.5))
    predictions = generator.dirichlet(np.full(n_classes, generator.choice([0.1, 1.0, 5.0])), n_routings)
    return posterior, np.maximum(predictions, 1e-12)


@given(st.integers(0, 10_000))
def test_averages_and_votes_are_bounded_by_the_gibbs_loss(seed: int) -> None:
    posterior, predictions = random_routings(seed)
    average, truth = posterior @ predictions, np.eye(4)[0]
    votes = np.bincount(predictions.argmax(axis=1), weights=posterior, minlength=4)
    losses = {
        "nll": (-np.log(average[0]), -np.log(predictions[:, 0])),
        "brier": (((average - truth) ** 2).sum(), ((predictions - truth) ** 2).sum(axis=1)),
        "vote error": (float(votes.argmax() != 0), (predictions.argmax(axis=1) != 0).astype(float)),
        "soft error": (float(average.argmax() != 0), 1 - predictions[:, 0]),
    }
    assert losses.keys() == AVERAGE_FACTORS.keys()
    for name, (of_average, of_routings) in losses.items():
        assert of_average <= AVERAGE_FACTORS[name] * float(gibbs_losses(posterior, of_routings)) + 1e-9


@given(st.integers(0, 10_000))
def test_the_most_probable_routing_is_bounded_by_its_share(seed: int) -> None:
    generator = np.random.default_rng(seed)
    posterior, losses = generator.dirichlet(np.ones(6), 20), generator.random((20, 6)) ** 3
    of_map = losses[np.arange(20), posterior.argmax(axis=1)]
    limits = map_loss_limits(gibbs_losses(posterior, losses), posterior.max(axis=1))
    assert (of_map <= limits + 1e-12).all()


def test_the_map_limit_is_attained() -> None:
    """Only the most probable routing loses: the limit is its loss."""
    gibbs = gibbs_losses([[0.4, 0.3, 0.3]], [[0.7, 0.0, 0.0]])
    assert map_loss_limits(gibbs, [0.4])[0] == pytest.approx(0.7)
    with pytest.raises(InvalidCertificate):
        map_loss_limits([0.1], [0.0])


def test_bounds_are_carried_over() -> None:
    gibbs = UpperBound("mean loss", "betting", 0.3, 0.25, 0.05, 100)
    doubled = average_bound(gibbs, "vote error")
    assert (doubled.value, doubled.estimate, doubled.n) == (0.6, 0.5, 100) and "2 x Gibbs" in doubled.method
    assert average_bound(gibbs, "brier").value == 0.3
    assert average_bound(UpperBound("mean loss", "betting", 0.7, 0.6, 0.05, 100), "soft error").vacuous
    with pytest.raises(InvalidCertificate, match="vote error"):
        average_bound(gibbs, "error")
