"""What a solver returns, and what its endings mean."""

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class Status(Enum):
    """How a run ended; `remedy` says what a user can do about it."""

    SOLVED = "solved", "nothing to do"
    OUT_OF_STEPS = "out of steps", "allow more steps, or accept the gap that is reported"
    OUT_OF_GRADIENTS = "out of gradient evaluations", "allow more evaluations, or accept the gap that is reported"
    STALLED = "no step lowers the loss", "the loss is flat or rounding limits it: loosen the tolerance, or use float64"
    DIVERGED = "the loss is not finite", "scale the features, or add ridge"

    def __init__(self, label: str, remedy: str) -> None:
        self.label = label
        self.remedy = remedy


@dataclass(frozen=True)
class Solution:
    """Where a run ended, for a batch of tasks.

    Args:
        point: the variable that was solved for; (n_tasks, ...).
        value: the loss there, (n_tasks,).
        gap: an upper bound on how far `value` is above the minimum when the problem is convex (the Frank-Wolfe
            duality gap, or the like); otherwise a measure of stationarity; (n_tasks,).
        is_convex: which of the two `gap` is.
        status: how each task ended.
        steps: steps each task took, (n_tasks,).
        gradient_evaluations: gradients of the batch that were computed.
        seconds: wall time, if a clock was given.
    """

    point: Tensor
    value: Tensor
    gap: Tensor
    is_convex: bool
    status: tuple[Status, ...]
    steps: Tensor
    gradient_evaluations: int
    seconds: float | None = None

    @property
    def ok(self) -> bool:
        """Whether every task was solved to its tolerance."""
        return all(status is Status.SOLVED for status in self.status)

    @property
    def advice(self) -> str:
        """The endings that occurred and their remedies, in one line."""
        return "; ".join(f"{status.label}: {status.remedy}" for status in dict.fromkeys(self.status))
