"""Limits of conformal sets of classes from calibration tasks: for all of them, and for those of each domain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smatter.certify.conformal import conformal_limit_of_tasks
from smatter.compose.records import ClassSets

SET_COVERAGES = (0.8, 0.9, 0.95, 0.99)
"""Shares of inputs whose set holds the right class, of which a user takes one."""

DIGITS = 6
"""Limits are rounded up, and so are no narrower than they were."""


def class_sets(
    misses: Sequence[NDArray[np.float64]], domains: Sequence[str | None], tasks: str, choices: int = 1
) -> ClassSets:
    """What a recipe needs to name sets of classes.

    Args:
        misses: one minus the probability that each query's own class got, of each task.
        domains: of each task; none where it has several.
        tasks: name of the list.
        choices: rules that were calibrated together, of which one may be chosen; each is allowed a share of the misses.
    """

    def limits(rows: Sequence[NDArray[np.float64]]) -> tuple[float, ...]:
        found = (conformal_limit_of_tasks(rows, (1 - coverage) / choices).value for coverage in SET_COVERAGES)
        return tuple(min(1.0, math.ceil(min(1.0, each) * 10**DIGITS) / 10**DIGITS) for each in found)

    return ClassSets(
        tasks=tasks,
        n=len(misses),
        coverages=SET_COVERAGES,
        limits=limits(misses),
        domains={
            name: limits([row for row, domain in zip(misses, domains, strict=True) if domain == name])
            for name in sorted({domain for domain in domains if domain is not None})
        },
    )
