"""The loss of a live network as problems of the solver: in the weights w, and in the residual D.

The gradient in w is one backward pass through the mixed network and R inner products with the sources, which are read
where they lie on disk; per module for free (multi-source paper, equation 5). Memory does not grow with R.
"""

from __future__ import annotations

import torch
from torch import Tensor

from smatter.compose.mixture import SIMPLEX_TOLERANCE, Mixture
from smatter.compose.residual import Residual
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Objective
from smatter.solve.problem import Evaluation, Problem
from smatter.units.layouts import Layout


class MixtureLoss(Problem):
    """The loss of a task as a function of the weights, (1, n_blocks, n_sources) in float64; not convex.

    A pull towards weights u may be added, pull / (2 n) R ||w - u||^2 for n examples and the mean over the blocks: few
    examples say little, and where they say nothing the plain average, or what a router said, is a good mixture.

    Values are remembered: a line search that returns to a point pays nothing, and a value never differs from what it
    was the first time. The plan rounds weights to float32, so points are the same when they are so rounded.

    Args:
        live: the network.
        objective: what the task asks of it.
        per_module: a row of weights for each module, in the partition's order, instead of one for all.
        residual: a fixed correction on top, if any.
        pull: how strong it is, in examples.
        center: weights that it pulls to, (n_sources,) or (n_blocks, n_sources); the plain average by default.
    """

    def __init__(
        self,
        live: LiveMixture,
        objective: Objective,
        per_module: bool = False,
        residual: Residual | None = None,
        pull: float = 0.0,
        center: Tensor | None = None,
    ) -> None:
        self.pull = pull / len(objective.classes)
        self.live, self.objective, self.residual = live, objective, residual
        self.sources = live.library.names
        self.center = torch.tensor(1 / len(self.sources)) if center is None else center
        self.modules = tuple(live.library.partition.modules) if per_module else ()
        self._known: dict[bytes, float] = {}

    @property
    def n_blocks(self) -> int:
        """Rows of weights."""
        return max(1, len(self.modules))

    def mixture(self, point: Tensor) -> Mixture:
        """The weights as a mixture; points off the simplex, of a finite difference say, become arithmetic."""
        rows = tuple(tuple(row) for row in point[0].tolist())
        on_simplex = bool((point >= 0).all()) and bool(((point.sum(dim=-1) - 1).abs() < SIMPLEX_TOLERANCE).all())
        return Mixture(self.sources, rows, self.modules, "simplex" if on_simplex else "arithmetic")

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss and its gradient: one backward pass."""
        self.live.compose(self.mixture(point), self.residual)
        loss = self._known.setdefault(_key(point), self.live.backward(self.objective))
        per_module = self.live.inner_products(self.sources)
        self.live.forget()
        gradient = per_module if self.modules else per_module.sum(dim=0, keepdim=True)
        pull, slope = self._pulled(point)
        return Evaluation(loss + pull, gradient.unsqueeze(0).to(point) + slope)

    def value(self, point: Tensor) -> Tensor:
        """Loss and pull, without gradient: one forward pass."""
        return self.loss(point) + self._pulled(point)[0]

    def _pulled(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """What the pull adds to the loss, (1,), and to its gradient."""
        away = point - self.center.to(point)
        slope = self.pull * len(self.sources) / self.n_blocks * away
        return 0.5 * (slope * away).sum(dim=(1, 2)), slope

    def loss(self, point: Tensor) -> float:
        """The loss without the pull."""
        key = _key(point)
        if key not in self._known:
            self.live.compose(self.mixture(point), self.residual)
            self._known[key] = self.live.loss(self.objective)
        return self._known[key]


class ResidualLoss(Problem):
    """The loss of a task as a function of the correction D, (1, d) in float32, at a fixed mixture.

    D covers the tensors that the backbone uses, module after module, each module one contiguous slice. It is dense
    while it is being solved for: a point, a gradient and a trial point each take the memory of a network.

    Args:
        live: the network.
        objective: what the task asks of it.
        mixture: the weights.
        fixed: a correction below D that stays as it is, (d,).
    """

    def __init__(self, live: LiveMixture, objective: Objective, mixture: Mixture, fixed: Tensor | None = None) -> None:
        self.live, self.objective, self.mixture, self.fixed = live, objective, mixture, fixed

    def residual(self, point: Tensor) -> Residual:
        """A point, with what is fixed below it, as a dense residual of the tensors where it is not zero."""
        vector = point[0].detach()
        return self.live.numbering.residual(vector if self.fixed is None else vector + self.fixed)

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss and its dense gradient: one backward pass."""
        self.live.compose(self.mixture, self.residual(point))
        value = self.live.backward(self.objective)
        gradient = self.live.gradient_vector()[None]
        self.live.forget()
        return Evaluation(torch.tensor([value], dtype=point.dtype), gradient)

    def value(self, point: Tensor) -> Tensor:
        """The loss alone: one forward pass; infinite where the correction is not finite."""
        if not bool(torch.isfinite(point).all()):
            return torch.tensor([torch.inf], dtype=point.dtype)
        self.live.compose(self.mixture, self.residual(point))
        return torch.tensor([self.live.loss(self.objective)], dtype=point.dtype)


class GateLoss(Problem):
    """The loss of a task as a function of gates on a given correction, open = gates @ masks, at a mixture.

    Args:
        loss: as a function of D.
        layout: the units that the gates open.
        values: what is in them, (n_values,).
        masks: how far each gate opens each unit, (n_gates, n_units); each unit has its own gate by default.
    """

    def __init__(self, loss: ResidualLoss, layout: Layout, values: Tensor, masks: Tensor | None = None) -> None:
        self.loss, self.layout, self.values, self.masks = loss, layout, values, masks

    def correction(self, point: Tensor) -> Tensor:
        """D of some gates, (1, d) from (1, n_gates)."""
        return self.layout.expand(self.values, self._open(point)[0])[None]

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss and its gradient in the gates: one backward pass."""
        free = point.detach().requires_grad_()
        correction = self.correction(free)
        value, slopes = self.loss.evaluate(correction.detach())
        (gradient,) = torch.autograd.grad(correction, free, slopes)
        return Evaluation(value, gradient)

    def value(self, point: Tensor) -> Tensor:
        """The loss alone: one forward pass."""
        return self.loss.value(self.correction(point))

    def _open(self, point: Tensor) -> Tensor:
        """How far each unit is open, (1, n_units)."""
        return point if self.masks is None else point @ self.masks


def _key(point: Tensor) -> bytes:
    return point.to(torch.float32).numpy().tobytes()
