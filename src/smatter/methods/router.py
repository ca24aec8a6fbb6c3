"""A trained router: weights of the sources and of residual experts in one step (multi-source paper, section 6)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from smatter.methods import Fit, Trace, method
from smatter.methods._members import as_members, check_passes
from smatter.records import part
from smatter.settings import MixSettings, check_limits

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress
    from smatter.route.store import TrainedRouter


@dataclass(frozen=True)
class RoutedSettings(MixSettings):
    """How a router is used.

    Args:
        router: the router.
        evidence: whether each source is passed the examples, and the router told how it does; then the mixture with
            each expert is passed them too, and the experts are weighed by that as well.
        max_sources: the most sources with weight; all by default.
    """

    router: TrainedRouter | None = None
    evidence: bool = True
    max_sources: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(max_sources=self.max_sources)


@method(RoutedSettings, needs_router=True)
def router(live: LiveMixture, task: Task, settings: RoutedSettings, progress: Progress) -> Fit:
    """Ask a trained router: a pass of the base, and of each source and each expert for evidence."""
    from smatter.route.encode import as_mixture, encode
    from smatter.route.evidence import Evidence, pooled_weights
    from smatter.route.opening import open_by_evidence
    from smatter.route.store import Ask

    assert settings.router is not None
    check_passes(live, settings)
    trained, names = settings.router, live.library.names
    told = names if settings.evidence else ()
    passing, opening = part(progress, 0.5), part(progress, 0.5)
    encoded = encode(live, task.objective, told, passing)
    ask = Ask(trained, trained.describe(live, names), settings.max_sources, trained.router.keys())
    routing = ask(encoded)
    if settings.evidence:
        routing = open_by_evidence(live, task.objective, trained, routing, opening)
    pooled = routing.weights.mean(dim=0)
    if settings.mix != "weights" and encoded.losses is not None:
        prior = ask(replace(encoded, losses=None)).weights.mean(dim=0)
        pooled = pooled_weights(encoded.losses, prior=prior)
    own, members = as_members(live, settings, pooled, as_mixture(live, routing.weights, names).without_idle())
    return Fit(
        own,
        members=members,
        experts=trained.mix(live, routing.experts),
        expert_names=trained.expert_names,
        evidence=None if encoded.losses is None else Evidence.of(names, encoded.losses),
        likeness=dict(zip(trained.probe.names, routing.attention.tolist(), strict=True)),
        spread=partial(encoded.spread, ask),
        notes=task.notes,
        trace=Trace(path=(tuple(routing.weights.mean(dim=0).tolist()),)),
    )
