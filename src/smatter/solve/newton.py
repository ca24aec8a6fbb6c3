"""Newton's method over products of simplices: each step minimises the loss's quadratic model there, then backtracks.

The model is minimised by Frank-Wolfe with corrective steps, begun at the weights at hand: once the active sources no
longer change, that is one small linear system. A step costs one Hessian. Pools of cosine scores take four or five
steps, pools of scores in the hundreds about twenty.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.solve.frank_wolfe import SUFFICIENT, FrankWolfe, backtrack, duality_gap
from smatter.solve.loop import State, run
from smatter.solve.problem import CurvedProblem, Expansion, Problem
from smatter.solve.quadratic import QuadraticMixture

MODEL_TOLERANCE = 1e-2
"""Gap to which a model is minimised, relative to the loss's own gap: exact models cost more than the steps they save,
while rough ones need so many steps that rounding ends them first."""

MODEL_STEPS = 50

ROUNDING = 2e-15
"""Share of the loss that a full step may raise it by: the last steps lower it by less than it is exact to."""

ROUNDING_IN_GAP = 1e-11
"""The same for a step that halves the gap, which is exact where a loss that sums large terms is not."""


@dataclass(frozen=True)
class Newton:
    """Second-order steps on weights (n_tasks, n_blocks, n_sources) of a `CurvedProblem`.

    Args:
        tolerance: on the duality gap, which bounds the distance from the minimum; models are exact to about 1e-11.
        allowed: true for the sources that may carry weight, shaped as the weights; all by default.
    """

    tolerance: float = 1e-8
    allowed: Tensor | None = None
    patience = 3

    def start(self, problem: Problem, point: Tensor) -> State:
        """The state at given weights."""
        return _state(point, _expand(problem, point), () if self.allowed is None else (self.allowed,))

    def step(self, problem: Problem, state: State, index: int) -> State:  # noqa: ARG002
        """To the minimum of the model, or as far towards it as lowers the loss enough."""
        _, *allowed = state.memory
        point = self._model_minimum(state)
        expansion = _expand(problem, point)
        halved = duality_gap(point, expansion.gradient, *allowed) <= 0.5 * state.gap
        rounding = torch.where(halved, ROUNDING_IN_GAP, ROUNDING) * state.value.abs().clamp(min=1)
        slope = (state.gradient * (point - state.point)).sum(dim=(1, 2))
        short = (expansion.value > state.value + SUFFICIENT * slope + rounding).nonzero().flatten()
        if len(short):
            few, begin = problem.select(short), state.select(short)
            half = 0.5 * (point[short] - begin.point)  # the whole step has just failed
            share = backtrack(few, begin.point, begin.value, direction=half, slope=0.5 * slope[short])
            nearer = begin.point + share[:, None, None] * half
            point = point.index_copy(0, short, nearer)
            pairs = zip(expansion, _expand(few, nearer), strict=True)
            expansion = Expansion(*(whole.index_copy(0, short, part) for whole, part in pairs))
        return _state(point, expansion, tuple(allowed))

    def _model_minimum(self, state: State) -> Tensor:
        """Where 1/2 d'Hd + g'd is least on the simplices, d being the way from the weights at hand."""
        hessian, *allowed = state.memory
        # Losses are counted in gaps, each task's own, so that one tolerance fits all models.
        unit = state.gap.maximum(self.tolerance * state.value.abs().clamp(min=1))[:, None]
        flat, gradient, quadratic = state.point.flatten(1), state.gradient.flatten(1) / unit, hessian / unit[..., None]
        bent = (quadratic @ flat.unsqueeze(-1)).squeeze(-1)
        constant = (flat * (0.5 * bent - gradient)).sum(dim=1)  # so that the model begins at zero
        model = QuadraticMixture(quadratic, bent - gradient, constant, state.point.shape[1])
        algorithm = FrankWolfe(MODEL_TOLERANCE, allowed=allowed[0] if allowed else None)
        return run(algorithm, model, state.point, MODEL_STEPS).point


def _state(point: Tensor, expansion: Expansion, allowed: tuple[Tensor, ...]) -> State:
    """The Hessian and what is allowed are the memory."""
    gap = duality_gap(point, expansion.gradient, *allowed)
    return State(point, expansion.value, expansion.gradient, gap, (expansion.hessian, *allowed))


def _expand(problem: Problem, point: Tensor) -> Expansion:
    if not isinstance(problem, CurvedProblem):
        raise TypeError(f"{type(problem).__name__} does not tell its Hessian: use FrankWolfe")
    return problem.expand(point)
