"""How open units are when a share b_l of module l may be: nested, soft while it is learnt and hard at the end.

The k-th unit of module l, counted from 1 in the module's order, is open by

    soft:  sigmoid((b_l K_l - k + lead) / tau),   lead = min(1/2, 3 tau)          hard:  [k <= floor(b_l K_l)]

A larger share closes no unit. Hard openness is at most b_l K_l units and more than b_l K_l - 1, so what is served costs
no more than what was priced. While tau is large, the lead makes soft openness add up to about b_l K_l; as tau falls to
zero, soft openness becomes the hard one, and the last unit of a module whose share is 1 is open, not half open.
"""

from __future__ import annotations

import torch
from torch import Tensor

from smatter.budget.ranked import NEARLY
from smatter.settings import check_positive


def soft_openness(shares: Tensor, ranks: Tensor, module_of: Tensor, tau: float) -> Tensor:
    """Openness in (0, 1), differentiable in the shares; (..., n_units).

    Args:
        shares: b_l; (..., n_modules).
        ranks: position of each unit in its module's order, from 0; (n_units,).
        module_of: the module of each unit; (n_units,).
        tau: temperature, in units.
    """
    lead = min(0.5, 3 * tau)
    return ((_reach(shares, module_of) - (ranks + 1) + lead) / tau).sigmoid()


def hard_openness(shares: Tensor, ranks: Tensor, module_of: Tensor) -> Tensor:
    """Whether each of the first floor(b_l K_l) units of a module is open, as 0 or 1; (..., n_units)."""
    return (ranks < (_reach(shares, module_of) + NEARLY).floor()).to(shares.dtype)


def straight_through_openness(shares: Tensor, ranks: Tensor, module_of: Tensor, tau: float) -> Tensor:
    """Hard openness with the gradient of the soft one."""
    soft = soft_openness(shares, ranks, module_of, tau)
    return soft + (hard_openness(shares, ranks, module_of) - soft).detach()


def _reach(shares: Tensor, module_of: Tensor) -> Tensor:
    """b_l K_l of each unit's module; (..., n_units)."""
    sizes = torch.bincount(module_of, minlength=shares.shape[-1])
    return (shares * sizes)[..., module_of]


def ranks_within(values: Tensor, module_of: Tensor) -> Tensor:
    """Position of each unit in its module, from 0, by falling value; equal ones in the order of their numbers.

    >>> ranks_within(torch.tensor([1.0, 3.0, 2.0, 5.0]), torch.tensor([0, 0, 0, 1]))
    tensor([2, 0, 1, 0])
    """
    by_value = values.argsort(descending=True, stable=True)
    order = by_value[module_of[by_value].argsort(stable=True)]  # modules one after the other
    starts = torch.bincount(module_of).cumsum(dim=0) - torch.bincount(module_of)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order)) - starts[module_of[order]]
    return ranks


def temperature_at(step: int, n_steps: int, first: float = 2.0, last: float = 0.1) -> float:
    """tau in a training of some steps: it falls by the same factor in each.

    >>> [round(temperature_at(step, 5, 1.6, 0.1), 3) for step in range(5)]
    [1.6, 0.8, 0.4, 0.2, 0.1]
    """
    check_positive(first=first, last=last, n_steps=n_steps)
    return first * float((last / first) ** min(step / max(n_steps - 1, 1), 1.0))
