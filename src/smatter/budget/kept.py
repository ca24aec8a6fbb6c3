"""How well budgets were kept, from what was measured.

Accuracy on the tasks that kept their budget alone rewards whoever breaks it on the hard ones. Here a task that breaks
its budget counts with what it gets instead: the base's answer, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smatter.budget.ranked import Floats
from smatter.errors import InvalidSettings


@dataclass(frozen=True)
class Kept:
    """Configurations measured against their budgets.

    Args:
        share: that kept theirs.
        overrun: by how much the worst twentieth exceeds, as a share of what the budget allows beyond the base.
        used: mean share of what the budget allows beyond the base that was spent.
    """

    share: float
    overrun: float
    used: float


def budgets_kept(measured: Floats, budgets: Floats, base: Floats | float) -> Kept:
    """Compare measured costs with budgets, all in one unit.

    Args:
        measured: (n,).
        budgets: (n,), each above its base.
        base: what the base took in the same block; (n,), or one number.
    """
    allowed = np.asarray(budgets - base, np.float64)
    if not (allowed > 0).all():  # also rejects NaN
        raise InvalidSettings("a budget that is not above the base allows nothing: compare budgets above it")
    spent = np.asarray(measured - base, np.float64)
    overrun = np.quantile(np.maximum(spent - allowed, 0.0) / allowed, 0.95)
    return Kept(float((spent <= allowed).mean()), float(overrun), float((spent / allowed).mean()))


def counted_accuracy(accuracy: Floats, kept: Floats, instead: Floats | float = 0.0) -> float:
    """Mean accuracy over all tasks, with another answer where the budget was broken.

    Args:
        accuracy: of each task; (n_tasks,).
        kept: whether each kept its budget; (n_tasks,).
        instead: accuracy where it did not: the base's, or 0 for wrong.
    """
    return float(np.where(np.asarray(kept, bool), accuracy, instead).mean())
