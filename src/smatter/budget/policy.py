"""Which share of each module a budget opens: b_l(B; S, costs) in [0, 1], never falling as B grows (equation 9).

A policy sees the task's summary S, the logarithm of the budget, and a few features of each module: its costs on a
profile, the number of its units, what they promise. All modules share one small network, with the mean over modules as
context: their order does not matter, and a new profile is only other features.

    x_l = body(features_l, S, mean over modules),      b_l = cut(1.2 sigmoid(head(log B, x_l)) - 0.1)

Three heads rise with B: a network whose weights on the way from log B are positive; a spline through knots with
positive steps; and a spline through any values at the knots, replaced by the nearest ones that do not fall. All begin
with about the budget's own share in every module.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from smatter.algebra.layers import seeded_linear
from smatter.budget.monotone import (
    IsotonicHead,
    PositiveHead,
    SplineHead,
    interpolation_weights,
    isotonic,
)
from smatter.budget.ranked import Ranked
from smatter.errors import InvalidSettings

PolicyKind = Literal["positive", "spline", "isotonic"]
N_FEATURES = 6
BUDGET_KNOTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Budgets, as shares of what everything costs, between which splines in log B are linear."""


def module_features(ranked: Ranked) -> Tensor:
    """What a policy sees of each module, by its first resource; (n_modules, N_FEATURES).

    Log cost of all of it, its share of what everything costs, the part that being on costs, log number of units, and
    its share of all values, in full and of its first half.
    """
    modules = list(ranked.modules.values())
    costs = np.array([module.level_costs[0, -1] for module in modules])
    values = np.array([module.level_values[[-1, len(module.level_values) // 2]] for module in modules])
    rows = [
        np.log(costs + 1e-6),
        costs / max(costs.sum(), 1e-12),
        [module.on[0] / max(cost, 1e-12) for module, cost in zip(modules, costs, strict=True)],
        np.log([len(module.units) for module in modules]),
        *(values / max(np.abs(values[:, 0]).sum(), 1e-12)).T,
    ]
    return torch.tensor(np.stack(rows, axis=1), dtype=torch.float32)


HEADS: dict[str, type[nn.Module]] = {"positive": PositiveHead, "spline": SplineHead, "isotonic": IsotonicHead}


class BudgetPolicy(nn.Module):
    """See the module's text.

    Args:
        n_summary: numbers in a task's summary; 0 for a policy that is blind to the task.
        kind: the head.
        generator: of the first weights.
        width: of the body.
        knots: budgets between which splines are linear, as shares of what everything costs.
    """

    def __init__(
        self,
        n_summary: int,
        kind: PolicyKind,
        generator: torch.Generator,
        width: int = 32,
        knots: Sequence[float] = BUDGET_KNOTS,
    ) -> None:
        super().__init__()
        if kind not in get_args(PolicyKind):
            raise InvalidSettings(f"unknown kind of policy {str(kind)[:80]!r}: use {', '.join(HEADS)}")
        rising = all(low < high for low, high in pairwise(knots))
        if len(knots) < 2 or not rising or not 0 < knots[0] <= knots[-1] <= 1:
            raise InvalidSettings("knots are shares above 0 and up to 1, two or more, each larger than the one before")
        self.kind: PolicyKind = kind
        self.own = nn.Sequential(seeded_linear(N_FEATURES + n_summary, width, generator), nn.GELU())
        self.mixed = nn.Sequential(seeded_linear(2 * width, width, generator), nn.GELU())
        self.head = HEADS[kind](width, torch.tensor(knots).log(), generator)

    def forward(self, log_budgets: Tensor, summary: Tensor, features: Tensor) -> Tensor:
        """Shares b_l of some budgets, (n_budgets, n_modules).

        Args:
            log_budgets: log of each budget as a share of what everything open costs beyond the base; (n_budgets,).
            summary: of the task; (n_summary,).
            features: of the modules, as `module_features` has them; (n_modules, N_FEATURES).
        """
        own = self.own(torch.cat([features, summary.expand(len(features), -1)], dim=1))
        x = self.mixed(torch.cat([own, own.mean(dim=0).expand_as(own)], dim=1))
        return _stretched(self.head(log_budgets, x).sigmoid())


class CalibratedPolicy(nn.Module):
    """Shares found at a grid of budgets, by exact allocation say, made such that they do not fall.

    It is the same for all tasks, and for one profile.

    Args:
        budgets: as shares of what everything costs, rising; (n_budgets,).
        shares: of each module's units at each budget, such as means over tasks; (n_budgets, n_modules).
    """

    knots: Tensor
    shares: Tensor

    def __init__(self, budgets: Tensor, shares: Tensor) -> None:
        super().__init__()
        if not bool((budgets.diff() > 0).all()) or shares.shape[0] != len(budgets) or len(budgets) < 2:
            raise InvalidSettings("give shares at two or more budgets, each larger than the one before")
        self.register_buffer("knots", budgets.log())
        self.register_buffer("shares", isotonic(shares.T).T.clamp(0, 1))

    def forward(self, log_budgets: Tensor) -> Tensor:
        """Shares b_l, (n_budgets, n_modules)."""
        return interpolation_weights(log_budgets, self.knots) @ self.shares


def _stretched(shares: Tensor) -> Tensor:
    """Shares that can be exactly 0 and 1: stretched by a tenth at both ends and cut off.

    A sigmoid alone never reaches 1, so that floor(b K) would leave out the last unit of every module, and the only one
    of a rest. The gradient is that of what is not cut off: a module that is closed can open again.
    """
    wide = 1.2 * shares - 0.1
    return wide + (wide.clamp(0, 1) - wide).detach()
