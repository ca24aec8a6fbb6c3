"""Weights that somebody gives, whatever the examples are: these fit the head, and judge it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smatter.compose.mixture import Mixture, read_weights
from smatter.errors import UnknownSource
from smatter.methods import Fit, method
from smatter.records import told_names

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress

UNIFORM = "uniform"


@dataclass(frozen=True)
class FixedSettings:
    """Which weights.

    Args:
        weights: uniform, the name of one source, or SOURCE=WEIGHT,... that sum to 1.
    """

    weights: str = UNIFORM

    def __post_init__(self) -> None:
        if self.weights != UNIFORM and "=" in self.weights:
            Mixture.of(read_weights(self.weights))


@method(FixedSettings, needs_settings=True)
def fixed(live: LiveMixture, task: Task, settings: FixedSettings, progress: Progress) -> Fit:
    """Take the weights that you give; the examples fit the head and judge it."""
    names = live.library.names
    if settings.weights == UNIFORM:
        weights = dict.fromkeys(names, 1 / len(names))
    elif settings.weights in names:
        weights = {settings.weights: 1.0}
    elif "=" in settings.weights:
        weights = read_weights(settings.weights)
    else:
        raise UnknownSource(
            f"no source is named {settings.weights[:80]!r}: use {UNIFORM}, some as A=.7,B=.3, or one of "
            f"{told_names(names)}"
        )
    progress(1)
    return Fit(Mixture.of(weights).without_idle(), notes=task.notes)
