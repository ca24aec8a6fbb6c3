"""Which residuals are sparse enough: at most k coordinates, or at most k blocks (multi-source paper, eqs. 1 and 3)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.algebra.threshold import hard_mask


@dataclass(frozen=True)
class Pattern:
    """At most `n_kept` units may differ from zero; a unit is a coordinate, or a block where blocks are given.

    Args:
        n_kept: units a residual may use.
        blocks: block number of each coordinate, (d,); None makes every coordinate its own unit.
        free: true for coordinates that may always differ from zero and are not counted, e.g. an intercept, (d,).
    """

    n_kept: int
    blocks: Tensor | None = None
    free: Tensor | None = None

    def n_units(self, n_parameters: int) -> int:
        """How many units there are."""
        return n_parameters if self.blocks is None else int(self.blocks.max()) + 1

    def sums(self, values: Tensor) -> Tensor:
        """Values summed over each unit, (n_tasks, n_units); free coordinates count as nothing."""
        counted = values if self.free is None else values.masked_fill(self.free, 0.0)
        if self.blocks is None:
            return counted
        return counted.new_zeros(len(values), self.n_units(values.shape[1])).index_add(1, self.blocks, counted)

    def spread(self, units: Tensor) -> Tensor:
        """True for every coordinate of the units that are true, and for the free ones."""
        mask = units.bool() if self.blocks is None else units.bool()[:, self.blocks]
        return mask if self.free is None else mask | self.free

    def units_of(self, point: Tensor) -> Tensor:
        """True for the units a residual uses, (n_tasks, n_units)."""
        return self.sums((point != 0).to(point.dtype)) > 0

    def top(self, scores: Tensor) -> Tensor:
        """True for the `n_kept` units of the highest positive scores, (n_tasks, n_units)."""
        return hard_mask(scores, self.n_kept).bool() & (scores > 0)

    def project(self, point: Tensor) -> Tensor:
        """The nearest residual of this pattern: H_k of equation 7, or its form for blocks."""
        return torch.where(self.spread(self.top(self.sums(point.square()))), point, 0.0)

    def holds(self, point: Tensor) -> Tensor:
        """Whether each task's residual is sparse enough, (n_tasks,)."""
        return self.units_of(point).sum(dim=1) <= self.n_kept
