"""At most k_s active sources (multi-source paper, equation 15): NP-hard, so heuristics, and enumeration to check them.

The limit holds for every block's row of weights.
"""

from itertools import combinations

import torch
from torch import Tensor

from smatter.algebra.simplex import truncate
from smatter.algebra.threshold import hard_mask
from smatter.solve.frank_wolfe import FrankWolfe
from smatter.solve.loop import run
from smatter.solve.problem import Problem

MAX_STEPS = 2000
MAX_ROUNDS = 10
N_CANDIDATES = 4
"""Sources tried in the place of one."""


def limit_sources(problem: Problem, weights: Tensor, max_sources: int, tolerance: float = 1e-6) -> Tensor:
    """Weights with at most `max_sources` active in every block: the best found by pruning, growing, swaps.

    Args:
        problem: the loss in w.
        weights: a minimum without the limit, (n_tasks, n_blocks, n_sources).
        max_sources: k_s.
        tolerance: of the solves on a fixed set of sources.
    """
    if max_sources >= weights.shape[-1]:
        return weights
    best = _solve_on(problem, hard_mask(weights, max_sources).bool(), truncate(weights, max_sources), tolerance)
    best_value = problem.value(best)
    for source in range(weights.shape[-1]):
        grown = _grow(problem, weights, source, max_sources, tolerance)
        best, best_value = _keep_better(problem, best, best_value, grown)
    for _ in range(MAX_ROUNDS):
        before = best_value
        for rank in range(max_sources):
            for candidate in range(min(N_CANDIDATES, weights.shape[-1] - max_sources)):
                trial = _swapped(problem, best, rank, candidate, tolerance)
                best, best_value = _keep_better(problem, best, best_value, trial)
        if not bool((best_value < before - tolerance).any()):
            break
    return best


def _swapped(problem: Problem, weights: Tensor, rank: int, candidate: int, tolerance: float) -> Tensor:
    """Without the active source of the `rank`-th least weight, but with the `candidate`-th steepest of the others."""
    active = weights > 0
    out = torch.where(active, weights, torch.inf).argsort(dim=-1)[..., rank : rank + 1]
    rest = active.scatter(-1, out, False)
    kept = rest * weights
    total = kept.sum(dim=-1, keepdim=True)
    kept = torch.where(total > 0, kept / total.clamp(min=1e-300), weights)
    gradient = problem.evaluate(kept).gradient
    into = torch.where(active, torch.inf, gradient).argsort(dim=-1)[..., candidate : candidate + 1]
    allowed = rest.scatter(-1, into, True)
    return _solve_on(problem, allowed, _even(allowed, weights), tolerance)


def enumerate_sources(problem: Problem, weights: Tensor, max_sources: int, tolerance: float = 1e-6) -> Tensor:
    """The exact minimum with one row of weights, by solving on every subset: for few sources, as a reference."""
    n_tasks, n_blocks, n_sources = weights.shape
    if n_blocks != 1:
        raise ValueError("enumeration is for one row of weights: use limit_sources for weights per module")
    best = torch.full_like(weights, 1 / n_sources)
    best_value = torch.full((n_tasks,), torch.inf, dtype=weights.dtype)
    for subset in combinations(range(n_sources), min(max_sources, n_sources)):
        allowed = torch.zeros_like(weights, dtype=torch.bool)
        allowed[..., list(subset)] = True
        best, best_value = _keep_better(
            problem, best, best_value, _solve_on(problem, allowed, _even(allowed, best), tolerance)
        )
    return best


def _grow(problem: Problem, like: Tensor, source: int, max_sources: int, tolerance: float) -> Tensor:
    """From one source alone, add the source of steepest descent and solve again."""
    weights = torch.zeros_like(like)
    weights[..., source] = 1
    for _ in range(max_sources - 1):
        active = weights > 0
        steepest = torch.where(active, torch.inf, problem.evaluate(weights).gradient).argmin(dim=-1, keepdim=True)
        weights = _solve_on(problem, active.scatter(-1, steepest, True), weights, tolerance)
    return weights


def _solve_on(problem: Problem, allowed: Tensor, start: Tensor, tolerance: float) -> Tensor:
    return run(FrankWolfe(tolerance, allowed=allowed), problem, start, MAX_STEPS).point


def _even(allowed: Tensor, like: Tensor) -> Tensor:
    return allowed / allowed.sum(dim=-1, keepdim=True).to(like.dtype)


def _keep_better(problem: Problem, best: Tensor, best_value: Tensor, trial: Tensor) -> tuple[Tensor, Tensor]:
    value = problem.value(trial)
    better = value < best_value
    return torch.where(better[:, None, None], trial, best), torch.where(better, value, best_value)
