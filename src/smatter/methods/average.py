"""The plain average of all sources: what every other method must beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smatter.compose.mixture import Mixture
from smatter.methods import Fit, method
from smatter.methods._members import as_members, check_passes
from smatter.settings import MixSettings

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress


@method(MixSettings)
def average(live: LiveMixture, task: Task, settings: MixSettings, progress: Progress) -> Fit:  # noqa: ARG001
    """Give every source the same weight, whatever the examples are."""
    import torch

    check_passes(live, settings)
    names = live.library.names
    mixture, equal = Mixture.of(dict.fromkeys(names, 1 / len(names))), torch.full((len(names),), 1 / len(names))
    own, members = as_members(live, settings, equal, mixture)
    progress(1)
    return Fit(own, members=members)
