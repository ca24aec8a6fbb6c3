"""The lasso on many coordinates by solving it on few: those in use and those whose gradient is steepest.

Under a squared loss the few coordinates need no examples, so only the check over all coordinates scans them. The gap
is that of the whole problem.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from smatter.linear.feature_sign import FeatureSign
from smatter.linear.group_lasso import penalised
from smatter.linear.model import local_model
from smatter.linear.residual import ResidualProblem
from smatter.solve.loop import run
from smatter.solve.pattern import Pattern
from smatter.solve.problem import Evaluation
from smatter.solve.solution import Solution, Status

FEWEST = 32
MAX_ROUNDS = 30
MAX_STEPS = 2000


def solve_lasso(
    problem: ResidualProblem,
    strength: Tensor,
    tolerance: float = 1e-6,
    clock: Callable[[], float] | None = None,
) -> Solution:
    """Minimise loss(D) + strength |D|_1 for every task.

    Args:
        problem: a squared loss in D.
        strength: lambda of each task, (n_tasks,).
        tolerance: on the duality gap, relative to losses above one.
        clock: tells seconds.
    """
    if not problem.is_quadratic:
        raise TypeError("a lasso is solved by its signs under a squared loss only: use ProximalGradient")
    begin = clock() if clock else 0.0
    n_tasks, n_parameters = problem.base.shape
    ridge = torch.as_tensor(problem.alpha, dtype=problem.base.dtype).expand(n_parameters)
    plain = Pattern(0)
    final, point = torch.zeros_like(problem.base), torch.zeros_like(problem.base)
    value, gap = final.new_zeros(n_tasks), final.new_full((n_tasks,), torch.inf)
    rounds = torch.zeros(n_tasks, dtype=torch.int64)
    going, part, n_working, n_gradients = torch.arange(n_tasks), problem, FEWEST, 0
    while True:
        known = part.evaluate(point)
        n_gradients += 1
        final[going] = point
        value[going], gap[going] = penalised(plain, strength[going], point, known)
        open_ = (gap > tolerance * value.abs().clamp(min=1))[going]
        if not bool(open_.any()) or n_gradients > MAX_ROUNDS:
            break
        rounds[going[open_]] += 1
        if 2 * int(open_.sum()) <= len(going):  # below that, copying costs more than it saves
            left = open_.nonzero().flatten()
            going, part, point = going[left], part.select(left), point[left]
            known = Evaluation(known.value[left], known.gradient[left])
        n_working = min(max(n_working, 2 * int((point != 0).sum(dim=1).max())), n_parameters)
        promise = torch.where(point != 0, torch.inf, known.gradient.abs())
        columns = promise.topk(n_working, dim=1).indices
        unridged = Evaluation(known.value - 0.5 * (ridge * point.square()).sum(dim=1), known.gradient - ridge * point)
        model = local_model(part.loss, ridge, part.base + point, point, columns, known=unridged)
        inner = FeatureSign(strength[going], 0.1 * tolerance)
        solved = run(inner, model, point.gather(1, columns), MAX_STEPS)
        point = torch.zeros_like(point).scatter(1, columns, solved.point)
    solved_ones = gap <= tolerance * value.abs().clamp(min=1)
    return Solution(
        point=final,
        value=value,
        gap=gap,
        is_convex=True,
        status=tuple(Status.SOLVED if ended else Status.OUT_OF_STEPS for ended in solved_ones.tolist()),
        steps=rounds,
        gradient_evaluations=n_gradients,
        seconds=clock() - begin if clock else None,
    )
