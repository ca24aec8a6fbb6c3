"""How sparse a residual should be, and how strongly pulled towards what, by leaving examples out.

First comes the pull towards the sources' plain average, which has the lowest loss without a residual. Then come k and
ridge: the settings nearest to no residual that a one-sided paired t-test cannot tell from those of the lowest loss.
With few examples it can tell little, so there is no residual then, or a small one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.linear.exchange import promise
from smatter.linear.loss import LinearLoss
from smatter.linear.residual import ResidualProblem
from smatter.linear.support import solve_on_support
from smatter.linear.task import LinearTask
from smatter.records import Progress, silent
from smatter.solve.frank_wolfe import uniform

MOST_FOLDS = 10
"""Up to this many examples each is left out alone; beyond it they are left out in this many folds."""

TINY = 12
"""Examples below which a user is told how little there is to choose by."""

PULLS = (0.0, 0.3, 1.0, 3.0)
"""A good choice of candidates for the pull, in examples."""

RIDGES = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Tried by default, over the features' mean curvature."""

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Choice:
    """Settings chosen on the support set.

    Args:
        n_kept: units the residual may use.
        alpha: ridge on the residual.
        pull: towards the plain average of the sources, in examples; see `pulled`.
        losses: mean loss on examples left out of every k and ridge tried, by (n_kept, alpha).
        message: what was chosen and why, in one line.
    """

    n_kept: int
    alpha: float
    pull: float
    losses: dict[tuple[int, float], float]
    message: str


def choose(
    task: LinearTask,
    n_kept: Sequence[int] | None = None,
    alpha: Sequence[float] | None = None,
    pull: Sequence[float] = (0.0,),
    max_sources: int | None = None,
    progress: Progress = silent,
) -> Choice:
    """Choose pull, k and ridge for one task by leave-one-out, or by folds where there are many examples.

    Args:
        task: one task on examples; of its pattern only the blocks and the free coordinates are used.
        n_kept: candidates for k; 0, 1, 2, 4 ... up to half the examples by default.
        alpha: candidates for the ridge; by default from a hundredth of the features' mean curvature to ten times it.
        pull: candidates for the pull towards the sources' plain average; `PULLS` are a good choice.
        max_sources: the most active sources.
        progress: told the share of the settings that was tried.
    """
    loss, pattern = task.loss, task.pattern
    if not isinstance(loss, LinearLoss) or len(loss.features) != 1 or pattern is None:
        raise TypeError("settings are chosen for one task with its examples and a pattern")
    n_examples = loss.features.shape[1]
    if n_examples < 2:
        raise InvalidSettings("one example cannot be left out of one: give more, or set k and ridge")
    held_out = _folds(n_examples)
    folds = replace(task, loss=replace(loss, shares=_shares(held_out, loss)))
    n_units = int((pattern.sums(torch.ones(1, loss.n_parameters)) > 0).sum())
    n_kept = _defaults(n_examples, n_units) if n_kept is None else sorted(n_kept)
    scale = float(loss.hessian_diagonal(torch.zeros_like(task.rows[:, 0])).mean())
    alpha = [share * scale for share in RIDGES] if alpha is None else alpha
    n_pulls = len(pull) if len(pull) > 1 else 0

    def left_out(pull: float, alpha: float, n_kept: Sequence[int]) -> dict[int, Tensor]:
        """Losses on examples left out, for every k."""
        path = _path(replace(pulled(folds, pull), alpha=alpha), n_kept, max_sources)
        progress(1 / (n_pulls + n_paths))
        return {k: loss.link.losses(loss.outputs(theta), loss.targets).mT[held_out.mT] for k, theta in path}

    n_paths = len(alpha) if any(n_kept) else 1  # without a residual its ridge does not matter
    most = max(alpha)
    tried = {p: float(left_out(p, most, [0])[0].mean()) for p in pull[:n_pulls]}
    chosen_pull = min(tried, key=lambda p: tried[p]) if tried else pull[0]
    losses: dict[tuple[int, float], Tensor] = {}
    for a in sorted(alpha, reverse=True)[:n_paths]:
        found = left_out(chosen_pull, a, n_kept)
        losses |= {(k, a if k else most): values for k, values in found.items()}
    chosen, best = _simplest(losses)
    means = {setting: float(values.mean()) for setting, values in losses.items()}
    return Choice(*chosen, chosen_pull, means, _message(chosen, best, chosen_pull, n_examples, len(held_out)))


def pulled(task: LinearTask, pull: float) -> LinearTask:
    """The task with its weights and free coordinates pulled towards the plain average of the sources.

    A source then has the weight (n w + pull) / (n + pull R), as in Laplace's rule of succession, and the free
    coordinates a ridge of pull / n: as if `pull` more examples had been seen that speak for the average.
    """
    share = _own_share(task, pull)
    average = task.sources.mean(dim=1, keepdim=True)
    return replace(task, sources=average + share * (task.sources - average), free_alpha=pull / _n_examples(task))


def pulled_weights(task: LinearTask, pull: float, weights: Tensor) -> Tensor:
    """What weights of the pulled task are in the sources themselves."""
    share = _own_share(task, pull)
    return share * weights + (1 - share) / weights.shape[2]


def _own_share(task: LinearTask, pull: float) -> float:
    n_examples = _n_examples(task)
    return n_examples / (n_examples + pull * task.sources.shape[1])


def _n_examples(task: LinearTask) -> int:
    assert isinstance(task.loss, LinearLoss)
    return task.loss.features.shape[1]


def _path(task: LinearTask, n_kept: Sequence[int], max_sources: int | None) -> Iterator[tuple[int, Tensor]]:
    """Every k with the coefficients of every task, (n_tasks, n_parameters).

    The units that promise most join those in use, at most as many as these, and all is fitted anew.
    """
    assert task.pattern is not None
    residual = task.rows.new_zeros(task.n_tasks, task.loss.n_parameters)
    weights = uniform(len(residual), task.n_blocks, task.sources.shape[1], residual)
    units = task.pattern.units_of(residual)
    for k in sorted({0, *n_kept, *_powers_of_two(max(n_kept))}):
        if k:
            problem = ResidualProblem(task.loss, task.mixed(weights), task.ridge)
            gains = promise(problem, task.pattern, residual)
            units = replace(task.pattern, n_kept=k).top(torch.where(units, torch.inf, gains))
        support = task.pattern.spread(units)
        weights, residual = solve_on_support(
            task, support, weights, residual=residual, max_sources=max_sources, tolerance=TOLERANCE
        )
        if k in n_kept:
            yield k, task.mixed(weights) + residual


def _simplest(losses: Mapping[tuple[int, float], Tensor]) -> tuple[tuple[int, float], tuple[int, float]]:
    """The simplest k and ridge as good as the best, and the best; more ridge is simpler, then fewer units."""
    best = min(losses, key=lambda setting: float(losses[setting].mean()))
    n_examples = len(losses[best])
    limit = _t_quantile(n_examples - 1) / n_examples**0.5
    differences = {setting: values - losses[best] for setting, values in losses.items()}
    as_good = [setting for setting, worse in differences.items() if worse.mean() <= limit * worse.std()]
    return min(as_good, key=lambda setting: (setting[0] > 0, -setting[1], setting[0])), best


def _t_quantile(freedom: int) -> float:
    """The 95 % quantile of Student's t, expanded around the normal one (Abramowitz and Stegun, 26.7.5)."""
    return 1.6449 + 1.5238 / freedom + 1.4202 / freedom**2 + 0.98 / freedom**3


def _folds(n_examples: int) -> Tensor:
    """True where an example is left out, (n_folds, n_examples)."""
    n_folds = min(n_examples, MOST_FOLDS)
    return torch.arange(n_examples)[None] % n_folds == torch.arange(n_folds)[:, None]


def _shares(held_out: Tensor, loss: LinearLoss) -> Tensor:
    shares = torch.where(held_out, 0.0, loss.weights[:, 0])
    return shares / shares.sum(dim=1, keepdim=True)


def _defaults(n_examples: int, n_units: int) -> list[int]:
    return [0, *_powers_of_two(min(n_examples // 2, n_units))]


def _powers_of_two(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]


def _message(chosen: tuple[int, float], best: tuple[int, float], pull: float, n_examples: int, n_folds: int) -> str:
    how = "leave-one-out" if n_folds == n_examples else f"{n_folds} folds"
    text = f"k = {chosen[0]}, ridge = {chosen[1]:.3g}, pull = {pull:g} by {how} on {n_examples} examples"
    if chosen != best:
        text += f"; k = {best[0]}, ridge = {best[1]:.3g} was not clearly better"
    if n_examples < TINY:
        text += f"; {n_examples} examples tell little, so simpler settings are preferred: add examples to allow more"
    return text
