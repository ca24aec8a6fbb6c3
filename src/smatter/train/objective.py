"""The query loss of a routed network, and its gradient in all that a router learns (multi-source paper, section 6).

The network is composed with weights and residual as the router gives them, and passed backward once. From the gradient
G in its parameters follows the gradient in the weights, <G, source>, with sources read where they lie, and in the
residual, G itself. Both enter the router's graph as constants of a linear function, so that no gradient is ever kept
for a source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from smatter.live.episodes import episode_queries
from smatter.live.mixture import LiveMixture
from smatter.route.encode import Routing, as_mixture
from smatter.route.experts import Experts
from smatter.route.router import Router
from smatter.settings.training import Imitation
from smatter.train.lessons import Lesson
from smatter.train.parting import first_choice_closed
from smatter.train.teacher import better_experts, distillation


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
    router: Router,
    experts: Experts | None,
    gates: Tensor | None,
    lesson: Lesson,
    descriptors: Tensor,
    imitation: Imitation,
    without_first: bool = False,
) -> TaskLoss:
    """Route a task, and pass its queries forward and backward through what comes of it.

    Args:
        live: the network.
        router: gives the weights.
        experts: give the residual, where there are any.
        gates: of the experts, (n_experts, n_units).
        lesson: the task.
        descriptors: of all sources, relative to the base's.
        imitation: how much a teacher counts, where the lesson has one.
        without_first: whether the expert of most weight is closed.
    """
    sources = [live.library.names[number] for number in lesson.sources]
    encoded = lesson.encoded
    routing: Routing = router(encoded.statistics, descriptors[list(lesson.sources)], encoded.losses)
    delta = None
    if experts is not None and gates is not None:
        alpha = routing.experts
        if without_first:
            alpha = first_choice_closed(routing.expert_scores).softmax(dim=0)[:-1]
        delta = experts.residual(alpha, gates)
    residual = None if delta is None else live.numbering.residual(delta.detach())
    live.compose(as_mixture(live, routing.weights, sources), residual)
    queries = episode_queries(live, lesson.episode)
    if lesson.teaching and imitation.predictions:
        queries = replace(queries, teacher=lesson.teaching.probabilities, teacher_share=imitation.predictions)
    value = live.backward(queries)
    slopes = live.inner_products(sources).to(routing.weights)
    if len(routing.weights) == 1:
        slopes = slopes.sum(dim=0, keepdim=True)
    slope = (slopes * routing.weights).sum()
    if delta is not None:
        slope = slope + (live.gradient_vector() * delta).sum()
    live.forget()
    if lesson.teaching and imitation.weights:
        distance = distillation(lesson.teaching.weights, routing.scores, imitation.temperature)
        slope = slope + imitation.weights * distance
    if lesson.is_taught and imitation.experts and experts is not None and gates is not None:
        mixture = as_mixture(live, routing.weights.detach(), sources)
        better = better_experts(live, lesson.episode, mixture, experts=experts, gates=gates, alpha=routing.experts)
        if better is not None:
            distance = distillation(better, routing.expert_scores[None], imitation.temperature)
            slope = slope + imitation.experts * distance
    return TaskLoss(value, slope, routing)
