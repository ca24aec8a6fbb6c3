"""Task arithmetic: base + strength * the sum of what the sources add to it (Ilharco and others, 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.methods import Fit, Trace, method
from smatter.records import part
from smatter.settings import check_at_least, check_steps

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress


@dataclass(frozen=True)
class TaskArithmeticSettings:
    """Which strengths are tried.

    Args:
        strengths: the one of least loss on the examples is taken, the weakest of equals; 0 is the base alone.
    """

    strengths: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)

    def __post_init__(self) -> None:
        if not self.strengths:
            raise InvalidSettings("there is no strength to try: give some, such as 0.1,0.3,0.5")
        check_steps(1, strengths=len(self.strengths))
        for strength in self.strengths:
            check_at_least(0, strength=strength)


@method(TaskArithmeticSettings)
def task_arithmetic(live: LiveMixture, task: Task, settings: TaskArithmeticSettings, progress: Progress) -> Fit:
    """Add the same share of what every source adds to the base; the share that fits the examples best."""
    base, names = live.library.manifest.base, live.library.names
    step = part(progress, 1 / len(settings.strengths))
    losses: dict[float, float] = {}
    for strength in sorted(settings.strengths):
        live.compose(Mixture.task_arithmetic(base, dict.fromkeys(names, 1.0), strength))
        loss = live.loss(task.objective)
        step(1)
        if math.isfinite(loss):  # a network that is far from its sources may give none
            losses[strength] = loss
    if not losses:
        raise InvalidSettings("no strength gives a finite loss on these examples: try smaller ones")
    best = min(losses, key=lambda strength: losses[strength])
    mixture = Mixture.task_arithmetic(base, dict.fromkeys(names, 1.0), best).without_idle()
    return Fit(mixture, trace=Trace((losses[best],)), notes=(f"strength {best:g} of {len(losses)} tried",))
