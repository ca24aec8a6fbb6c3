"""PAC-Bayes: formulae, constants, and validity where q over routers is chosen on the same tasks."""

from math import comb

import numpy as np
import pytest
from known_losses import most_failures

from smatter.certify.mean import mean_bound_hoeffding
from smatter.certify.pac_bayes import pac_bayes_kl, pac_bayes_mcallester, relative_entropy
from smatter.errors import InvalidCertificate


def test_the_constant_is_enough_for_any_number_of_tasks() -> None:
    """Maurer's sum over k of C(n, k) (k/n)^k (1 - k/n)^(n - k) is at most 2 sqrt(n)."""
    for n in range(1, 120):
        total = sum(comb(n, k) * (k / n) ** k * (1 - k / n) ** (n - k) for k in range(n + 1))
        assert total <= 2 * np.sqrt(n)


def test_mcallesters_form_is_theorem_6_1() -> None:
    losses = np.full(2000, 0.25)
    bound = pac_bayes_mcallester(losses, 0.4, 0.05)
    assert bound.value == pytest.approx(0.25 + np.sqrt((0.4 + np.log(2 * np.sqrt(2000) / 0.05)) / 3998))
    assert pac_bayes_kl(losses, 0.4, 0.05).value < bound.value


def test_bounds_hold_for_a_posterior_that_was_chosen_on_the_same_tasks() -> None:
    generator, delta, n, misses, unpaid = np.random.default_rng(0), 0.1, 60, 0, 0
    prior, draws = np.full(20, 1 / 20), 300
    for _ in range(draws):
        losses = (generator.random((20, n)) < 0.5).astype(float)
        scores = np.exp(-40 * losses.mean(axis=1))
        posterior = scores / scores.sum()
        gibbs, divergence = posterior @ losses, float(relative_entropy(posterior, prior))
        misses += pac_bayes_kl(gibbs, divergence, delta).value < 0.5
        unpaid += mean_bound_hoeffding(gibbs, delta).value < 0.5
    assert misses / draws <= most_failures(delta, draws)
    assert unpaid > misses


def test_relative_entropy_is_not_negative_and_infinite_off_the_prior() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(4), 50)
    assert (relative_entropy(rows, np.full(4, 0.25)) >= 0).all()
    assert relative_entropy([0.5, 0.5], [1.0, 0.0]) == np.inf
    with pytest.raises(InvalidCertificate, match="sum to one"):
        pac_bayes_kl([0.1, 0.2], -0.1, 0.05)
