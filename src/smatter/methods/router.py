"""A trained router: weights of the sources and of residual experts in one step (multi-source paper, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from smatter.methods import Fit, Trace, method
from smatter.methods._members import as_members, check_passes
from smatter.settings import MixSettings, check_limits

if TYPE_CHECKING:
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.records import Progress
    from smatter.route.opening import Routed
    from smatter.route.store import TrainedRouter


@dataclass(frozen=True)
class RoutedSettings(MixSettings):
    """How a router is used.

    Args:
        router: the router.
        evidence: whether each source is passed the examples, and the router told how it does; then the mixture with
            each expert is passed them too, and the experts are weighed by that as well.
        max_sources: the most sources with weight; all by default.
        experts: whether residual experts, and what is common to all tasks, may correct the mixture.
    """

    router: TrainedRouter | None = None
    evidence: bool = True
    max_sources: int | None = None
    experts: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(max_sources=self.max_sources)


@method(RoutedSettings, needs_router=True)
def router(live: LiveMixture, task: Task, settings: RoutedSettings, progress: Progress) -> Fit:
    """Ask a trained router: a pass of the base, and of each source and each expert for evidence."""
    from smatter.route.opening import route_task

    assert settings.router is not None
    check_passes(live, settings)
    routed = route_task(
        live,
        task.objective,
        settings.router,
        evidence=settings.evidence,
        experts=settings.experts,
        max_sources=settings.max_sources,
        progress=progress,
    )
    return fit_of(live, task, settings, routed)


def fit_of(live: LiveMixture, task: Task, settings: RoutedSettings, routed: Routed) -> Fit:
    """A task's model from what the router said of it; no pass of any network."""
    from smatter.route.encode import as_mixture
    from smatter.route.evidence import Evidence

    trained, names = routed.ask.trained, live.library.names
    routing, losses, accuracies = routed.routing, routed.encoded.losses, routed.encoded.accuracies
    pooled = routing.weights.mean(dim=0) if settings.mix == "weights" else routed.pooled
    own, members = as_members(live, settings, pooled, as_mixture(live, routing.weights, names).without_idle())
    return Fit(
        own,
        members=members,
        experts=trained.mix(live, routing.experts) if settings.experts else None,
        expert_names=trained.expert_names,
        uncertainty=routed.uncertainty,
        evidence=None if losses is None else Evidence.of(names, losses, accuracies=accuracies),
        likeness=dict(zip(trained.probe.names, routing.attention.tolist(), strict=True)),
        spread=partial(routed.encoded.spread, routed.ask),
        notes=task.notes,
        trace=Trace(path=(tuple(routing.weights.mean(dim=0).tolist()),)),
    )
