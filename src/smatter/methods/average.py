"""The plain average of all sources: what every other method must beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smatter.compose.mixture import Mixture
from smatter.methods import Fit, NoSettings, method

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress


@method(NoSettings)
def average(live: LiveMixture, task: Task, settings: NoSettings, progress: Progress) -> Fit:  # noqa: ARG001
    """Give every source the same weight, whatever the examples are."""
    names = live.library.names
    progress(1)
    return Fit(Mixture.of(dict.fromkeys(names, 1 / len(names))))
