"""The query loss of a routed network, and its gradient in all that a router learns (multi-source paper, section 6).

The network is composed with weights and residual as the router gives them, and passed backward once. From the gradient
G in its parameters follows the gradient in the weights, <G, source>, with sources read where they lie, and in the
residual, G itself. Both enter the router's graph as constants of a linear function, so that no gradient is ever kept
for a source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.live.episodes import episode_rows
from smatter.live.flat import FlatView
from smatter.live.mixture import LiveMixture
from smatter.route.encode import as_mixture
from smatter.route.experts import Experts
from smatter.route.router import Router, Routing
from smatter.train.lessons import Lesson
from smatter.train.teacher import better_experts, distillation


@dataclass(frozen=True)
class Imitation:
    """How much a teacher counts.

    Args:
        weights: price of weights unlike the teacher's.
        experts: price of weights of experts unlike those that gradient steps on the examples give.
        predictions: share of the loss that imitates the teacher's predictions, between 0 and 1.
        temperature: tau, of both weights' distillation.
        share: of the tasks on which the teacher is asked.
    """

    weights: float = 0.0
    experts: float = 0.0
    predictions: float = 0.0
    temperature: float = 1.0
    share: float = 0.5

    def __post_init__(self) -> None:
        if not (0 <= self.weights < math.inf and 0 <= self.experts < math.inf and 0 <= self.predictions <= 1):
            raise InvalidSettings("a teacher's prices must be finite and not negative, that of predictions at most 1")
        if not (self.temperature > 0 and 0 <= self.share <= 1):
            raise InvalidSettings("a teacher's temperature must be positive, and its share of the tasks at most 1")

    @property
    def is_wanted(self) -> bool:
        """Whether a teacher counts at all."""
        return self.needs_solver or self.experts > 0

    @property
    def needs_solver(self) -> bool:
        """Whether tasks must be solved."""
        return self.weights > 0 or self.predictions > 0


@dataclass(frozen=True)
class TaskLoss:
    """The loss of one task.

    Args:
        value: mean loss of its queries.
        slope: a scalar whose gradient is that of the loss.
        routing: what the router said.
    """

    value: float
    slope: Tensor
    routing: Routing


def task_loss(
    live: LiveMixture,
    flat: FlatView,
    router: Router,
    experts: Experts | None,
    gates: Tensor | None,
    lesson: Lesson,
    descriptors: Tensor,
    imitation: Imitation,
) -> TaskLoss:
    """Route a task, and pass its queries forward and backward through what comes of it.

    Args:
        live: the network.
        flat: its parameters as a vector.
        router: gives the weights.
        experts: give the residual, where there are any.
        gates: of the experts, (n_experts, n_units).
        lesson: the task.
        descriptors: of all sources, relative to the base's.
        imitation: how much a teacher counts, where the lesson has one.
    """
    sources = [live.library.names[number] for number in lesson.sources]
    encoded = lesson.encoded
    routing: Routing = router(encoded.statistics, descriptors[list(lesson.sources)], encoded.losses)
    delta = None
    if experts is not None and gates is not None:
        delta = experts.residual(routing.experts, gates)
    residual = None if delta is None else flat.residual(delta.detach())
    live.compose(as_mixture(live, routing.weights, sources), residual)
    rows = episode_rows(live, lesson.episode)
    if lesson.teaching and imitation.predictions:
        rows = replace(rows, teacher=lesson.teaching.probabilities, teacher_share=imitation.predictions)
    value = live.backward(rows)
    slopes = live.inner_products(sources).to(routing.weights)
    if len(routing.weights) == 1:
        slopes = slopes.sum(dim=0, keepdim=True)
    slope = (slopes * routing.weights).sum()
    if delta is not None:
        slope = slope + (flat.gradient() * delta).sum()
    live.forget()
    if lesson.teaching and imitation.weights:
        far = distillation(lesson.teaching.weights, routing.scores, imitation.temperature)
        slope = slope + imitation.weights * far
    if lesson.is_taught and imitation.experts and experts is not None and gates is not None:
        mixture = as_mixture(live, routing.weights.detach(), sources)
        better = better_experts(live, lesson.episode, mixture, experts, gates, routing.experts)
        if better is not None:
            far = distillation(better, routing.expert_scores[None], imitation.temperature)
            slope = slope + imitation.experts * far
    return TaskLoss(value, slope, routing)
