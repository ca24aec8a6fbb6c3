"""What a budget allows the modules to cost, on a profile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from smatter.budget.knapsack import ROUNDING
from smatter.budget.latency import unbent
from smatter.budget.wish import BudgetWish
from smatter.errors import BudgetInfeasible, InvalidProfile


def allowance(
    wish: BudgetWish,
    *,
    base: float,
    unit: str,
    quantile: float,
    kappa: float = 1.0,
    epsilon: float = 0.0,
    extra_factor: float = 1.0,
    bend: float = 0.0,
) -> float:
    """The sum of module costs, in shares of the base, that a budget allows on a profile; infinite where all of them do.

        kappa base (1 + extra_factor bent(sum)) + epsilon <= budget

    Args:
        wish: the budget.
        base: what the base takes, in the profile's unit.
        unit: of the profile.
        quantile: that the profile bounds.
        kappa, epsilon: what is measured is at most kappa * predicted + epsilon.
        extra_factor: by how much what deltas add may exceed what is predicted for it.
        bend: what is not additive; see `LatencyModel`.
    """
    if wish.unit not in (unit, "x"):
        raise InvalidProfile(f"a budget of {wish} needs a profile in {wish.unit}, this one is in {unit}")
    if wish.quantile is not None and not np.isclose(wish.quantile, quantile):
        raise InvalidProfile(
            f"the profile bounds the quantile {quantile:g}, not {wish.quantile:g}: profile with that, or leave it out"
        )
    factor = base if wish.unit == "x" else 1.0
    extra = ((wish.value * factor - epsilon) / (kappa * base) - 1) / extra_factor
    if extra < -ROUNDING:
        least = replace(wish, value=_rounded_up((kappa * base + epsilon) / factor))
        raise BudgetInfeasible(f"a budget of {wish} is below the smallest possible one, {least}, with nothing open")
    return float(unbent(np.array([max(extra, 0.0)]), bend)[0])


def _rounded_up(value: float) -> float:
    """To six figures, as budgets are written, and never below: what is named must be enough.

    >>> _rounded_up(8.12345678)
    8.12346
    >>> _rounded_up(8.123451)
    8.12346
    """
    step = 10.0 ** (np.floor(np.log10(value)) - 5)
    return float(f"{np.ceil(value / step - ROUNDING) * step:.6g}")
