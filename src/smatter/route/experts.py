"""Residual experts: a shared delta, and for each expert a mask of gates over its units (multi-source paper, section 6).

    D = sum_m alpha_m (z_m * delta)

What a unit is, a `Layout` says. Gates are hard-concrete while they are learnt; afterwards each expert keeps its most
open units, no more than are allowed.

Some units may be common to all tasks. Then every mask has them, and the null expert has a mask with nothing else. The
weights, with the null expert's, sum to one, so that common units are open whatever the weights are.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smatter.algebra.gates import mean_gates, open_probability, sample_gates
from smatter.errors import InvalidSettings
from smatter.units.layouts import Layout

TEMPERATURE = 0.5
OPEN = 1.0
"""Logits of the gates at the start."""

OPENED, CLOSED = 2.5, -5.0
"""Logits of gates that are as good as open and closed, but still learn."""


SMALLEST = 0.02
"""An expert of less weight is not used."""


def used(alpha: Tensor) -> Tensor:
    """Weights of the experts, (n_experts,), with hardly any left to the null expert: each that is used costs.

    >>> used(torch.tensor([0.5, 0.01, 0.3]))
    tensor([0.5000, 0.0000, 0.3000])
    """
    return torch.where(alpha < SMALLEST, 0.0, alpha)


def with_null(alpha: Tensor, n_masks: int) -> Tensor:
    """Weights of a bank's masks, (n_masks,): those of the experts, then the null expert's if it has a mask.

    >>> with_null(torch.tensor([0.25, 0.5]), 3)
    tensor([0.2500, 0.5000, 0.2500])
    """
    if n_masks == len(alpha):
        return alpha
    return torch.cat([alpha, (1 - alpha.sum(dim=0, keepdim=True)).clamp(min=0)])


class Experts(nn.Module):
    """A shared delta and the masks of the experts.

    Args:
        layout: the units of the delta.
        n_experts: masks; there may be none where some units are common.
        generator: of the first values and logits; these must differ for experts to part.
    """

    def __init__(self, layout: Layout, n_experts: int, generator: torch.Generator) -> None:
        super().__init__()
        self.layout = layout
        self.sizes = torch.bincount(layout.unit_of).float()
        self.values = nn.Parameter(layout.first_values(generator))
        noise = torch.randn(n_experts, len(self.sizes), generator=generator)
        self.logits = nn.Parameter(OPEN + 0.5 * noise)
        self.common: Tensor | None = None
        """Whether each unit is open for all tasks, (n_units,); experts have no gates there."""

    def begin_with(self, masks: Tensor) -> None:
        """Open these units of each expert, (n_experts, n_units), and close all others."""
        with torch.no_grad():
            self.logits.copy_(torch.where(masks, OPENED, CLOSED))

    def gates(self, generator: torch.Generator | None = None) -> Tensor:
        """Gates, (n_experts, n_units): random with a generator, else their means."""
        gates = mean_gates(self.logits) if generator is None else sample_gates(self.logits, TEMPERATURE, generator)
        return self._own(gates)

    def residual(self, alpha: Tensor, gates: Tensor) -> Tensor:
        """D for weights of the experts, (n_experts,), and their gates; (n_parameters,)."""
        open_ = alpha @ gates
        return self.layout.expand(self.values, open_ if self.common is None else open_ + self.common)

    def open_shares(self) -> Tensor:
        """Expected share of the delta's values that each expert uses, then all together; (n_experts + 1,).

        What is common does not count.
        """
        open_ = self._own(open_probability(self.logits, TEMPERATURE))
        union = 1 - (1 - open_).prod(dim=0)
        return torch.cat([open_, union[None]]) @ self.sizes / self.sizes.sum()

    def check_room(self, share: float) -> None:
        """Refuse a share that not even the smallest unit fits in."""
        least = float(self.sizes.min() / self.sizes.sum())
        if share < least:
            raise InvalidSettings(
                f"a share of {share:g} has no room for any unit, the smallest takes {least:.2g}: "
                "give more, or --units elements"
            )

    def fixed(self, share: float) -> tuple[NDArray[np.float16], NDArray[np.bool_]]:
        """Values and masks of experts that use at most this share of the delta's values each, as a `Bank` has them.

        Units stay in the order of how open they are times how strong they are for their size, as far as they fit;
        those that are closed stay closed. Common units are in all masks beside that, and the null expert's comes last.
        """
        values = self.values.detach()
        worth = self.layout.strengths(values) / self.sizes.sqrt()
        promise = open_probability(self.logits.detach(), TEMPERATURE) * worth
        promise = torch.where(self.gates().detach() > 0, promise, 0.0)
        room = share * float(self.sizes.sum())
        rows = [_fitting(wish, self.sizes, room) for wish in promise]
        if self.common is not None:
            rows = [*(row | self.common for row in rows), self.common]
        masks = torch.stack(rows)
        is_open = masks.any(dim=0)[self.layout.unit_of]
        return values[is_open].half().numpy(), masks.numpy()

    def _own(self, rows: Tensor) -> Tensor:
        """What is said of the gates of each expert, (n_experts, n_units), with nothing of common units."""
        return rows if self.common is None else rows.masked_fill(self.common, 0.0)


def _fitting(wish: Tensor, sizes: Tensor, room: float) -> Tensor:
    """The mask of the units most wished for, (n_units,), whose sizes fit the room."""
    mask = torch.zeros(len(wish), dtype=torch.bool)
    order = wish.argsort(descending=True, stable=True)
    if bool((sizes == sizes[0]).all()):
        mask[order[: int(room / float(sizes[0]))]] = True
        return mask & (wish > 0)
    for unit in order.tolist():
        if wish[unit] > 0 and sizes[unit] <= room:
            mask[unit] = True
            room -= float(sizes[unit])
    return mask
