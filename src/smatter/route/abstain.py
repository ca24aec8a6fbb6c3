"""Whether a routing is sure enough, and what is run where it is not (Bayes-routed paper, sections 3 and 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from smatter.compose.records import Decision
from smatter.errors import InvalidSettings
from smatter.posterior.decide import Deployed
from smatter.posterior.learnt import RuleCalibration
from smatter.posterior.uncertainty import SCORES, Facts, check_score
from smatter.route.certificates import Certificate, proven_selection
from smatter.route.opening import Routed
from smatter.settings.decisions import BASE, ESCALATE, PRIOR_MEAN, Limit


def judge(facts: Facts, limit: Limit, most: float, calibration: RuleCalibration, fallback: str) -> Decision:
    """Compare the score of a task with those of calibration tasks.

    Args:
        facts: of the task.
        limit: which score, and when it is too high.
        most: the threshold; see `threshold`.
        calibration: of the rule that is used.
        fallback: what is done then.
    """
    check_score(limit.score, has_queries=facts.has_queries)
    value = SCORES[limit.score](facts)
    if not math.isfinite(value):
        raise InvalidSettings(f"{limit.score} cannot be told from these examples: use another score")
    told = {"rule": calibration.rule, "score": value, "measure": limit.score, "threshold": most}
    words = f"{limit.score} {value:.3g}, threshold {most:.3g} by {calibration.tasks}"
    if value < most or (value == most and limit.kind == "coverage"):  # an error is proven of scores below alone
        return Decision(outcome="routed", reason=f"sure enough: {words}", **told)
    if fallback == ESCALATE:
        return Decision(outcome="escalated", reason=f"unsure, so all sources are averaged: {words}", **told)
    return Decision(outcome="abstained", reason=f"unsure, so {fallback} is taken instead: {words}", **told)


def threshold(calibration: RuleCalibration, limit: Limit, certificates: Sequence[Certificate]) -> float:
    """The score above which a routing is too unsure.

    Args:
        calibration: of the rule that is used.
        limit: which score, and when it is too high.
        certificates: of the router, by which an error is proven.
    """
    if limit.kind == "coverage":
        return calibration.threshold(limit.score, limit.value)
    return proven_selection(certificates, calibration.rule, calibration.digest, limit).threshold


def instead(fallback: str, routed: Routed, point: Tensor, sources: tuple[str, ...], base: str) -> Deployed:
    """The networks that are run where a routing is too unsure.

    Args:
        fallback: which; see `settings.decisions`.
        routed: what the router says of the task.
        point: its routing, (d,).
        sources: names of the library's.
        base: which of them is the base.
    """
    n_sources = len(sources)
    alone = torch.eye(n_sources).to(point)
    if fallback == ESCALATE:
        members = torch.cat([alone, point[n_sources:].expand(n_sources, -1)], dim=1)
        shares = torch.cat([point.new_full((1,), 0.5), routed.pooled.to(point) / 2])
        return Deployed.of(torch.cat([point[None], members]), shares)
    null = torch.zeros_like(point[n_sources:])
    null[-1] = 1.0
    source = base if fallback == BASE else fallback
    weights = routed.prior.to(point) if fallback == PRIOR_MEAN else alone[sources.index(source)]
    return Deployed(torch.cat([weights, null])[None], point.new_ones(1))
