"""What a bound says, and what every bound asks of its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smatter.errors import InvalidCertificate

Floats = NDArray[np.float64]

MOST_TASKS = 2**50
"""Where the search for a number of tasks gives up."""


ROUNDING = 1e-9


@dataclass(frozen=True)
class UpperBound:
    """A number that is too small with probability at most delta, over the draw of its tasks.

    Args:
        about: what is bounded, such as "mean loss".
        method: how, such as "betting".
        value: the bound; never above `largest`.
        estimate: the same quantity as measured on the tasks.
        delta: how often such a bound may fail.
        n: tasks that it was computed from.
        largest: what is known without any task; a bound that is not below it says nothing.
    """

    about: str
    method: str
    value: float
    estimate: float
    delta: float
    n: int
    largest: float = 1.0

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not self.value <= self.largest:  # also refuses NaN
            raise InvalidCertificate(f"a bound of {self.value} is above {self.largest}, which holds without any task")

    @property
    def gap(self) -> float:
        """How far it is above the measured value."""
        return self.value - self.estimate

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing."""
        return self.value >= self.largest

    def __str__(self) -> str:
        limit = "vacuous" if self.vacuous else f"at most {self.value:.4f}"
        return (
            f"{self.about} {limit} with probability {1 - self.delta:g} "
            f"({self.method}; {self.estimate:.4f} on {self.n} tasks)"
        )


def check_delta(delta: float) -> None:
    """Refuse a probability of failure that is not in (0, 1)."""
    if not 0 < delta < 1:  # also refuses NaN
        raise InvalidCertificate(f"delta {delta} is not between 0 and 1: 0.05 lets one bound in twenty fail")


def check_fraction(fraction: float, what: str) -> None:
    """Refuse a fraction of tasks that is not in (0, 1]."""
    if not 0 < fraction <= 1:
        raise InvalidCertificate(f"{what} {fraction} is not above 0 and at most 1: 0.1 is a tenth of the tasks")


def unit_losses(losses: ArrayLike, least: int = 1) -> Floats:
    """Losses of tasks that a bound can be made of: in [0, 1], one for each task, `least` of them or more; (n,).

    What rounding put outside, as averages do, is brought back.
    """
    found = np.asarray(losses, np.float64)
    if found.ndim != 1:
        raise InvalidCertificate(f"losses of shape {found.shape}: give one number for each task")
    if len(found) < least:
        raise InvalidCertificate(f"{len(found)} tasks are too few, the bound needs {least}: calibrate on more tasks")
    inside = (found >= -ROUNDING) & (found <= 1 + ROUNDING)
    if not inside.all():  # also refuses NaN
        bad = int(np.flatnonzero(~inside)[0])
        raise InvalidCertificate(
            f"the loss of task {bad} is {found[bad]}, not in [0, 1]: use errors, or scale the loss"
        )
    return np.clip(found, 0.0, 1.0)


def tasks_needed(radius: Callable[[int], float], gap: float) -> int:
    """The least number of tasks at which a radius that falls with their number is at most `gap`.

    >>> tasks_needed(lambda n: 1 / n, 0.01)
    100
    """
    if not gap > 0:
        raise InvalidCertificate(f"a gap of {gap} needs infinitely many tasks: wish for one above 0")
    high = 1
    while radius(high) > gap:
        high *= 2
        if high > MOST_TASKS:
            raise InvalidCertificate(f"no number of tasks gives a gap of {gap}: wish for a larger one")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if radius(middle) <= gap else (middle, high)
    return high
