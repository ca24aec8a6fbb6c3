"""The single source that explains the examples best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smatter.compose.mixture import Mixture
from smatter.methods import Fit, NoSettings, method

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress


@method(NoSettings)
def best_source(live: LiveMixture, task: Task, settings: NoSettings, progress: Progress) -> Fit:  # noqa: ARG001
    """Take the one source of least loss on the examples: a pass of each."""
    from smatter.route.evidence import gather_evidence

    evidence = gather_evidence(live, task.objective, progress=progress)
    return Fit(Mixture.of({evidence.best: 1.0}), evidence=evidence)
