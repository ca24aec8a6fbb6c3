"""Weights of the sources' predictions, solved for: the log-pool that explains the examples best.

The loss of pooled scores is convex in the weights, so the solution is the best there is for these examples, with a gap
that says so. It needs one pass of each source and no gradient of a network.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import LeaveOneOut
from smatter.live.task import Task
from smatter.records import Progress, silent
from smatter.route.evidence import Evidence, pooled_weights
from smatter.solve.loop import run
from smatter.solve.newton import Newton
from smatter.solve.pools import LogPool
from smatter.solve.solution import Solution

TOLERANCE = 1e-8


@dataclass(frozen=True)
class Pooled:
    """Weights of predictions that explain the examples.

    Args:
        solution: of the convex problem.
        evidence: the loss of each source.
    """

    solution: Solution
    evidence: Evidence

    @property
    def weights(self) -> Tensor:
        """Of the sources, (n_sources,)."""
        return self.solution.point[0, 0]


def solve_pool(
    live: LiveMixture,
    task: Task,
    pull: float,
    temperature: float | None = None,
    max_sources: int | None = None,
    progress: Progress = silent,
) -> Pooled:
    """Solve for the weights; a source whose scores are no numbers has none.

    Args:
        live: the library's network.
        task: the examples, of classes.
        pull: towards the weights of evidence, in examples.
        temperature: of evidence; see `pooled_weights`.
        max_sources: the most sources with weight: those that explain best.
        progress: told the share of the sources that is done.
    """
    objective, names = task.objective, live.library.names
    if not isinstance(objective, LeaveOneOut):
        raise InvalidSettings("predictions of classes are averaged, of which this task has none: say --mix weights")
    rows = []
    for name in names:
        live.compose(Mixture.of({name: 1.0}))
        rows.append(objective.scores(live.read(objective)).double())
        progress(1 / len(names))
    scores = torch.stack(rows)
    losses = torch.stack([objective.losses_of(each) for each in scores])
    evidence = Evidence.of(names, losses)
    allowed = torch.tensor([name in evidence.ranked[:max_sources] for name in names])
    usable = allowed & scores.isfinite().all(dim=2).all(dim=1)
    center = torch.zeros(len(names), dtype=torch.float64)
    center[usable] = pooled_weights(losses[usable], temperature)
    counts = 1 / torch.bincount(objective.examples)[objective.examples]  # views of one example count as one
    finite = torch.where(usable[:, None, None], scores, 0.0)
    problem = LogPool.of(finite[None], objective.labels[None], counts[None], pull, center)
    return Pooled(run(Newton(TOLERANCE, allowed=usable[None, None]), problem, center[None, None]), evidence)
