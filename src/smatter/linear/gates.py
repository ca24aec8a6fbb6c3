"""Sparse residuals by hard-concrete gates with an expected-L0 penalty, annealed (multi-source paper, section 5).

D = gate * delta, a gate for every unit. The price of an open gate rises while more are open than the pattern allows
and falls while fewer are. Gates are random, so the loss is not monotone; at the end the most open units are kept,
exactly as many as allowed, and refitted.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.algebra.gates import mean_gates, open_probability, sample_gates
from smatter.linear.residual import ResidualProblem
from smatter.solve.loop import State, run
from smatter.solve.pattern import Pattern
from smatter.solve.problem import Problem
from smatter.solve.solution import Solution, Status

HOT, COLD = 1.0, 0.1
BETAS = 0.9, 0.99
TIGHTENING = 0.7
"""Share of the steps in which the number of gates that may be open shrinks to the pattern's."""

OPEN = 2.0
"""Logits at the start."""


@dataclass(frozen=True)
class HardConcrete:
    """Adam on the logits of the gates and on delta, under a multiplier for the number of open gates.

    Args:
        pattern: how many units may be open.
        generator: of the gates' noise.
        n_steps: over which the temperature falls from hot to cold.
        learning_rate: of Adam; delta's is scaled by the size a coordinate can be expected to have.
        dual_rate: how fast the price follows the number of open gates.
    """

    pattern: Pattern
    generator: torch.Generator
    n_steps: int = 500
    learning_rate: float = 0.05
    dual_rate: float = 0.05
    tolerance = 0.0
    patience = math.inf

    def start(self, problem: Problem, point: Tensor) -> State:
        """Gates open, delta a small step down the gradient."""
        value, gradient = problem.evaluate(point)
        logits = torch.full_like(self.pattern.sums(point), OPEN)
        size = gradient.abs().amax(dim=1, keepdim=True).clamp(min=1e-12)
        delta = point - 0.01 * gradient / size
        price = 0.01 * value.abs().clamp(min=1e-6)[:, None] / max(self.pattern.n_kept, 1)
        moments = (torch.zeros_like(logits), torch.zeros_like(logits), torch.zeros_like(delta), torch.zeros_like(delta))
        return State(point, value, gradient, torch.full_like(value, torch.inf), (logits, delta, price, *moments))

    def step(self, problem: Problem, state: State, index: int) -> State:
        """One sampled gradient, one Adam step, one step of the price."""
        logits, delta, price, *moments = state.memory
        temperature = HOT * (COLD / HOT) ** (index / self.n_steps)
        with torch.enable_grad():
            leaf_logits, leaf_delta = logits.clone().requires_grad_(), delta.clone().requires_grad_()
            gated = leaf_delta * self._spread(sample_gates(leaf_logits, temperature, self.generator))
            _, gradient = problem.evaluate(gated.detach())
            opened = open_probability(leaf_logits, temperature)
            ((gated * gradient).sum() + (price * opened).sum()).backward()
        assert leaf_logits.grad is not None
        assert leaf_delta.grad is not None
        logits, first, second = _adam(
            logits, leaf_logits.grad, moments[0], second=moments[1], index=index, rate=self.learning_rate
        )
        delta, third, fourth = _adam(
            delta, leaf_delta.grad, moments[2], second=moments[3], index=index, rate=self.learning_rate
        )
        excess = open_probability(logits, temperature).sum(dim=1, keepdim=True) / self._allowed(index, logits) - 1
        price = price * (self.dual_rate * excess.clamp(-1, 1)).exp()
        point = delta * self._spread(mean_gates(logits))
        value, gradient = problem.evaluate(point)
        stationarity = (point * gradient).abs().sum(dim=1)
        return State(point, value, gradient, stationarity, (logits, delta, price, first, second, third, fourth))

    def _allowed(self, index: int, logits: Tensor) -> float:
        """Gates that may be open: all at the start, `n_kept` after most of the steps, with a constant ratio between."""
        n_units, n_kept = logits.shape[1], max(min(self.pattern.n_kept, logits.shape[1]), 1)
        left = max(0.0, 1 - index / (TIGHTENING * self.n_steps))
        return n_kept * math.exp(left * math.log(n_units / n_kept))

    def _spread(self, gates: Tensor) -> Tensor:
        spread = gates if self.pattern.blocks is None else gates[:, self.pattern.blocks]
        return spread if self.pattern.free is None else torch.where(self.pattern.free, 1.0, spread)


def solve_with_gates(
    problem: ResidualProblem,
    pattern: Pattern,
    generator: torch.Generator,
    n_steps: int = 500,
    clock: Callable[[], float] | None = None,
) -> Solution:
    """Train gates, keep the units of the largest gated norm, as many as the pattern allows, and refit."""
    zero = torch.zeros_like(problem.base)
    algorithm = HardConcrete(pattern, generator, n_steps)
    states: deque[State] = deque(maxlen=1)
    trained = run(algorithm, problem, zero, max_steps=n_steps, clock=clock, watch=states.append)
    logits, delta, *_ = states[-1].memory
    # Closed gates still differ in how nearly they opened, so that a tie never leaves a place unused.
    promise = pattern.sums(delta.square()) * open_probability(logits, COLD)
    point = problem.refit(pattern.spread(pattern.top(promise)))
    value, gradient = problem.evaluate(point)
    return Solution(
        point=point,
        value=value,
        gap=(torch.where(point != 0, gradient, 0.0) * point).abs().sum(dim=1),
        is_convex=False,
        status=tuple(Status.DIVERGED if bad else Status.SOLVED for bad in (~value.isfinite()).tolist()),
        steps=trained.steps,
        gradient_evaluations=2 * trained.gradient_evaluations,
        seconds=trained.seconds,
    )


def _adam(
    variable: Tensor, gradient: Tensor, first: Tensor, second: Tensor, index: int, rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    first = BETAS[0] * first + (1 - BETAS[0]) * gradient
    second = BETAS[1] * second + (1 - BETAS[1]) * gradient.square()
    corrected = first / (1 - BETAS[0] ** (index + 1))
    scale = (second / (1 - BETAS[1] ** (index + 1))).sqrt() + 1e-12
    return variable - rate * corrected / scale, first, second
