"""Priors over routings: their definitions, fitted beta against likelihood, mixtures against averages."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from smatter.errors import BudgetInfeasible, InvalidSettings, InvalidWeights
from smatter.posterior.prior import averaged_cost_prior, cost_prior, fit_beta, mixture_prior, uniform_prior

COSTS = torch.tensor([1.0, 1.0, 2.0, 4.0, 7.0], dtype=torch.float64)
costs = st.lists(st.floats(0.1, 100), min_size=2, max_size=8).map(lambda values: torch.tensor(values).double())


def test_the_prior_falls_by_beta_for_each_unit_of_cost() -> None:
    log_prior = cost_prior(COSTS, 0.7)
    assert float(log_prior.exp().sum()) == pytest.approx(1)
    torch.testing.assert_close(log_prior[0] - log_prior, 0.7 * (COSTS - COSTS[0]))
    torch.testing.assert_close(cost_prior(COSTS, 0.0), uniform_prior(5))


@given(costs, st.floats(0.02, 0.98))
@settings(deadline=None)
def test_the_fitted_beta_has_the_wanted_mean_cost(values: torch.Tensor, share: float) -> None:
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-3:
        return
    wanted = low + share * (high - low)
    beta = fit_beta(values, wanted)
    assert float(cost_prior(values, beta).exp() @ values) == pytest.approx(wanted, rel=1e-6)
    assert fit_beta(10 * values, 10 * wanted) == pytest.approx(beta / 10, rel=1e-4, abs=1e-9)


def test_the_fitted_beta_is_the_most_likely_one() -> None:
    chosen = torch.tensor([0, 0, 2, 3, 1, 2])
    best = minimize_scalar(lambda beta: -float(cost_prior(COSTS, beta)[chosen].sum())).x
    assert fit_beta(COSTS, float(COSTS[chosen].mean())) == pytest.approx(best, abs=1e-5)


def test_costs_that_no_beta_can_reach_are_refused() -> None:
    for wanted in (1.0, 7.0, 0.5, 9.0, float("nan")):
        with pytest.raises(BudgetInfeasible, match="routings cost 1 to 7"):
            fit_beta(COSTS, wanted)
    with pytest.raises(InvalidSettings, match="finite cost"):
        cost_prior(torch.tensor([1.0, torch.inf]), 1.0)


def test_mixtures_average_probabilities() -> None:
    regimes = torch.stack([cost_prior(COSTS, 2.0), cost_prior(COSTS, -0.5)])
    torch.testing.assert_close(mixture_prior(regimes).exp(), regimes.exp().mean(dim=0))
    shares = torch.tensor([0.9, 0.1]).double()
    torch.testing.assert_close(mixture_prior(regimes, shares).exp(), shares @ regimes.exp())
    torch.testing.assert_close(mixture_prior(regimes, torch.tensor([1.0, 0.0])), regimes[0])
    for bad in ([0.9, 0.3], [1.1, -0.1]):
        with pytest.raises(InvalidWeights, match="sum to one"):
            mixture_prior(regimes, torch.tensor(bad))


def test_a_hyperprior_on_beta_is_averaged_over() -> None:
    betas, shares = torch.tensor([0.0, 0.5, 3.0]), torch.tensor([0.2, 0.3, 0.5]).double()
    expected = sum(
        float(share) * cost_prior(COSTS, float(beta)).exp() for beta, share in zip(betas, shares, strict=True)
    )
    torch.testing.assert_close(averaged_cost_prior(COSTS, betas, shares).exp(), expected, atol=1e-6, rtol=0)
