"""Evidence routing: weigh the sources by how well each, frozen, explains the examples. No training, no gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from smatter.methods import Fit, Trace, method
from smatter.methods._members import as_members, check_passes
from smatter.settings import MixSettings, check_limits, check_temperature

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress


@dataclass(frozen=True)
class EvidenceSettings(MixSettings):
    """How evidence becomes weights.

    Args:
        temperature: by how many standard errors a source may be worse before its weight falls by e; by default 1 for up
            to four sources, and less for more, and 3 for predictions.
        max_sources: the most sources with weight: those that explain best; all by default.
    """

    temperature: float | None = None
    max_sources: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        check_limits(max_sources=self.max_sources)


@method(EvidenceSettings)
def evidence(live: LiveMixture, task: Task, settings: EvidenceSettings, progress: Progress) -> Fit:
    """Weigh the sources by how well each explains the examples: a pass of each."""
    from smatter.route.encode import as_mixture, hear
    from smatter.route.evidence import ByEvidence, Evidence, pooled_weights

    check_passes(live, settings)
    names = live.library.names
    encoded = hear(live, task.objective, names, progress)
    weigh = ByEvidence(names, settings.temperature, settings.max_sources)
    weights = weigh(encoded).weights
    assert encoded.losses is not None
    pooled = pooled_weights(encoded.losses, settings.temperature)
    own, members = as_members(live, settings, pooled, as_mixture(live, weights, names).without_idle())
    return Fit(
        own,
        members=members,
        evidence=Evidence.of(names, encoded.losses, settings.temperature, encoded.accuracies),
        spread=partial(encoded.spread, weigh),
        notes=task.notes,
        trace=Trace(path=(tuple(weights[0].tolist()),)),
    )
