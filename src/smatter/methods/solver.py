"""The solver: weights by Frank-Wolfe from a good start, then a sparse residual if asked for (the papers' oracle).

It sees the examples alone, so it is optimal for these at best (multi-source paper, sections 4 and 5). Weights of
predictions are a convex problem of the scores that the sources give, solved to the end by Newton's method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from smatter.errors import InvalidSettings
from smatter.methods import Fit, Trace, method
from smatter.methods._members import as_members, check_passes
from smatter.records import part, silent
from smatter.settings import MixSettings, check_at_least, check_choices, check_limits, check_steps, check_temperature

if TYPE_CHECKING:
    from torch import Tensor

    from smatter.compose.mixture import Mixture
    from smatter.live.descent import Steps
    from smatter.live.mixture import LiveMixture
    from smatter.live.problems import MixtureLoss, ResidualLoss
    from smatter.live.task import Task
    from smatter.records import Progress
    from smatter.route.evidence import Evidence
    from smatter.route.pooling import Pooled
    from smatter.solve.loop import State

Start = Literal["evidence", "uniform"]


@dataclass(frozen=True)
class SolverSettings(MixSettings):
    """What the solver does.

    Args:
        start: what the weights are pulled to: those of evidence, or equal ones. They begin there, at equal ones or at
            the best single source, wherever the loss is least.
        temperature: of evidence, in standard errors; by default 1 for up to four sources, and less for more.
        per_module: weights for each module instead of one for all.
        max_sources: the most sources with weight: those that explain best; all by default.
        pull: towards these, in examples: 1 weighs as much as one example more, 0 trusts the given ones alone.
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
        super().__post_init__()
        check_temperature(self.temperature)
        if self.mix != "weights" and (self.has_residual or self.per_module):
            raise InvalidSettings("residuals and weights per module are of one mixed network: say --mix weights")
        check_choices(self, start=Start)
        if self.n_elements is not None and self.n_modules is not None:
            raise InvalidSettings("a residual has a limit on elements or on modules, not both: drop one")
        check_limits(max_sources=self.max_sources, n_elements=self.n_elements, n_modules=self.n_modules)
        check_steps(0, n_steps=self.n_steps, n_residual_steps=self.n_residual_steps)
        check_at_least(0, pull=self.pull, tolerance=self.tolerance, residual_tolerance=self.residual_tolerance)

    @property
    def has_residual(self) -> bool:
        """Whether a residual is asked for."""
        return self.n_elements is not None or self.n_modules is not None


@method(SolverSettings)
def solver(live: LiveMixture, task: Task, settings: SolverSettings, progress: Progress) -> Fit:
    """Find the weights, and a sparse residual if asked for, that fit the examples best, by gradients."""
    import torch

    from smatter.live.descent import Steps, descend_weights
    from smatter.live.problems import MixtureLoss, ResidualLoss
    from smatter.route.evidence import gather_evidence

    check_passes(live, settings)
    if settings.mix == "predictions" and settings.branch is None:  # no mixed network is needed
        pooled = _pooled(live, task, settings, progress)
        best, members = as_members(live, settings, pooled.weights)
        trace = Trace(endings=(f"predictions: {pooled.solution.advice}",))
        return Fit(best, members=members, evidence=pooled.evidence, notes=task.notes, trace=trace)
    names = live.library.names
    n_steps = settings.n_steps + (settings.n_residual_steps if settings.has_residual else 0)
    n_parts = len(names) + n_steps
    evidence = gather_evidence(live, task.objective, settings.temperature, part(progress, len(names) / n_parts))
    allowed = torch.tensor([name in evidence.ranked[: settings.max_sources] for name in names])
    center = allowed.double()
    if settings.start == "evidence":
        center = center * torch.tensor(evidence.weights, dtype=torch.float64)
    center = center / center.sum()
    problem = MixtureLoss(live, task.objective, settings.per_module, pull=settings.pull, center=center)
    steps = Steps(part(progress, 1 / n_parts))
    solution = descend_weights(
        problem,
        _start(problem, center, evidence, allowed),
        settings.n_steps,
        steps=steps,
        allowed=allowed,
        tolerance=settings.tolerance,
    )
    mixture, endings, vector = _mixture(live, problem, solution.point), [f"weights: {solution.advice}"], None
    if settings.has_residual:
        vector, ending = _corrected(ResidualLoss(live, task.objective, mixture), settings, steps)
        endings.append(f"residual: {ending}")
    members = ()
    if settings.mix != "weights":
        pooled = _pooled(live, task, settings)
        mixture, members = as_members(live, settings, pooled.weights, mixture)
        endings.append(f"predictions: {pooled.solution.advice}")
    return Fit(
        mixture,
        members=members,
        residual=None if vector is None else live.numbering.compact(vector),
        evidence=evidence,
        notes=task.notes,
        trace=Trace(tuple(steps.losses), tuple(steps.path), tuple(endings)),
    )


def _pooled(live: LiveMixture, task: Task, settings: SolverSettings, progress: Progress = silent) -> Pooled:
    """Weights of the sources' predictions."""
    from smatter.route.pooling import solve_pool

    return solve_pool(
        live,
        task,
        settings.pull,
        temperature=settings.temperature,
        max_sources=settings.max_sources,
        progress=progress,
    )


def _start(problem: MixtureLoss, center: Tensor, evidence: Evidence, allowed: Tensor) -> Tensor:
    """The best of what the weights are pulled to, equal ones and the best single source, (n_blocks, n_sources)."""
    import torch

    single = torch.tensor([name == evidence.best for name in evidence.sources]).to(center)
    points = [each.expand(1, problem.n_blocks, -1) for each in (center, allowed / allowed.sum(), single)]
    return min(points, key=lambda point: float(problem.value(point.to(center))))[0].to(center)


def _mixture(live: LiveMixture, problem: MixtureLoss, point: Tensor) -> Mixture:
    """The weights of the sources that have any; a module that the backbone does not use gets the mean of the others."""
    import torch

    from smatter.compose.mixture import Mixture

    rows = point[0] / point[0].sum(dim=-1, keepdim=True)
    if problem.modules:
        used = torch.tensor([module in live.live_modules for module in problem.modules])
        rows = torch.where(used[:, None], rows, rows[used].mean(dim=0))
    return Mixture(problem.sources, tuple(tuple(row) for row in rows.tolist()), problem.modules).without_idle()


def _corrected(problem: ResidualLoss, settings: SolverSettings, steps: Steps) -> tuple[Tensor | None, str]:
    """The residual, (d,), none where it does not help; and how the search for it ended."""
    from smatter.live.descent import descend_residual, keep_elements, keep_modules

    if settings.n_elements is not None:
        project = keep_elements(settings.n_elements)
    else:
        project = keep_modules(problem.live, settings.n_modules or 1)
    before = steps.losses[-1]

    def watch(state: State) -> None:
        if state.point.any():  # the start is where the weights ended
            steps.watch(state)

    solution = descend_residual(problem, project, settings.n_residual_steps, watch, settings.residual_tolerance)
    helps = float(solution.value[0]) <= before  # rounding at the start can put it a bit above
    return solution.point[0] if helps else None, solution.advice
