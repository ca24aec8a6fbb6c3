"""The model of a fit, or the best single source where that explains the examples clearly better."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from smatter.adapted import Adapted
from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit

CLEARLY = 2.0
"""Standard errors by which a model's loss may be above a single source's before that source is taken instead."""
TOLD = 0.05
"""Standard errors that are worth telling: less is rounding."""


def judged_model(live: LiveMixture, task: Task, fit: Fit, **options: Any) -> Adapted:
    """The model of a fit, or of the best single source; see `kept_or_single`.

    Args:
        live: the network.
        task: what was fitted to.
        fit: what a method found.
        options: of `Adapted`.
    """
    adapted = Adapted(live, task, fit, **options)
    judged = kept_or_single(fit, adapted.loss)
    if judged.mixture != fit.mixture:
        adapted = Adapted(live, task, judged, **options)
    adapted.fit = judged
    return adapted


def kept_or_single(fit: Fit, loss: float) -> Fit:
    """A fit, or the best single source where that explains the examples clearly better.

    The least loss of several sources is low by luck too. On validation tasks of Signs a router's mixtures whose loss is
    above it by up to one standard error are as much more accurate than that source as all others are; between one and
    two neither is better, as far as few tasks tell.

    Args:
        fit: what a method found; one without evidence, or by a decision of its own, is kept.
        loss: of its model on the examples, leave-one-out.
    """
    evidence = fit.evidence
    if (
        evidence is None
        or fit.is_private
        or fit.decision
        or not loss > (least := min(filter(math.isfinite, evidence.losses)))
    ):
        return fit
    above = (loss - least) / evidence.error
    if above < TOLD:
        return fit
    told = f"the loss is above that of {evidence.best} alone by {above:.1f} standard errors"
    if above <= CLEARLY:
        return replace(fit, notes=(*fit.notes, f"{told}, which may be luck: the mixture is kept"))
    single = Mixture.of({evidence.best: 1.0})
    notes = (*fit.notes, f"{told}: {evidence.best} alone is taken instead")
    return replace(fit, mixture=single, experts=None, residual=None, members=(), notes=notes)
