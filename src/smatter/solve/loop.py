"""The one loop: it drives any algorithm over a batch of tasks until each has ended."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from smatter.solve.problem import Problem
from smatter.solve.solution import Solution, Status

CROWD = 4
"""The batch shrinks when one task in this many has ended: copying it costs about as much as a few steps."""


@dataclass(frozen=True)
class State:
    """Where an algorithm is; every tensor's first axis is the task.

    Args:
        point: the variable.
        value: the loss, (n_tasks,).
        gradient: at the point.
        gap: how far from optimal or stationary, (n_tasks,).
        memory: what the algorithm carries from step to step.
    """

    point: Tensor
    value: Tensor
    gradient: Tensor
    gap: Tensor
    memory: tuple[Tensor, ...] = ()

    def select(self, tasks: Tensor) -> "State":
        """The states of some tasks, by index."""
        return State(
            self.point[tasks],
            self.value[tasks],
            self.gradient[tasks],
            self.gap[tasks],
            tuple(tensor[tasks] for tensor in self.memory),
        )


class Algorithm(Protocol):
    """One method, one step at a time; a step computes one gradient of the batch."""

    @property
    def tolerance(self) -> float:
        """The gap at which a task is solved, relative to its loss where that exceeds one."""
        ...

    @property
    def patience(self) -> float:
        """Steps in a row without a lower loss after which a task counts as stalled."""
        ...

    def start(self, problem: Problem, point: Tensor) -> State:
        """The state at a feasible point."""
        ...

    def step(self, problem: Problem, state: State, index: int) -> State:
        """The state after step number `index`, counted from zero."""
        ...


Watch = Callable[[State], None]
"""Told the state after every step, e.g. to draw a curve or a progress bar."""


def run(
    algorithm: Algorithm,
    problem: Problem,
    point: Tensor,
    max_steps: int = 1000,
    clock: Callable[[], float] | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Step until every task's gap is within the tolerance.

    Tasks that have ended leave the batch once enough of them have; until then they go on improving.

    Args:
        algorithm: what a step is.
        problem: the loss.
        point: a feasible start for each task.
        max_steps: the most steps, and so the most gradients but one.
        clock: tells seconds; without one the solution has no wall time.
        watch: sees the batch at the start and after every step.
    """
    begin = clock() if clock else 0.0
    state = algorithm.start(problem, point)
    n_tasks = point.shape[0]
    # What is known of a task when it leaves the batch; to compute it once more would cost a gradient of all.
    final_point, final_value, final_gap = state.point.clone(), state.value.clone(), state.gap.clone()
    ends = torch.full((n_tasks,), -1)
    steps = torch.full((n_tasks,), max_steps)
    active = torch.arange(n_tasks)
    idle = torch.zeros(n_tasks, dtype=torch.int64)
    index = 0
    while True:
        if watch:
            watch(state)
        solved = state.gap <= algorithm.tolerance * state.value.abs().clamp(min=1)
        stalled = idle >= algorithm.patience
        diverged = ~torch.isfinite(state.value)
        ended = solved | stalled | diverged
        if index == max_steps or bool(ended.any()):
            code = torch.where(diverged, 2, torch.where(solved, 0, 1))
            fresh = ended & (ends[active] < 0)
            ends[active[fresh]] = code[fresh]
            steps[active[fresh]] = index
            n_ended = int((ends[active] >= 0).sum())
            over = index == max_steps or n_ended == len(active)
            if over or CROWD * n_ended >= len(active):
                final_point[active], final_value[active], final_gap[active] = state.point, state.value, state.gap
                if over:
                    break
                going = (ends[active] < 0).nonzero().flatten()
                state, active, idle, problem = state.select(going), active[going], idle[going], problem.select(going)
        new = algorithm.step(problem, state, index)
        idle = torch.where(new.value < state.value, 0, idle + 1)
        state, index = new, index + 1
    return Solution(
        point=final_point,
        value=final_value,
        gap=final_gap,
        is_convex=problem.is_convex,
        status=tuple(_ENDINGS[end] for end in ends.tolist()),
        steps=steps,
        gradient_evaluations=index + 1,
        seconds=clock() - begin if clock else None,
    )


_ENDINGS = {-1: Status.OUT_OF_STEPS, 0: Status.SOLVED, 1: Status.STALLED, 2: Status.DIVERGED}
