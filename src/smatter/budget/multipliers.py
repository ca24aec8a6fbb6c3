"""Prices of constraints in training, raised while they are broken (a Lagrangian).

    minimise f(x) subject to g_i(x) <= 0:   x descends on f + sum_i lambda_i g_i,   lambda_i <- [lambda_i + rate g_i]_+

g is in a scale of its own: the smooth bound on latency less the budget, or shares of open units over those allowed. A
budget that varies from step to step has a price that varies with it: one for each knot of a grid of budgets, with the
weights of `interpolation_weights`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from smatter.errors import InvalidSettings


@dataclass(frozen=True)
class PriceStep:
    """What a step did to the prices, for a log.

    Args:
        violations: g of each constraint; positive where it is broken.
        prices: of each, after the step.
        forgotten: whether each was damped, having been kept for a whole window.
    """

    violations: tuple[float, ...]
    prices: tuple[float, ...]
    forgotten: tuple[bool, ...]


@dataclass
class Multipliers:
    """Prices, one for each constraint.

    Where a constraint has been kept for a whole window, its price is damped: to zero by default and at once, so that an
    expert which has paid once is not held down (dual restarts, Gallego-Posada and others, 2022). A damping of 1 is
    plain projected ascent, whose prices settle at the shadow prices of a convex problem; restarted ones do not settle.

    Args:
        values: the prices, (n_constraints,).
        rate: how fast they rise.
        window: steps that a constraint must have been kept for.
        damping: what is left of its price then.
        ceiling: no price is above.
        kept: steps that each constraint has been kept for; (n_constraints,).
    """

    values: Tensor
    rate: float = 0.05
    window: int = 1
    damping: float = 0.0
    ceiling: float = float("inf")
    kept: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.window >= 1 and 0 <= self.damping <= 1 and self.ceiling > 0):
            raise InvalidSettings("prices need a rate and a ceiling above 0, a window of 1 or more, a damping up to 1")
        if not self.kept.numel():
            self.kept = torch.zeros(self.values.shape, dtype=torch.int64)

    def price(self, violations: Tensor) -> Tensor:
        """What to add to the loss for g, (n_constraints,); the prices are constants in it."""
        return (self.values * violations).sum()

    def ascend(self, violations: Tensor, seen: Tensor | None = None) -> PriceStep:
        """Raise, lower or forget the prices after a step.

        Args:
            violations: g, (n_constraints,).
            seen: constraints that the step says anything of; prices of the others stay. All by default.
        """
        broken = violations.detach().to(self.values)
        now = torch.ones_like(broken, dtype=torch.bool) if seen is None else seen
        self.kept = torch.where(now, torch.where(broken > 0, 0, self.kept + 1), self.kept)
        forgotten = now & (self.kept >= self.window) & (self.damping < 1)
        raised = (self.values + self.rate * broken).clamp(0, self.ceiling)
        raised = torch.where(forgotten, self.damping * raised, raised)
        self.values.copy_(torch.where(now, raised, self.values))  # in place: a trainer keeps the tensor
        return PriceStep(tuple(broken.tolist()), tuple(self.values.tolist()), tuple(forgotten.tolist()))

    def penalty(self, shares: Tensor, allowed: float) -> Tensor:
        """What to add to the loss for experts that open more than their share."""
        return self.price(shares / allowed - 1)

    def update(self, shares: Tensor, allowed: float) -> PriceStep:
        """Raise or forget the prices of experts after a step."""
        return self.ascend(shares / allowed - 1)

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on."""
        return {"prices": self.values, "kept": self.kept}

    def resume(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        self.values.copy_(state["prices"])
        self.kept = state["kept"].clone()


@dataclass(frozen=True)
class KKTResidual:
    """How far a point and prices are from optimal, each part zero at an optimum of a convex problem.

    Args:
        stationarity: norm of the projected gradient of the Lagrangian.
        violation: the largest g, or zero.
        slackness: the largest |lambda g|. Without the bars, as the paper has it, every constraint that is kept would
            pass at any price, and points far from optimal with it.
    """

    stationarity: float
    violation: float
    slackness: float

    @property
    def largest(self) -> float:
        """The epsilon for which this is an epsilon-KKT point."""
        return max(self.stationarity, self.violation, self.slackness)


def kkt_residual(gradient: Tensor, violations: Tensor, prices: Tensor) -> KKTResidual:
    """The residual of a point.

    Args:
        gradient: of the Lagrangian in x, projected where x is bounded (`projected_gradient`).
        violations: g; (n_constraints,).
        prices: lambda; (n_constraints,).
    """
    if bool((prices < 0).any()):
        raise InvalidSettings("a price is negative: prices are projected to zero and above")
    return KKTResidual(
        stationarity=float(gradient.norm()),
        violation=float(violations.clamp(min=0).max()),
        slackness=float((prices * violations).abs().max()),
    )


def projected_gradient(point: Tensor, gradient: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """What a unit step down the gradient moves a point of the box; zero where none is possible.

    >>> projected_gradient(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([2.0, 0.25, -3.0]))
    tensor([0.0000, 0.2500, 0.0000])
    """
    return point - (point - gradient).clamp(low, high)
