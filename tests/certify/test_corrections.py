"""Where the Bayes-routed paper is corrected: each counter-example in numbers. docs/theory.md tells them."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import entr, softmax

from smatter.certify.mean import mean_bound_hoeffding
from smatter.certify.misrouting import misrouting_floor, misrouting_upper, separation_of, simulate_routing
from smatter.certify.pac_bayes import pac_bayes_mcallester, relative_entropy
from smatter.certify.tail import brown_radius


class Memoriser:
    """A router fitted on tasks: it knows the right one of two routings for supports it has seen, else takes the first.

    Supports are real numbers, all different; the right routing is a coin that has nothing to do with them.
    """

    def __init__(self, supports: np.ndarray, routings: np.ndarray) -> None:
        self.known = dict(zip(supports.tolist(), routings.tolist(), strict=True))

    def losses(self, supports: np.ndarray, routings: np.ndarray) -> np.ndarray:
        chosen = np.array([self.known.get(support, 0) for support in supports.tolist()])
        return (chosen != routings).astype(float)


def test_theorem_6_1_fails_for_a_router_fitted_on_its_tasks() -> None:
    generator, n, delta = np.random.default_rng(0), 2000, 0.05
    supports, routings = generator.random(n), generator.integers(2, size=n)
    router = Memoriser(supports, routings)
    divergence = float(relative_entropy([1.0, 0.0], [0.5, 0.5]))
    bound = pac_bayes_mcallester(router.losses(supports, routings), divergence, delta)
    fresh = router.losses(generator.random(20_000), generator.integers(2, size=20_000)).mean()
    assert divergence == pytest.approx(np.log(2)) and bound.value == pytest.approx(0.045, abs=5e-4)
    assert fresh == pytest.approx(0.5, abs=0.015)


def test_theorem_6_1_is_true_and_weaker_than_hoeffding_for_a_fixed_router() -> None:
    """Even at a KL of zero: it adds log(2 sqrt(N)) to what Hoeffding needs."""
    losses = np.zeros(2000)
    hoeffding = mean_bound_hoeffding(losses, 0.05)
    assert hoeffding.value == pytest.approx(0.027, abs=5e-4)
    assert hoeffding.value < pac_bayes_mcallester(losses, 0.0, 0.05).value
    generator, kept = np.random.default_rng(1), 0
    for _ in range(200):
        kept += pac_bayes_mcallester((generator.random(100) < 0.5).astype(float), np.log(2), 0.05).value >= 0.5
    assert kept == 200


def cvar_errors(share: float, n: int, n_draws: int, generator: np.random.Generator) -> np.ndarray:
    """Of the measured CVaR for a loss of 1 with probability share / 2 and of 0 otherwise; the truth is 1/2."""
    return np.minimum(generator.binomial(n, share / 2, n_draws) / (share * n), 1.0) - 0.5


def test_theorem_6_2_the_error_of_cvar_grows_as_the_root_of_one_over_rho() -> None:
    generator = np.random.default_rng(0)
    spread = {share: cvar_errors(share, 20_000, 4000, generator).std() for share in (0.1, 0.01)}
    assert spread[0.1] == pytest.approx(0.0154, rel=0.05) and spread[0.01] == pytest.approx(0.0497, rel=0.05)
    assert spread[0.01] / spread[0.1] == pytest.approx(np.sqrt(10), rel=0.07), "and not 10"
    assert brown_radius(20_000, 0.01, 0.05) / brown_radius(20_000, 0.1, 0.05) == pytest.approx(np.sqrt(10))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_theorem_6_2_no_excess_over_a_quantile_varies_by_more_than_one_over_rho(share: float) -> None:
    """(X - t)_+ / rho is above 0 with probability at most rho at the quantile t, and at most 1 / rho."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        points, masses = np.sort(generator.random(6)), generator.dirichlet(np.full(6, 0.3))
        above = np.cumsum(masses[::-1])[::-1]
        quantile = points[above >= share][-1]
        excess = np.maximum(points - quantile, 0) / share
        assert masses @ excess**2 - (masses @ excess) ** 2 <= 1 / share


def test_equation_11_has_no_gradient_where_the_tail_is_one_task() -> None:
    losses = torch.tensor([0.3, 0.9, 0.5, 0.7], requires_grad=True)
    threshold = losses.detach().max()  # the empirical 0.9-quantile of four losses
    estimate = threshold + torch.relu(losses - threshold).sum() / (0.1 * 4)
    estimate.backward()
    assert estimate.item() == pytest.approx(0.9) and losses.grad is not None and not losses.grad.any()


def test_equation_11_is_biased_low() -> None:
    losses = np.random.default_rng(0).random((50_000, 4))
    threshold = losses.max(axis=1, keepdims=True)
    estimates = threshold[:, 0] + np.maximum(losses - threshold, 0).sum(axis=1) / 0.4
    assert estimates.mean() == pytest.approx(0.80, abs=0.005), "CVaR 0.1 of uniform losses is 0.95"


def test_kl_to_a_uniform_prior_is_largest_for_the_surest_router() -> None:
    posteriors = softmax(np.random.default_rng(0).normal(size=(200, 5)) * 3, axis=1)
    divergence, entropy = relative_entropy(posteriors, np.full(5, 0.2)), entr(posteriors).sum(axis=1)
    assert divergence == pytest.approx(np.log(5) - entropy)
    rises = np.diff(divergence) * np.diff(entropy)
    assert (rises <= 0).all(), "they never rise together"
    assert divergence.argmax() == posteriors.max(axis=1).argmax()


def test_theorem_7_1_needs_delta_of_an_example_and_not_of_the_support() -> None:
    """Half of all supports are the same under both routings, however many examples they have: TV 1/2, error 1/4."""
    generator, n_tasks = np.random.default_rng(0), 40_000
    for n in (1, 100):
        routing, is_shared = generator.integers(2, size=n_tasks), generator.random(n_tasks) < 0.5
        means = np.where(is_shared, 0.5, routing)
        examples = generator.binomial(n, means)  # all alike: n shots of what was drawn once
        guesses = np.where(examples == n, 1, 0) if n > 1 else examples
        assert (guesses != routing).mean() == pytest.approx(0.25, abs=0.01)
    assert misrouting_upper(2, 100, 0.5) < 1e-5, "the theorem's bound, with Delta of the support"


def test_more_shots_of_the_same_classes_leave_a_floor() -> None:
    """Classes are drawn once from the routing's, then shots from the classes: misrouting stops at what classes tell."""
    classes = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    shots = np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
    generator, n_tasks, errors = np.random.default_rng(0), 40_000, {}
    for n in (1, 20, 200):
        routing = generator.integers(2, size=n_tasks)
        drawn = (generator.random((n_tasks, 1)) > np.cumsum(classes[routing], axis=1)).sum(axis=1)
        counts = generator.multinomial(n, shots[drawn])
        likelihoods = softmax(counts @ np.log(shots).T, axis=1) @ classes.T
        errors[n] = float((likelihoods.argmax(axis=1) != routing).mean())
    floor = simulate_routing(classes, 1, n_tasks, generator).misrouting
    assert floor == pytest.approx((1 - separation_of(classes).total_variation) / 2, abs=0.01)
    assert errors[1] > errors[20] > floor - 0.01 and errors[200] == pytest.approx(floor, abs=0.01)


@pytest.mark.parametrize("n", [10, 60])
def test_theorem_7_2_has_pairs_that_err_far_less(n: int) -> None:
    """P1 = (1 - Delta) P0 + Delta on a symbol that P0 never shows: the error is (1 - Delta)^n / 2."""
    separation = 0.1
    pair = np.array([[1.0, 0.0], [1 - separation, separation]])
    assert separation_of(pair).total_variation == pytest.approx(separation)
    found = simulate_routing(pair, n, 100_000, np.random.default_rng(0))
    assert found.misrouting == pytest.approx(misrouting_floor(n, separation), abs=0.004)


def test_theorem_7_2_no_constants_hold_for_that_pair() -> None:
    """As Delta falls with n Delta fixed, exp(-C n Delta^2) goes to one and the error stays where it is."""
    for constant in (1.0, 10.0, 100.0):
        for share in (0.5, 0.01):
            separation, n = 1e-4 / constant, round(10 * constant / 1e-4)
            assert misrouting_floor(n, separation) < 3e-5 < share * np.exp(-constant * n * separation**2)


def test_abstention_the_loss_of_the_base_must_be_conditioned_on_abstaining() -> None:
    """Half of the tasks are hopeless for both, and the score finds them."""
    hopeless = np.arange(1000) % 2 == 0
    routed, base, uncertainty = hopeless.astype(float), hopeless.astype(float), hopeless.astype(float)
    abstains = uncertainty > 0.5
    risk = np.where(abstains, base, routed).mean()
    papers = (~abstains).mean() * routed[~abstains].mean() + abstains.mean() * base.mean()
    conditioned = (~abstains).mean() * routed[~abstains].mean() + abstains.mean() * base[abstains].mean()
    assert (risk, papers, conditioned) == (0.5, 0.25, 0.5)


def test_greedy_choice_has_no_factor_in_the_loss() -> None:
    """Coverage is within 1 - 1/e of the best; what is left uncovered, the loss, is not within any factor."""
    experts = [set(range(6)), set(range(6, 12)), set(range(2, 9))]
    first = max(experts, key=len)
    second = max(experts, key=lambda each: len(each - first))
    greedy, best = len(first | second) / 12, max(len(a | b) for a, b in combinations(experts, 2)) / 12
    assert greedy >= (1 - np.exp(-1)) * best
    assert 1 - best == 0 and 1 - greedy == pytest.approx(1 / 6)


def test_averaging_predictions_is_not_gibbs() -> None:
    """One sure and wrong routing of three: Gibbs errs on a third, the average always; and the other way round."""
    predictions = np.array([[0.51, 0.49], [0.51, 0.49], [0.01, 0.99]])
    assert (predictions.argmax(axis=1) != 0).mean() == pytest.approx(1 / 3)
    assert predictions.mean(axis=0).argmax() == 1
    each_wrong_once = np.where(np.eye(3)[:, :, None] == 1, [0.4, 0.6], [0.9, 0.1])  # routing, query, class
    assert (each_wrong_once.argmax(axis=2) != 0).mean() == pytest.approx(1 / 3)
    assert (each_wrong_once.mean(axis=0).argmax(axis=1) == 0).all()


def test_every_correction_that_is_told_has_its_test() -> None:
    page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    told = re.findall(r"\| `(\w+)\*?` \|$", page, re.M)
    assert len(told) == 11
    for name in told:
        assert any(each.startswith(f"test_{name}") for each in globals()), name
