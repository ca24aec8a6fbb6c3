"""Steps down the loss of a task: Frank-Wolfe on the weights, thresholded gradient steps on a residual or on its gates.

None can end worse than it began on the loss that it descends (multi-source paper, sections 5 and 6).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from smatter.algebra.simplex import project_to_simplex
from smatter.algebra.threshold import hard_mask
from smatter.live.mixture import LiveMixture
from smatter.live.problems import GateLoss, MixtureLoss, ResidualLoss
from smatter.records import Progress, silent
from smatter.solve.frank_wolfe import FrankWolfe
from smatter.solve.loop import State, run
from smatter.solve.problem import Evaluation, Problem
from smatter.solve.solution import Solution
from smatter.solve.thresholding import HardThresholding, Projection
from smatter.units.layouts import Layout

GAP = 1e-2
"""Of the Frank-Wolfe steps: a hundredth of the loss is far less than its error from a few examples."""

DECREASE = 1e-4
"""Of the gradient steps: the decrease that the last one promised."""


@dataclass
class Steps:
    """Notes the loss, and the weights where these move, at the start and after each step.

    Args:
        progress: told 1 after each step.
    """

    progress: Progress = silent
    losses: list[float] = field(default_factory=list)
    path: list[tuple[float, ...]] = field(default_factory=list)

    def note(self, loss: float) -> None:
        """Note a loss; the first one is the start."""
        if self.losses:
            self.progress(1)
        self.losses.append(loss)

    def watch(self, state: State) -> None:
        """Note the loss of a search whose value it is."""
        self.note(float(state.value[0]))


def descend_weights(
    problem: MixtureLoss,
    start: Tensor,
    n_steps: int,
    steps: Steps,
    allowed: Tensor | None = None,
    tolerance: float = GAP,
    with_gap: bool = True,
) -> Solution:
    """Frank-Wolfe steps on weights, (n_blocks, n_sources).

    Args:
        problem: the loss of the weights.
        start: where they begin.
        n_steps: at most.
        steps: told the loss without the pull, and the weights.
        allowed: true for the sources that may carry weight, (n_sources,); all by default.
        tolerance: on the gap.
        with_gap: whether the gap in the end is of interest; it costs a backward pass.
    """

    def watch(state: State) -> None:
        steps.note(problem.loss(state.point))
        steps.path.append(tuple(state.point[0].mean(dim=0).tolist()))

    may_weigh = None if allowed is None else allowed.expand(1, *start.shape)
    algorithm = FrankWolfe(tolerance, "vanilla", "line search", may_weigh)
    loss: Problem = problem if with_gap else _Frugal(problem, n_steps)
    return run(algorithm, loss, start[None], max_steps=n_steps, clock=time.perf_counter, watch=watch)


class _Frugal(Problem):
    """A loss that gives a gradient for each step, and then its value alone: nothing follows the last step.

    Args:
        loss: of the weights.
        n_gradients: how many it gives.
    """

    def __init__(self, loss: MixtureLoss, n_gradients: int) -> None:
        self.loss, self.left = loss, n_gradients

    def evaluate(self, point: Tensor) -> Evaluation:
        """The loss and its gradient, or zero for one that nobody will use."""
        self.left -= 1
        return self.loss.evaluate(point) if self.left >= 0 else Evaluation(self.value(point), torch.zeros_like(point))

    def value(self, point: Tensor) -> Tensor:
        """The loss alone."""
        return self.loss.value(point)


def descend_residual(
    problem: ResidualLoss,
    project: Projection,
    n_steps: int,
    watch: Callable[[State], None],
    tolerance: float = DECREASE,
) -> Solution:
    """Gradient steps on a residual, (d,), that begins at zero and stays as sparse as `project` makes it."""
    start = torch.zeros(1, problem.live.numbering.n_parameters)
    return run(
        HardThresholding(project, tolerance),
        problem,
        start,
        max_steps=n_steps,
        clock=time.perf_counter,
        watch=watch,
    )


def keep_elements(n_kept: int) -> Projection:
    """To the nearest residual with at most this many elements (H_k of equation 7)."""
    return lambda point: torch.where(hard_mask(point.abs(), n_kept).bool(), point, 0.0)


def keep_modules(live: LiveMixture, n_kept: int) -> Projection:
    """To the nearest residual that touches at most this many modules; each is one slice of the vector."""
    slices = list(live.numbering.modules.values())

    def project(point: Tensor) -> Tensor:
        norms = torch.stack([torch.linalg.vector_norm(point[:, where], dim=1) for where in slices], dim=1)
        kept = hard_mask(norms, n_kept).bool()
        result = torch.zeros_like(point)
        for number, where in enumerate(slices):
            result[:, where] = torch.where(kept[:, number : number + 1], point[:, where], 0.0)
        return result

    return project


def descend_experts(
    loss: ResidualLoss,
    layout: Layout,
    values: Tensor,
    masks: Tensor,
    alpha: Tensor,
    n_steps: int,
    watch: Callable[[State], None] = lambda _: None,
) -> Tensor:
    """Gradient steps on the weights of experts; where they end, (n_experts,).

    Args:
        loss: of a residual.
        layout: the units of the experts' delta.
        values: of the delta, (n_values,).
        masks: how far each expert opens each unit, (n_experts, n_units).
        alpha: weights to begin at, (n_experts,).
        n_steps: at most.
        watch: told the state at the start and after each step.
    """

    def project(point: Tensor) -> Tensor:
        """To weights that are not negative and sum to at most one; the null expert has the rest."""
        inside = point.clamp(min=0)
        return torch.where(inside.sum(dim=1, keepdim=True) <= 1, inside, project_to_simplex(point))

    return _descend_gates(GateLoss(loss, layout, values, masks), alpha, project, n_steps, watch)


def descend_mask(
    loss: ResidualLoss, layout: Layout, values: Tensor, open_: Tensor, n_steps: int, watch: Callable[[State], None]
) -> Tensor:
    """Gradient steps on how far each unit is open, between 0 and 1; where they end, (n_units,)."""
    return _descend_gates(GateLoss(loss, layout, values), open_, lambda point: point.clamp(0, 1), n_steps, watch)


def _descend_gates(
    problem: GateLoss,
    start: Tensor,
    project: Callable[[Tensor], Tensor],
    n_steps: int,
    watch: Callable[[State], None],
) -> Tensor:
    algorithm = HardThresholding(project, DECREASE)
    return run(algorithm, problem, start[None], max_steps=n_steps, clock=time.perf_counter, watch=watch).point[0]
