"""Mixture and residual together: alternation, then both at once on the support found (multi-source paper, section 5).

Weights and residual take turns: the weights are solved, a support is searched that is better when the weights follow
it, and on that support the pair is a convex problem that is solved as such. Nothing is accepted that raises the loss.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from smatter.linear.bounds import lower_bound
from smatter.linear.exchange import exchange
from smatter.linear.mixing import mixture_problem
from smatter.linear.model import local_model, model_pattern, screen, source_directions
from smatter.linear.sparse import best_residual
from smatter.linear.support import solve_on_support
from smatter.linear.task import LinearTask, Metered, PairSolution
from smatter.solve.frank_wolfe import duality_gap, uniform
from smatter.solve.pattern import Pattern
from smatter.solve.solution import Status


def solve_pair(
    task: LinearTask,
    max_sources: int | None = None,
    tolerance: float = 1e-6,
    max_rounds: int = 10,
    max_gradients: int | None = None,
    thorough: bool = True,
    clock: Callable[[], float] | None = None,
) -> PairSolution:
    """Weights and residual of every task (multi-source paper, equation 4).

    Args:
        task: what to solve.
        max_sources: k_s, the most sources that may be active in a row of weights.
        tolerance: on the duality gap of the weights and on what a round must gain, relative to losses above one.
        max_rounds: turns of mixture and residual.
        max_gradients: no round begins once this many gradients were computed.
        thorough: search the first support from many starts; otherwise greedily, at about a tenth of the time.
        clock: tells seconds.
    """
    begin = clock() if clock else 0.0
    metered = Metered(task.loss)
    task = replace(task, loss=metered)
    n_tasks = task.n_tasks
    residual = task.rows.new_zeros(n_tasks, task.loss.n_parameters)
    weights = uniform(n_tasks, task.n_blocks, task.sources.shape[1], residual)
    empty = torch.zeros_like(residual, dtype=torch.bool)
    if task.pattern is not None:
        empty = task.pattern.spread(task.pattern.units_of(residual))
    weights, residual = solve_on_support(
        task, empty, weights, residual=residual, max_sources=max_sources, tolerance=tolerance
    )
    value = task.value(weights, residual)
    rounds, status = 0, Status.SOLVED
    gained = torch.full_like(value, torch.inf)
    while task.pattern is not None and bool((gained > tolerance * value.abs().clamp(min=1)).any()):
        if rounds == max_rounds:
            status = Status.OUT_OF_STEPS
            break
        if max_gradients is not None and metered.count[0] >= max_gradients:
            status = Status.OUT_OF_GRADIENTS
            break
        before = value
        for support in _supports(task, task.pattern, weights, residual, thorough and rounds == 0):
            trial_weights, trial = solve_on_support(
                task, support, weights, residual=residual * support, max_sources=max_sources, tolerance=tolerance
            )
            trial_value = task.value(trial_weights, trial)
            better = trial_value < value
            weights = torch.where(better[:, None, None], trial_weights, weights)
            residual = torch.where(better[:, None], trial, residual)
            value = torch.where(better, trial_value, value)
        gained = before - value
        rounds += 1
    n_gradients = metered.count[0]
    task = replace(task, loss=metered.loss)
    mixture = mixture_problem(task.loss, task.rows, residual, task.n_blocks)
    gap = duality_gap(weights, mixture.evaluate(weights).gradient)
    return PairSolution(
        weights=weights,
        residual=residual,
        theta=task.mixed(weights) + residual,
        value=value,
        gap=gap,
        epsilon=_epsilon(task, weights, residual, value=value, gap=gap, max_sources=max_sources),
        status=(status,) * n_tasks,
        rounds=rounds,
        gradient_evaluations=n_gradients,
        seconds=clock() - begin if clock else None,
    )


def _supports(task: LinearTask, pattern: Pattern, weights: Tensor, residual: Tensor, thorough: bool) -> list[Tensor]:
    """Supports that are better in a local model, in which the weights follow the residual.

    The thorough search is made three times: only the active sources can move, or all can, or none.
    """
    theta = task.mixed(weights) + residual
    columns = screen(task.loss, task.ridge, theta, residual, pattern)
    start, inner = residual.gather(1, columns), model_pattern(pattern)
    movable = [weights > 0, torch.ones_like(weights, dtype=torch.bool), torch.zeros_like(weights, dtype=torch.bool)]
    supports = []
    for active in movable if thorough else movable[:1]:
        directions = source_directions(task.rows, weights, active)
        model = local_model(
            task.loss, task.ridge, theta, residual=residual, columns=columns, free=pattern.free, directions=directions
        )
        found = best_residual(model, inner, start) if thorough else exchange(model, inner, start)
        supports.append(pattern.spread(pattern.units_of(torch.zeros_like(residual).scatter(1, columns, found))))
    return supports


def _epsilon(
    task: LinearTask, weights: Tensor, residual: Tensor, value: Tensor, gap: Tensor, max_sources: int | None
) -> Tensor | None:
    """What a better pair could gain at most: the gap itself without residual, else a dual bound where there is one."""
    if task.pattern is None and max_sources is None:
        return gap
    bound = lower_bound(task, weights, residual)
    return None if bound is None else (value - bound).clamp(min=0)
