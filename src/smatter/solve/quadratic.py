"""Mixture of sources under a squared loss, from sufficient statistics: R x R numbers per task."""

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.solve.problem import Evaluation

LIFT = 1e-11


@dataclass(frozen=True)
class QuadraticMixture:
    """1/2 w'Qw - q'w + c in the weights of all blocks together.

    With loss 1/2n |X theta - y|^2 + ridge/2 |theta|^2 and theta = sum_r w_r theta_r + D: Q = T H T', q = T (b - H D),
    where the rows of T are the sources, H = X'X/n + ridge I and b = X'y/n. Every step costs what R demands, whatever
    d and n are (multi-source paper, section 9).

    Args:
        quadratic: Q, (n_tasks, n_blocks * n_sources, n_blocks * n_sources).
        linear: q, (n_tasks, n_blocks * n_sources).
        constant: c, (n_tasks,).
        n_blocks: blocks of weights.
    """

    quadratic: Tensor
    linear: Tensor
    constant: Tensor
    n_blocks: int = 1
    is_convex = True
    is_quadratic = True

    def evaluate(self, point: Tensor) -> Evaluation:
        """1/2 w'Qw - q'w + c and Q w - q."""
        flat = point.flatten(1)
        bent = self._times(flat)
        value = (flat * (0.5 * bent - self.linear)).sum(dim=1) + self.constant
        return Evaluation(value, (bent - self.linear).reshape(point.shape))

    def value(self, point: Tensor) -> Tensor:
        """The loss of each task."""
        return self.evaluate(point).value

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Q d."""
        return self._times(direction.flatten(1)).reshape(direction.shape)

    def minimum_on(self, active: Tensor) -> Tensor:
        """The minimum over weights of the active sources that sum to one in each block but may be negative.

        Args:
            active: shaped as the weights, (n_tasks, n_blocks, n_sources).
        """
        _, n_blocks, n_sources = active.shape
        flat = active.flatten(1)
        # Q_AA, an identity elsewhere; lifted a little, so that sources that are the same do no harm.
        lift = LIFT * self.quadratic.diagonal(dim1=1, dim2=2).amax(dim=1, keepdim=True).clamp(min=1e-30)
        matrix = torch.where(flat[:, :, None] & flat[:, None, :], self.quadratic, 0.0)
        matrix.diagonal(dim1=1, dim2=2).add_(torch.where(flat, lift, 1.0))
        sums = torch.eye(n_blocks, dtype=self.linear.dtype).repeat_interleave(n_sources, dim=1) * flat[:, None]
        right = torch.cat([sums, torch.where(flat, self.linear, 0.0)[:, None]], dim=1).mT
        solved = torch.cholesky_solve(right, torch.linalg.cholesky_ex(matrix)[0])
        # w = Q^-1 (q + E'v) with v such that every block sums to one.
        totals = sums @ solved
        prices: Tensor = torch.linalg.solve_ex(totals[..., :-1], 1 - totals[..., -1:])[0]
        return (solved[..., -1:] + solved[..., :-1] @ prices).reshape(active.shape)

    def select(self, tasks: Tensor) -> "QuadraticMixture":
        """The problem of some tasks."""
        return QuadraticMixture(self.quadratic[tasks], self.linear[tasks], self.constant[tasks], self.n_blocks)

    def _times(self, flat: Tensor) -> Tensor:
        return (self.quadratic @ flat.unsqueeze(-1)).squeeze(-1)
