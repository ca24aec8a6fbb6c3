"""Priors over the routings of a catalogue, as log-probabilities: what a posterior pays to leave (paper, section 4).

Costs are numbers, in any unit: milliseconds of a profile, passes, megabytes.
"""

import torch
from torch import Tensor

from smatter.errors import BudgetInfeasible, InvalidSettings, InvalidWeights


def uniform_prior(n_routings: int) -> Tensor:
    """The same for every routing, (n_routings,)."""
    return torch.zeros(n_routings, dtype=torch.float64).log_softmax(dim=0)


def cost_prior(costs: Tensor, beta: float | Tensor) -> Tensor:
    """log p(A), p in proportion to exp(-beta cost(A)), (..., n_routings).

    Args:
        costs: of each routing, (n_routings,).
        beta: how much a unit of cost counts, in nats; a tensor (...) gives a prior of each.

    >>> cost_prior(torch.tensor([1.0, 2.0]), 0.0).exp()
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    if not bool(costs.isfinite().all()):
        raise InvalidSettings("a routing has no finite cost: measure it, or leave it out")
    return (-torch.as_tensor(beta, dtype=torch.float64).unsqueeze(-1) * costs.double()).log_softmax(dim=-1)


def fit_beta(costs: Tensor, wanted: float) -> float:
    """The beta at which the prior's mean cost is the wanted one.

    With the mean cost of routings that were chosen it is also the most likely beta, as in every exponential family.
    Below zero it prefers dear routings.

    Args:
        costs: of each routing, (n_routings,).
        wanted: mean cost, between the least and the largest.
    """
    from scipy.optimize import brentq  # a quarter of a second, which adapting does not need

    cheapest, dearest = float(costs.min()), float(costs.max())
    if not cheapest < wanted < dearest:
        raise BudgetInfeasible(
            f"no beta gives a mean cost of {wanted:g}: routings cost {cheapest:g} to {dearest:g}, choose one between"
        )

    def excess(beta: float) -> float:
        return float(cost_prior(costs, beta).exp() @ costs.double()) - wanted

    reach = 1 / (dearest - cheapest)
    while not excess(-reach) > 0 > excess(reach):
        reach *= 2
    return float(brentq(excess, -reach, reach))


def mixture_prior(regimes: Tensor, shares: Tensor | None = None) -> Tensor:
    """log sum_j share_j p_j(A), (n_routings,): operating regimes, such as cheap and accurate.

    Args:
        regimes: log p_j(A), (n_regimes, n_routings).
        shares: of the regimes, (n_regimes,), on the simplex; equal by default.
    """
    if shares is None:
        shares = regimes.new_full((len(regimes),), 1 / len(regimes))
    if not bool((shares >= 0).all()) or abs(float(shares.sum()) - 1) > 1e-6:
        raise InvalidWeights(f"shares of regimes {shares.tolist()} must be zero or more and sum to one")
    return (regimes + shares.to(regimes).log().unsqueeze(-1)).logsumexp(dim=0)


def averaged_cost_prior(costs: Tensor, betas: Tensor, shares: Tensor | None = None) -> Tensor:
    """The cost prior averaged over a hyperprior on beta, (n_routings,).

    Args:
        costs: of each routing, (n_routings,).
        betas: a grid, (n_betas,).
        shares: what the hyperprior gives each, (n_betas,); equal by default.
    """
    return mixture_prior(cost_prior(costs, betas), shares)
