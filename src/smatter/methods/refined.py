"""From a router's weights, or those of evidence, some steps further on the examples (multi-source paper, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from smatter.errors import InvalidSettings
from smatter.methods import Fit, Trace, method
from smatter.records import part
from smatter.settings import check_at_least, check_choices, check_limits, check_steps, check_temperature

if TYPE_CHECKING:
    from torch import Tensor

    from smatter.compose.experts import ExpertMix
    from smatter.live.descent import Steps
    from smatter.live.mixture import LiveMixture
    from smatter.live.problems import ResidualLoss
    from smatter.live.task import Task
    from smatter.records import Progress
    from smatter.route.store import TrainedRouter

Tuned = Literal["weights", "experts", "mask", "modules"]


@dataclass(frozen=True)
class RefinedSettings:
    """What is refined, and how far.

    Args:
        router: gives the weights to begin at; evidence does without one.
        tune: what is changed: the weights of the sources, by Frank-Wolfe steps; or by gradient steps the weights of
            the experts, each unit of their masks, or all parameters of a few modules.
        n_steps: how many steps, at most.
        pull: towards the sources' weights at the start, in examples: 1 weighs as much as one example more.
        n_modules: how many modules, where these are tuned.
        evidence: whether each source is passed the examples, and the router told how it does.
        max_sources: the most sources with weight; all by default.
        temperature: of evidence, where there is no router.
    """

    router: TrainedRouter | None = None
    tune: Tuned = "weights"
    n_steps: int = 2
    pull: float = 5.0
    n_modules: int = 1
    evidence: bool = True
    max_sources: int | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        check_choices(self, tune=Tuned)
        check_steps(1, n_steps=self.n_steps)
        check_at_least(1, n_modules=self.n_modules)
        check_limits(max_sources=self.max_sources)
        check_at_least(0, pull=self.pull)


@method(RefinedSettings)
def refined(live: LiveMixture, task: Task, settings: RefinedSettings, progress: Progress) -> Fit:
    """Begin at a router's weights, or evidence's, and take a few steps down the loss of the examples."""
    from smatter.live.descent import Steps, descend_residual, descend_weights, keep_modules
    from smatter.live.problems import MixtureLoss, ResidualLoss
    from smatter.route.encode import as_mixture, encode, hear
    from smatter.route.evidence import ByEvidence, Evidence
    from smatter.route.opening import open_by_evidence
    from smatter.route.store import Ask

    trained, names = settings.router, live.library.names
    if settings.tune in ("experts", "mask") and (trained is None or not trained.router.settings.n_experts):
        raise InvalidSettings("there are no experts to tune: tune modules or weights, or train a router with --experts")
    if trained is None and not settings.evidence:
        raise InvalidSettings("without a router there is nothing but evidence to go by: give a router")
    told = names if settings.evidence else ()
    n_parts = len(told) + settings.n_steps
    passing, stepping = part(progress, len(told) / n_parts), part(progress, 1 / n_parts)
    if trained is None:
        weigh: Ask | ByEvidence = ByEvidence(names, settings.temperature, settings.max_sources)
        encoded = hear(live, task.objective, names, passing)
    else:
        weigh = trained.ask(live, names, settings.max_sources)
        encoded = encode(live, task.objective, told, passing)
    routing = weigh(encoded)
    if trained is not None and settings.evidence:
        routing = open_by_evidence(live, task.objective, trained, routing)
    weights, residual, evidence = routing.weights, None, None
    if encoded.losses is not None:
        evidence = Evidence.of(names, encoded.losses, settings.temperature, encoded.accuracies)
    experts = None if trained is None else trained.mix(live, routing.experts)
    steps, notes = Steps(stepping), task.notes
    if not task.can_hold_out:
        notes = (*notes, "the weights are as they were at the start, not refined")
    elif settings.tune == "weights":
        opened = live.numbering.residual(_opened(live, experts))
        problem = MixtureLoss(live, task.objective, len(weights) > 1, opened, settings.pull, center=weights)
        allowed = (weights > 0).any(dim=0)  # a source that the limit has left out stays out
        weights = descend_weights(problem, weights, settings.n_steps, steps, allowed, with_gap=False).point[0]
    elif settings.tune == "modules":
        project = keep_modules(live, settings.n_modules)
        loss = ResidualLoss(live, task.objective, as_mixture(live, weights, names), _opened(live, experts))
        found = descend_residual(loss, project, settings.n_steps, steps.watch).point[0]
        residual = live.numbering.compact(found)
    else:
        assert trained is not None
        loss = ResidualLoss(live, task.objective, as_mixture(live, weights, names))
        experts = _tuned(loss, trained, routing.experts, settings, steps)
    return Fit(
        as_mixture(live, weights, names).without_idle(),
        experts=experts,
        expert_names=() if trained is None else trained.expert_names,
        residual=residual,
        evidence=evidence,
        likeness={} if trained is None else dict(zip(trained.probe.names, routing.attention.tolist(), strict=True)),
        spread=partial(encoded.spread, weigh),
        trace=Trace(tuple(steps.losses), tuple(steps.path) or (tuple(weights.mean(dim=0).tolist()),)),
        notes=notes,
    )


def _opened(live: LiveMixture, experts: ExpertMix | None) -> Tensor:
    """What experts add, as a vector of the network's parameters, (d,)."""
    import torch

    if experts is None:
        return torch.zeros(live.numbering.n_parameters)
    placed = live.library.bank(experts.bank)
    return torch.from_numpy(placed.vector(placed.bank.gates(experts)))


def _tuned(
    loss: ResidualLoss, trained: TrainedRouter, alpha: Tensor, settings: RefinedSettings, steps: Steps
) -> ExpertMix | None:
    """What is open of the experts after gradient steps."""
    import torch

    from smatter.live.descent import descend_experts, descend_mask
    from smatter.live.problems import ResidualLoss
    from smatter.route.experts import with_null

    live, bank, n_steps = loss.live, trained.bank, settings.n_steps
    assert bank is not None
    layout, masks = live.layout(trained.router.settings), torch.from_numpy(bank.masks).float()
    values = torch.from_numpy(live.library.bank(bank.digest).values)
    if settings.tune == "mask":
        open_ = with_null(alpha, len(masks)) @ masks
        opened = descend_mask(loss, layout, values, open_=open_, n_steps=n_steps, watch=steps.watch)
        return trained.mix(live, alpha, opened)
    if len(masks) > len(alpha):  # what is common stays open, and experts are weighed beside it
        common, masks = masks[-1], masks[:-1] * (1 - masks[-1])
        loss = ResidualLoss(live, loss.objective, loss.mixture, layout.expand(values, common))
    alpha = descend_experts(loss, layout, values, masks=masks, alpha=alpha, n_steps=n_steps, watch=steps.watch)
    return trained.mix(live, alpha)
