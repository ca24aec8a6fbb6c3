"""The solver on live networks: evidence, then Frank-Wolfe on the weights, then a sparse residual if asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from smatter.adaptation.evidence import Evidence, check_temperature, gather_evidence
from smatter.adaptation.sparsity import keep_elements, keep_modules
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture, Rows
from smatter.live.problems import MixtureLoss, ResidualLoss
from smatter.records import Progress, silent
from smatter.solve.frank_wolfe import FrankWolfe
from smatter.solve.loop import State, run
from smatter.solve.solution import Solution
from smatter.solve.thresholding import HardThresholding
from smatter.tasks.support import Support

Start = Literal["evidence", "uniform"]


@dataclass(frozen=True)
class SolverSettings:
    """What the solver does.

    Args:
        start: where the weights begin: at those of evidence routing, or at equal ones.
        temperature: of evidence routing, in standard errors; by default 1, lower for more than four sources.
        per_module: weights for each module instead of one for all.
        max_sources: the most sources with weight; those of most weight at the start are kept.
        pull: towards where the weights begin, in examples: 1 weighs as much as one example more, 0 trusts the given
            ones alone.
        n_steps: Frank-Wolfe steps, each one backward pass and a few forward passes.
        n_elements: corrected elements of a residual; none by default.
        n_modules: modules of a residual that corrects whole modules; none by default.
        n_residual_steps: gradient steps on the residual.
        tolerance: on the Frank-Wolfe gap. A hundredth of the loss is far less than its error from a few examples.
        residual_tolerance: on the decrease that the last step of the residual promised.
    """

    start: Start = "evidence"
    temperature: float | None = None
    per_module: bool = False
    max_sources: int | None = None
    pull: float = 0.5
    n_steps: int = 10
    n_elements: int | None = None
    n_modules: int | None = None
    n_residual_steps: int = 10
    tolerance: float = 1e-2
    residual_tolerance: float = 1e-4

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if self.start not in ("evidence", "uniform"):
            raise InvalidSettings(f"unknown start {self.start!r}: use 'evidence' or 'uniform'")
        if self.n_elements is not None and self.n_modules is not None:
            raise InvalidSettings("a residual has a limit on elements or on modules, not both: drop one")
        for name in ("max_sources", "n_elements", "n_modules"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSettings(f"{name} is {value}: give at least 1, or leave it out")
        if self.n_steps < 0 or self.n_residual_steps < 0:
            raise InvalidSettings("a number of steps is negative: give 0 or more")
        if not (self.tolerance >= 0 and self.residual_tolerance >= 0):
            raise InvalidSettings("a tolerance is not a number of 0 or more: leave it out for the default")
        if not 0 <= self.pull < math.inf:  # also rejects NaN
            raise InvalidSettings(f"pull is {self.pull}: give a number of 0 or more")

    @property
    def has_residual(self) -> bool:
        """Whether a residual is asked for."""
        return self.n_elements is not None or self.n_modules is not None

    def n_units(self, n_sources: int) -> int:
        """How often `progress` is called at most."""
        return n_sources + self.n_steps + (self.n_residual_steps if self.has_residual else 0)


@dataclass(frozen=True)
class NetworkSolution:
    """What the solver found.

    Args:
        mixture: the weights, of the sources that have any.
        residual: the correction, if one was asked for and helped.
        recipe: both, tied to the contents of the sources.
        evidence: leave-one-out loss of each source.
        losses: leave-one-out loss at the start and after every step. Without a pull it never rises.
        mixture_solution: how Frank-Wolfe ended.
        residual_solution: how thresholding ended, if it ran.
        seconds: wall time.
    """

    mixture: Mixture
    residual: Residual | None
    recipe: Recipe
    evidence: Evidence
    losses: tuple[float, ...]
    mixture_solution: Solution
    residual_solution: Solution | None
    seconds: float


def solve_network(
    library: Library,
    support: Support,
    settings: SolverSettings | None = None,
    generator: torch.Generator | None = None,
    progress: Progress = silent,
) -> NetworkSolution:
    """Find weights, and a residual if asked for, that recognise each support example from the others.

    Args:
        library: the sources.
        support: labelled examples.
        settings: what to do; weights for the whole network and no residual by default.
        generator: source of randomness of the views of one-shot classes; a fixed one by default.
        progress: told each source and each step.
    """
    live = LiveMixture(library)
    return solve_live(live, live.rows(support, generator), settings or SolverSettings(), progress)


def solve_live(live: LiveMixture, rows: Rows, settings: SolverSettings, progress: Progress = silent) -> NetworkSolution:
    """As `solve_network`, for a network that is in memory already."""
    begin = time.perf_counter()
    losses: list[float] = []

    def watch(loss: float) -> None:
        if losses:
            progress(1)
        losses.append(loss)

    evidence = gather_evidence(live, rows, settings.temperature, progress)
    begin_at = _start(evidence, settings)
    problem = MixtureLoss(live, rows, settings.per_module, pull=settings.pull, center=begin_at)
    start = begin_at.expand(1, problem.n_blocks, -1)
    allowed = _preferred(evidence, settings.max_sources).expand_as(start)
    algorithm = FrankWolfe(settings.tolerance, "vanilla", "line search", allowed)
    solution = run(
        algorithm, problem, start, settings.n_steps, time.perf_counter, lambda state: watch(problem.loss(state.point))
    )
    mixture = _mixture(live, problem, solution.point)
    residual, residual_solution = None, None
    if settings.has_residual:
        correction = ResidualLoss(live, rows, mixture)
        residual, residual_solution = _solve_residual(correction, settings, losses, watch)
    recipe = live.library.recipe(mixture, residual)
    live.compose(mixture, residual)
    return NetworkSolution(
        mixture,
        residual,
        recipe,
        evidence,
        tuple(losses),
        solution,
        residual_solution,
        time.perf_counter() - begin,
    )


def _start(evidence: Evidence, settings: SolverSettings) -> Tensor:
    """Where the weights begin, (n_sources,)."""
    preferred = _preferred(evidence, settings.max_sources).double()
    if settings.start == "evidence":
        preferred = preferred * torch.tensor(evidence.weights, dtype=torch.float64)
    return preferred / preferred.sum()


def _preferred(evidence: Evidence, max_sources: int | None) -> Tensor:
    """True for the sources that do best, (n_sources,); all without a limit."""
    kept = set(evidence.ranked[:max_sources])
    return torch.tensor([name in kept for name in evidence.sources])


def _mixture(live: LiveMixture, problem: MixtureLoss, point: Tensor) -> Mixture:
    """The weights of the sources that have any; a module that the backbone does not use gets the mean of the others."""
    rows = point[0] / point[0].sum(dim=-1, keepdim=True)
    if problem.modules:
        used = torch.tensor([module in live.live_modules for module in problem.modules])
        rows = torch.where(used[:, None], rows, rows[used].mean(dim=0))
    return Mixture(problem.sources, tuple(tuple(row) for row in rows.tolist()), problem.modules).without_idle()


def _solve_residual(
    problem: ResidualLoss, settings: SolverSettings, losses: list[float], watch: Callable[[float], None]
) -> tuple[Residual | None, Solution]:
    if settings.n_elements is not None:
        project = keep_elements(settings.n_elements)
    else:
        project = keep_modules(problem.flat.modules, settings.n_modules or 1)
    before = losses[-1]

    def watch_steps(state: State) -> None:
        if state.point.any():
            watch(float(state.value[0]))

    point = torch.zeros(1, problem.flat.n_parameters)
    algorithm = HardThresholding(project, settings.residual_tolerance)
    solution = run(algorithm, problem, point, settings.n_residual_steps, time.perf_counter, watch_steps)
    if not float(solution.value[0]) <= before:  # rounding at the start can put it a bit above
        return None, solution
    return problem.flat.compact(solution.point[0]), solution
