"""How sparse and how strongly pulled towards the mixture a residual should be, by leaving examples out.

The settings with the lowest loss on examples left out win, unless simpler ones are as good within one standard error:
fewer units first, then more ridge. With few examples the error is wide, so k shrinks and ridge grows by themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.solve.alternate import solve_pair
from smatter.solve.linear import LinearLoss
from smatter.solve.pattern import Pattern
from smatter.solve.task import LinearTask

MOST_FOLDS = 16
"""Up to this many examples each is left out alone; beyond it they are left out in this many folds."""

TINY = 12
"""Examples below which a user is told how little there is to choose by."""


@dataclass(frozen=True)
class Choice:
    """Settings chosen on the support set.

    Args:
        n_kept: units the residual may use.
        alpha: ridge on the residual.
        losses: mean loss on examples left out of every setting tried, by (n_kept, alpha).
        message: what was chosen and why, in one line.
    """

    n_kept: int
    alpha: float
    losses: dict[tuple[int, float], float]
    message: str


def choose(
    task: LinearTask,
    n_kept: Sequence[int] | None = None,
    alpha: Sequence[float] | None = None,
    max_sources: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Choice:
    """Choose k and ridge for one task by leave-one-out, or by folds where there are many examples.

    Args:
        task: one task on examples; of its pattern only the blocks and the free coordinates are used.
        n_kept: candidates for k; 0, 1, 2, 4 ... up to half the examples by default.
        alpha: candidates for the ridge; by default from a hundredth of the features' mean curvature to ten times it.
        max_sources: the most active sources.
        progress: told how many of how many settings are done.
    """
    loss, pattern = task.loss, task.pattern
    if not isinstance(loss, LinearLoss) or len(loss.features) != 1 or pattern is None:
        raise TypeError("settings are chosen for one task with its examples and a pattern")
    n_examples = loss.features.shape[1]
    if n_examples < 2:
        raise InvalidSettings("one example cannot be left out of one: give more, or set k and ridge")
    held_out = _folds(n_examples)
    folds = LinearLoss(loss.features, loss.targets, loss.link, loss.ridge, _shares(held_out, loss))
    n_units = int((pattern.sums(torch.ones(1, loss.n_parameters)) > 0).sum())
    n_kept = _defaults(n_examples, n_units) if n_kept is None else n_kept
    scale = float(loss.hessian_diagonal(torch.zeros_like(task.rows[:, 0])).mean())
    alpha = [share * scale for share in (0.01, 0.1, 1.0, 10.0)] if alpha is None else alpha
    settings = [(k, a) for k in n_kept for a in (alpha if k else [max(alpha)])]
    losses: dict[tuple[int, float], Tensor] = {}
    for index, (k, a) in enumerate(settings):
        if progress:
            progress(index, len(settings))
        part = replace(task, loss=folds, pattern=Pattern(k, pattern.blocks, pattern.free), alpha=a)
        pair = solve_pair(part, max_sources, tolerance=1e-4, max_rounds=3, thorough=False)
        each = loss.link.losses(loss.outputs(pair.theta), loss.targets)
        losses[k, a] = each.mT[held_out.mT]
    means = {setting: float(values.mean()) for setting, values in losses.items()}
    best = min(means, key=lambda setting: means[setting])
    spread = {
        setting: float((values - losses[best]).std(correction=1)) / n_examples**0.5
        for setting, values in losses.items()
    }
    # Paired: how sure are we that the best is better than this one?
    as_good = [setting for setting in means if means[setting] - means[best] <= spread[setting]]
    chosen = min(as_good, key=lambda setting: (setting[0], -setting[1]))
    return Choice(*chosen, means, _message(chosen, best, n_examples, len(held_out)))


def _folds(n_examples: int) -> Tensor:
    """True where an example is left out, (n_folds, n_examples)."""
    n_folds = min(n_examples, MOST_FOLDS)
    return torch.arange(n_examples)[None] % n_folds == torch.arange(n_folds)[:, None]


def _shares(held_out: Tensor, loss: LinearLoss) -> Tensor:
    shares = torch.where(held_out, 0.0, loss.weights[:, 0])
    return shares / shares.sum(dim=1, keepdim=True)


def _defaults(n_examples: int, n_units: int) -> list[int]:
    most = min(n_examples // 2, n_units)
    return [0, *(1 << power for power in range(max(most, 1).bit_length()) if 1 << power <= most)]


def _message(chosen: tuple[int, float], best: tuple[int, float], n_examples: int, n_folds: int) -> str:
    how = "leave-one-out" if n_folds == n_examples else f"{n_folds} folds"
    text = f"k = {chosen[0]}, ridge = {chosen[1]:.3g} by {how} on {n_examples} examples"
    if chosen != best:
        text += f"; k = {best[0]}, ridge = {best[1]:.3g} was no better than chance would have it"
    if n_examples < TINY:
        text += f"; {n_examples} examples tell little, so simpler settings are preferred: add examples to allow more"
    return text
