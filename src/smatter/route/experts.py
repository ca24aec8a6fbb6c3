"""Residual experts: a shared delta, and for each expert a mask of gates over units (multi-source paper, section 6).

    D = sum_m alpha_m (z_m * delta)

A unit is what a gate switches: a group of a module (a head, some neurons, some channels), or a single element. Gates
are hard-concrete while they are learnt; afterwards each expert keeps its most open units, no more than are allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from smatter.algebra.gates import mean_gates, open_probability, sample_gates

TEMPERATURE = 0.5
OPEN = 1.0
"""Logits of the gates at the start."""


class Experts(nn.Module):
    """A shared delta and the masks of the experts.

    Args:
        unit_of: the unit of each element of the delta, (d,), numbered from zero.
        n_experts: masks.
        generator: of the first logits, which must differ for experts to part.
    """

    unit_of: Tensor
    sizes: Tensor

    def __init__(self, unit_of: Tensor, n_experts: int, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("unit_of", unit_of)
        self.register_buffer("sizes", torch.bincount(unit_of).float())
        self.delta = nn.Parameter(torch.zeros(len(unit_of)))
        noise = torch.randn(n_experts, len(self.sizes), generator=generator)
        self.logits = nn.Parameter(OPEN + 0.5 * noise)

    def gates(self, generator: torch.Generator | None = None) -> Tensor:
        """Gates, (n_experts, n_units): random with a generator, else their means."""
        return mean_gates(self.logits) if generator is None else sample_gates(self.logits, TEMPERATURE, generator)

    def residual(self, alpha: Tensor, gates: Tensor) -> Tensor:
        """D for weights of the experts, (n_experts,), and their gates; (d,)."""
        return self.delta * (alpha @ gates)[self.unit_of]

    def open_shares(self) -> Tensor:
        """Expected share of the parameters that each expert changes, then of all together; (n_experts + 1,)."""
        open_ = open_probability(self.logits, TEMPERATURE)
        union = 1 - (1 - open_).prod(dim=0)
        return torch.cat([open_, union[None]]) @ self.sizes / self.sizes.sum()

    def fixed(self, share: float) -> FixedExperts:
        """The experts with masks of zeros and ones that change at most this share of the parameters each.

        Units stay in the order of how open they are times how large their part of the delta is, as far as they fit.
        """
        norms = torch.zeros_like(self.sizes).index_add(0, self.unit_of, self.delta.detach().square())
        promise = open_probability(self.logits.detach(), TEMPERATURE) * (norms / self.sizes).sqrt()
        masks = torch.zeros_like(promise)
        for mask, wish in zip(masks, promise, strict=True):
            room = share * float(self.sizes.sum())
            for unit in wish.argsort(descending=True, stable=True).tolist():
                if wish[unit] > 0 and self.sizes[unit] <= room:
                    mask[unit] = 1.0
                    room -= float(self.sizes[unit])
        fixed = FixedExperts(torch.zeros(0), masks)
        return replace(fixed, values=self.delta.detach()[fixed.is_open(self.unit_of)])


@dataclass(frozen=True)
class FixedExperts:
    """Experts that have learnt.

    Args:
        values: the delta's elements in units that some expert opens, in order; (n,).
        masks: zeros and ones, (n_experts, n_units).
    """

    values: Tensor
    masks: Tensor

    def residual(self, alpha: Tensor, unit_of: Tensor) -> Tensor:
        """D for weights of the experts, (n_experts,), where elements are of these units, (d,)."""
        return self.delta(unit_of) * (alpha.float() @ self.masks)[unit_of]

    def delta(self, unit_of: Tensor) -> Tensor:
        """The shared delta, (d,); zero where no expert uses it."""
        result = torch.zeros(len(unit_of))
        result[self.is_open(unit_of)] = self.values
        return result

    def is_open(self, unit_of: Tensor) -> Tensor:
        """True for each element that some expert changes, (d,)."""
        return self.masks.amax(dim=0).bool()[unit_of]

    def shares(self, unit_of: Tensor) -> Tensor:
        """Share of the parameters that each expert changes, then all together; (n_experts + 1,)."""
        sizes = torch.bincount(unit_of, minlength=self.masks.shape[1]).float()
        return torch.cat([self.masks, self.masks.amax(dim=0, keepdim=True)]) @ sizes / sizes.sum()


@dataclass
class Multipliers:
    """Prices of too many open units: one for each expert, raised while it is above its share (a Lagrangian).

    A price falls to zero at once where the share is kept, so that an expert which has paid once is not held down (dual
    restarts, Gallego-Posada and others, 2022).

    Args:
        values: the prices, (n_experts,).
        rate: how fast they rise.
    """

    values: Tensor
    rate: float = 0.05

    def penalty(self, shares: Tensor, allowed: float) -> Tensor:
        """What to add to the loss; the prices are constants in it."""
        return (self.values * (shares / allowed - 1)).sum()

    def update(self, shares: Tensor, allowed: float) -> None:
        """Raise or forget the prices after a step."""
        excess = shares.detach() / allowed - 1
        self.values.add_(self.rate * excess).mul_(excess > 0)
