"""The best sparse residual found: hard thresholding and the relaxation, each refitted and improved by exchanges."""

import torch
from torch import Tensor

from smatter.linear.exchange import exchange
from smatter.linear.group_lasso import relax_and_refit
from smatter.linear.residual import ResidualProblem
from smatter.solve.loop import run
from smatter.solve.pattern import Pattern
from smatter.solve.thresholding import HardThresholding

THRESHOLDING_STEPS = 100


def best_residual(problem: ResidualProblem, pattern: Pattern, start: Tensor | None = None) -> Tensor:
    """A residual of the pattern with the lowest loss that any of the ways found, (n_tasks, n_parameters).

    Args:
        problem: the loss in D.
        pattern: how sparse D must be.
        start: a residual to improve; one more way beside the others.
    """
    zero = torch.zeros_like(problem.base)
    thresholded = run(HardThresholding(pattern.project), problem, zero, THRESHOLDING_STEPS).point
    starts = [thresholded, relax_and_refit(problem, pattern), zero]
    if start is not None:
        starts.append(start)
    best = problem.refit(pattern.spread(pattern.units_of(zero)))
    best_value = problem.value(best)
    for candidate in starts:
        improved = exchange(problem, pattern, candidate)
        value = problem.value(improved)
        best = torch.where((value < best_value)[:, None], improved, best)
        best_value = torch.minimum(value, best_value)
    return best
