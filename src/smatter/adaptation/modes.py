"""Three ways to use a router: as it says, refined in its weights, or refined in its residual.

Without a router, evidence takes its place (multi-source paper, section 6).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from smatter.adaptation.evidence import Evidence, check_temperature
from smatter.adaptation.refine import refine_experts, refine_mask, refine_modules, refine_weights
from smatter.algebra.simplex import hard_mask
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.errors import InvalidSettings
from smatter.live.flat import FlatView
from smatter.live.mixture import LiveMixture
from smatter.live.problems import ResidualLoss
from smatter.records import Progress, silent
from smatter.route.encode import Encoded, as_mixture, encode
from smatter.route.experts import used
from smatter.route.private import noise_scale, release
from smatter.route.router import Routing
from smatter.route.store import TrainedRouter
from smatter.route.summary import ClassStatistics
from smatter.solve.loop import State
from smatter.tasks.support import Support

Mode = Literal["no-adapt", "gradient-free", "gradient-based"]
Tuned = Literal["experts", "mask", "modules"]

N_RESAMPLES = 20
"""Of the examples, to see how much the weights depend on them."""


@dataclass(frozen=True)
class ModeSettings:
    """How a task is adapted to.

    Args:
        mode: as the router says; with Frank-Wolfe steps on the weights from there; or with gradient steps on the
            residual from there.
        evidence: whether each source is passed the examples, and the router told how it does.
        max_sources: the most sources with weight, in every mode.
        n_steps: of a refinement.
        pull: of Frank-Wolfe steps towards the router's weights, in examples.
        tune: what gradient steps change: the weights of the experts, each unit of their masks, or all parameters of a
            few modules.
        n_modules: how many modules, where these are tuned.
        temperature: of evidence, where there is no router.
        epsilon: releases weights that are differentially private in the examples; no evidence, experts or refinement.
        delta: the probability with which that may fail.
    """

    mode: Mode = "no-adapt"
    evidence: bool = True
    max_sources: int | None = None
    n_steps: int = 2
    pull: float = 5.0
    tune: Tuned = "experts"
    n_modules: int = 1
    temperature: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        if self.epsilon is not None:
            noise_scale(1.0, self.epsilon, self.delta)  # refuses what is no privacy
            if self.mode != "no-adapt":
                raise InvalidSettings("a refinement looks at the examples again, which no noise covers: use no-adapt")
        for name, choice in {"mode": Mode, "tune": Tuned}.items():
            if getattr(self, name) not in get_args(choice):
                raise InvalidSettings(f"unknown {name} {getattr(self, name)!r}: use {', '.join(get_args(choice))}")
        if min(self.n_steps, self.n_modules, self.max_sources or 1) < 1 or not self.pull >= 0:
            raise InvalidSettings("steps, modules and sources must be at least 1 and the pull not negative")

    def n_units(self, n_sources: int) -> int:
        """How often `progress` is called at most."""
        has_evidence = self.evidence and self.epsilon is None
        return (n_sources if has_evidence else 0) + (self.n_steps if self.mode != "no-adapt" else 0)


@dataclass(frozen=True)
class Routed:
    """What came of it.

    Args:
        mixture: weights of the sources that have any.
        residual: of the experts, or refined; none where there is no correction.
        evidence: leave-one-out loss of each source, where it was asked for.
        likeness: how much the task is like each group of the probe set, by name; empty without a router.
        experts: weight of each residual expert as the router gave it.
        losses: leave-one-out loss at the start of a refinement and after each step; empty without one.
        path: mean weight of every source at the start and after each step on the weights; (n_sources,) each.
        spread: how much the first of these varies with the choice of examples: standard deviations over resampled
            ones, (n_sources,).
        notes: what a person should know of it.
        is_private: whether the weights may be told to others.
    """

    mixture: Mixture
    residual: Residual | None
    evidence: Evidence | None
    likeness: dict[str, float]
    experts: tuple[float, ...]
    losses: tuple[float, ...]
    path: tuple[tuple[float, ...], ...]
    spread: tuple[float, ...]
    notes: tuple[str, ...]
    is_private: bool = False


def route_task(
    live: LiveMixture,
    support: Support,
    trained: TrainedRouter | None,
    settings: ModeSettings,
    progress: Progress = silent,
) -> Routed:
    """Adapt to a task.

    Args:
        live: the network; the result is in it afterwards.
        support: the examples, in canonical order for a result that does not depend on it.
        trained: a router for this library; evidence routing without one.
        settings: how.
        progress: told each source and each step.
    """
    sources = live.library.names
    has_experts = trained is not None and trained.experts is not None
    if settings.mode == "gradient-based" and settings.tune != "modules" and not has_experts:
        raise InvalidSettings("there are no experts to tune: say --tune modules, or train a router with --experts")
    if trained is None and not settings.evidence:
        raise InvalidSettings("without a router there is nothing but evidence to go by: give a router")
    if settings.epsilon is not None:
        return _private(live, support, trained, settings.epsilon, settings)
    encoded = encode(live, support, sources if settings.evidence else (), progress=progress)
    evidence = None
    if encoded.losses is not None:
        evidence = Evidence.of(sources, encoded.losses, settings.temperature)
    descriptors = None if trained is None else trained.describe(live, sources)

    def word(encoded: Encoded) -> tuple[Routing, Tensor]:
        """What is said of a task, and the weights within the limit."""
        if trained is None or descriptors is None:
            routing = _by_evidence(sources, encoded, settings)
        else:
            routing = ask(trained, descriptors, encoded)
        return routing, _limited(routing.weights.double(), settings.max_sources)

    routing, weights = word(encoded)
    flat = FlatView(live)
    vector = torch.zeros(flat.n_parameters)
    if trained is not None and trained.experts:
        vector = trained.experts.residual(routing.experts, trained.layout(flat))
    losses: list[float] = []
    path = [weights.mean(dim=0)]

    def watch(state: State) -> None:
        if losses:
            progress(1)
            path.append(state.point[0].mean(dim=0) if state.point.ndim == 3 else path[-1])
        losses.append(float(state.value[0]))

    notes = []
    if max(support.class_sizes) == 1:
        notes.append("one example per class: none can be held out, so the weights are the router's word, not refined")
    elif settings.mode == "gradient-free":
        weights = refine_weights(
            live, live.rows(support), weights, flat.residual(vector), settings.n_steps, settings.pull, watch
        )
    elif settings.mode == "gradient-based":
        loss = ResidualLoss(live, live.rows(support), as_mixture(live, weights, sources), vector)
        vector = _better_residual(loss, trained, routing, settings, watch)
    mixture = as_mixture(live, weights, sources).without_idle()
    residual = flat.compact(vector)
    live.compose(mixture, residual)
    return Routed(
        mixture, residual, evidence,
        {} if trained is None else dict(zip(trained.probe.names, routing.attention.tolist(), strict=True)),
        tuple(routing.experts.tolist()), tuple(losses), tuple(tuple(each.tolist()) for each in path),
        _spread(encoded, lambda resampled: word(resampled)[1]), tuple(notes),
    )  # fmt: skip


def ask(trained: TrainedRouter, descriptors: Tensor, encoded: Encoded) -> Routing:
    """What a router says of a task; a source whose loss or descriptor is not a number gets no weight.

    Experts of hardly any weight are left out.

    Args:
        trained: the router.
        descriptors: of the sources, relative to the base's.
        encoded: the task.
    """
    losses = encoded.losses
    usable = descriptors.isfinite().all(dim=(1, 2))
    if losses is not None:
        usable &= losses.isfinite().all(dim=1)
    routing: Routing = trained.router(
        encoded.statistics, descriptors[usable], None if losses is None else losses[usable]
    )
    weights = routing.weights.new_zeros(len(routing.weights), len(descriptors))
    weights[:, usable] = routing.weights
    return replace(routing, weights=weights, experts=used(routing.experts))


def _private(
    live: LiveMixture, support: Support, trained: TrainedRouter | None, epsilon: float, settings: ModeSettings
) -> Routed:
    """Each example is routed alone, and the mean of their weights released with noise; see `route.private`."""
    if trained is None or trained.router.settings.tying != "global":
        raise InvalidSettings("private weights need a router with one row of weights: train one with --tying global")
    sources = live.library.names
    live.compose(Mixture.of({live.library.manifest.base: 1.0}))
    features = live.features(live.prepare(support.inputs, support.kind))
    descriptors, alone = trained.describe(live, sources), torch.zeros(1, dtype=torch.int64)
    points = [trained.router(ClassStatistics.of(row[None], alone, 1), descriptors).weights[0] for row in features]
    released = release(torch.stack(points), epsilon, settings.delta, random.SystemRandom().gauss)
    weights = _limited(released[None], settings.max_sources)
    mixture = as_mixture(live, weights, sources).without_idle()
    live.compose(mixture)
    note = f"weights are ({epsilon:g}, {settings.delta:g})-differentially private; predictions still use the examples"
    return Routed(mixture, None, None, {}, (), (), (tuple(weights[0].tolist()),), (), (note,), True)


def _spread(encoded: Encoded, weigh: Callable[[Encoded], Tensor]) -> tuple[float, ...]:
    """Standard deviation of each source's mean weight over resampled examples; no pass of the network.

    Empty where a class has one example, of which no other can be drawn.
    """
    if int(torch.bincount(encoded.labels).min()) < 2:
        return ()
    generator = torch.Generator().manual_seed(0)
    rows = [weigh(encoded.resampled(generator)).mean(dim=0) for _ in range(N_RESAMPLES)]
    return tuple(torch.stack(rows).std(dim=0).tolist())


def _by_evidence(sources: Sequence[str], encoded: Encoded, settings: ModeSettings) -> Routing:
    assert encoded.losses is not None
    evidence = Evidence.of(sources, encoded.losses, settings.temperature)
    weights = torch.tensor([evidence.weights], dtype=torch.float64)
    return Routing(weights, weights.log(), torch.zeros(0), torch.zeros(1), torch.zeros(0), torch.ones(()))


def _limited(weights: Tensor, max_sources: int | None) -> Tensor:
    """The sources of most weight over all rows, and their weights renormalised; (n_rows, n_sources)."""
    if max_sources is None or max_sources >= weights.shape[1]:
        return weights / weights.sum(dim=1, keepdim=True)
    kept = weights * hard_mask(weights.mean(dim=0), max_sources)
    empty = kept.sum(dim=1, keepdim=True) == 0  # a module with all its weight on sources that are left out
    kept = torch.where(empty, kept.mean(dim=0), kept)
    return kept / kept.sum(dim=1, keepdim=True)


def _better_residual(
    loss: ResidualLoss,
    trained: TrainedRouter | None,
    routing: Routing,
    settings: ModeSettings,
    watch: Callable[[State], None],
) -> Tensor:
    """D after gradient steps, (d,)."""
    fixed = loss.fixed
    assert fixed is not None
    if settings.tune == "modules":
        return fixed + refine_modules(loss, settings.n_modules, settings.n_steps, watch)
    assert trained is not None and trained.experts
    experts, layout = trained.experts, trained.layout(loss.flat)
    values = experts.all_values(layout)
    loss = ResidualLoss(loss.live, loss.rows, loss.mixture)
    if settings.tune == "experts":
        alpha = refine_experts(loss, layout, values, experts.masks, routing.experts, settings.n_steps, watch)
        return experts.residual(alpha, layout)
    return layout.expand(
        values, refine_mask(loss, layout, values, routing.experts @ experts.masks, settings.n_steps, watch)
    )
