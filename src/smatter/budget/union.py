"""What several experts open together: a device pays for every unit that any expert of weight above zero opens.

The weighted mean of their gates (AutoBudget paper, below equation 18) is not that: two experts with different halves of
a module and weights of one half each would seem to open half of it, and they open all.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smatter.errors import InvalidSettings


def union_open(openness: Tensor, alpha: Tensor) -> Tensor:
    """How open each unit is for the device: 1 - prod over experts with alpha_m > 0 of (1 - z_m); (..., n_units).

    It is the union where gates are 0 or 1, differentiable between, and nowhere below any of its experts.

    Args:
        openness: of each expert's gates, in [0, 1]; (..., n_experts, n_units).
        alpha: weights of the experts; (..., n_experts).

    >>> union_open(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0.5, 0.5]))
    tensor([1., 1., 0.])
    """
    return 1 - torch.where((alpha > 0)[..., None], 1 - openness, 1.0).prod(dim=-2)


def union_counts(orders: NDArray[np.int64], alpha: NDArray[np.float64]) -> NDArray[np.int64]:
    """Units of a module that are open when each expert with alpha_m > 0 opens its first n, for each n from zero on.

    Args:
        orders: the module's units as each expert ranks them, best first; (n_experts, n_units).
        alpha: weights of the experts; (n_experts,).

    >>> union_counts(np.array([[0, 1, 2, 3], [3, 2, 1, 0]]), np.array([0.5, 0.5]))
    array([0, 2, 4, 4, 4])
    """
    used = orders[np.asarray(alpha) > 0]
    n_units = orders.shape[1]
    if any(sorted(order) != list(range(n_units)) for order in used.tolist()):
        raise InvalidSettings(f"each expert must rank all of the module's {n_units} units once")
    first = np.full(n_units, n_units)  # the level from which on each unit is open
    for order in used:
        first[order] = np.minimum(first[order], np.arange(n_units))
    opened = np.bincount(first[first < n_units], minlength=n_units)
    return np.concatenate([[0], np.cumsum(opened)])
