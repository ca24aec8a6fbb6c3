"""Lasso and group lasso by accelerated proximal gradient (multi-source paper, equation 8).

Beck and Teboulle's FISTA with O'Donoghue and Candes' restart. Without blocks every coordinate is its own group and
the penalty is the lasso's. Free coordinates of the pattern are not penalised.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.linear.residual import ResidualProblem
from smatter.solve.loop import State, run
from smatter.solve.pattern import Pattern
from smatter.solve.problem import Evaluation, Problem

GROWTH = 1.5
PATH_LENGTH = 8
PATH_END = 0.02


@dataclass(frozen=True)
class ProximalGradient:
    """Minimise loss + strength * sum of unit norms over residuals, (n_tasks, d).

    Args:
        strength: lambda, of each task, (n_tasks,) or one for all.
        pattern: what the units are; its `n_kept` plays no part.
        tolerance: on the duality gap, for losses that are convex and not negative.
    """

    strength: Tensor
    pattern: Pattern
    tolerance: float = 1e-7
    patience = 100

    def start(self, problem: Problem, point: Tensor) -> State:
        """The state at any residual; the curvature is first guessed along the gradient."""
        value, gradient = problem.evaluate(point)
        strength = self.strength.to(value).expand_as(value)
        curvature = _curvature(problem, point, gradient)
        memory = (strength, point, gradient, torch.ones_like(value), curvature)
        return self._state(point, value, gradient, memory)

    def step(self, problem: Problem, state: State, index: int) -> State:  # noqa: ARG002
        """One proximal step from the extrapolated point, then the next extrapolation."""
        strength, ahead, ahead_gradient, momentum, curvature = state.memory
        while True:
            point = self._shrink(ahead - ahead_gradient / curvature[:, None], strength / curvature)
            move = point - ahead
            value, gradient = problem.evaluate(point)
            # <g(new) - g(old), move> <= L |move|^2 is all that the step needs of L, for convex losses.
            bend = ((gradient - ahead_gradient) * move).sum(dim=1)
            length = move.square().sum(dim=1)
            short = bend > curvature * length * (1 + 1e-9) + 1e-30
            if not bool(short.any()):
                break
            curvature = torch.where(
                short, torch.maximum(GROWTH * curvature, bend / length.clamp(min=1e-300)), curvature
            )
        step = point - state.point
        restart = ((ahead - point) * step).sum(dim=1) > 0
        following = torch.where(restart, 1.0, 0.5 * (1 + (1 + 4 * momentum.square()).sqrt()))
        inertia = torch.where(restart, 0.0, (momentum - 1) / following)[:, None]
        next_ahead = point + inertia * step
        if problem.is_quadratic:  # its gradient is affine
            next_gradient = gradient + inertia * (gradient - state.gradient)
        else:
            next_gradient = problem.evaluate(next_ahead).gradient
        return self._state(point, value, gradient, (strength, next_ahead, next_gradient, following, curvature))

    def _state(self, point: Tensor, value: Tensor, gradient: Tensor, memory: tuple[Tensor, ...]) -> State:
        total, gap = penalised(self.pattern, memory[0], point, Evaluation(value, gradient))
        return State(point, total, gradient, gap, memory)

    def _shrink(self, point: Tensor, threshold: Tensor) -> Tensor:
        norms = self.pattern.sums(point.square()).sqrt()
        scale = (1 - threshold[:, None] / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(min=0)
        per_coordinate = scale if self.pattern.blocks is None else scale[:, self.pattern.blocks]
        if self.pattern.free is not None:
            per_coordinate = per_coordinate.masked_fill(self.pattern.free, 1.0)
        return point * per_coordinate


def penalised(pattern: Pattern, strength: Tensor, point: Tensor, known: Evaluation) -> tuple[Tensor, Tensor]:
    """Loss plus penalty, and an upper bound on how far that is above its minimum, from the gradient alone.

    A loss that is not negative keeps the minimiser's norm below total / lambda; over that ball the linear model of the
    loss is least at zero or at the unit of steepest gradient.

    Args:
        pattern: what the units are.
        strength: lambda, (n_tasks,).
        point: a residual, (n_tasks, n_parameters).
        known: the loss and its gradient there.
    """
    norms = pattern.sums(point.square()).sqrt().sum(dim=1)
    total = known.value + strength * norms
    excess = (pattern.sums(known.gradient.square()).sqrt().amax(dim=1) - strength).clamp(min=0)
    reach = total / strength.clamp(min=torch.finfo(total.dtype).tiny)
    gap = (known.gradient * point).sum(dim=1) + strength * norms + reach * excess
    if pattern.free is not None:
        # Free coordinates have no bound; at their optimum the gradient is zero, so its size is what counts.
        gap = gap + torch.where(pattern.free, known.gradient, 0.0).norm(dim=1) * (1 + point.norm(dim=1))
    return total, gap.clamp(min=0)


def largest_strength(problem: Problem, pattern: Pattern, point: Tensor) -> Tensor:
    """The least lambda at which no unit is active, given a residual that is zero but for free coordinates."""
    return pattern.sums(problem.evaluate(point).gradient.square()).sqrt().amax(dim=1)


def relax_and_refit(
    problem: ResidualProblem, pattern: Pattern, strength: Tensor | None = None, max_steps: int = 200
) -> Tensor:
    """Solve the relaxation, keep the top units, refit on them; without a strength, the best along a path of them."""
    zero = torch.zeros_like(problem.base)
    empty = problem.refit(pattern.spread(pattern.units_of(zero)))
    if strength is None:
        shares = torch.logspace(0, torch.tensor(PATH_END).log10(), PATH_LENGTH + 1, dtype=zero.dtype)[1:]
        strengths = [share * largest_strength(problem, pattern, empty) for share in shares]
    else:
        strengths = [strength]
    best, best_value, relaxed = empty, problem.value(empty), empty
    for value_of in strengths:
        relaxed = run(ProximalGradient(value_of, pattern, 1e-4), problem, relaxed, max_steps).point
        top = pattern.spread(pattern.top(pattern.sums(relaxed.square())))
        refitted = problem.refit(top)
        value = problem.value(refitted)
        best = torch.where((value < best_value)[:, None], refitted, best)
        best_value = torch.minimum(value, best_value)
    return best


def _curvature(problem: Problem, point: Tensor, gradient: Tensor) -> Tensor:
    """The loss's curvature along its gradient, (n_tasks,): a lower bound on L to begin with."""
    length = gradient.square().sum(dim=1).clamp(min=1e-300)
    if problem.is_quadratic:
        bent = problem.hessian_product(gradient)
    else:
        small = 1e-3 * (1 + point.norm(dim=1)) / length.sqrt()
        bent = (problem.evaluate(point + small[:, None] * gradient).gradient - gradient) / small[:, None]
    return ((gradient * bent).sum(dim=1) / length).clamp(min=1e-12)
