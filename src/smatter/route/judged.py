"""What a rule did on calibration tasks, and the bounds that follow. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from smatter.certify.bound import UpperBound, check_delta, unit_losses
from smatter.certify.mean import MEAN_BOUNDS, mean_bound_betting
from smatter.certify.pac_bayes import pac_bayes_kl
from smatter.certify.selective import binomial_lower
from smatter.certify.tail import CVAR_BOUNDS
from smatter.route.certificates import LEAST_TASKS, Guarantee, Selected

Losses = NDArray[np.float64]

SHARE = 0.1
"""Of the worst tasks, whose mean is bounded beside that of all."""

COVERAGES = (0.95, 0.9, 0.8, 0.7, 0.5)
"""Shares of tasks, the surest ones, whose error is bounded."""


@dataclass(frozen=True)
class Judged:
    """What a rule did on calibration tasks, one number for each task.

    Args:
        errors: share of a task's queries that are named wrongly, (n,).
        briers: Brier score over 2, (n,).
        scores: of uncertainty, by name; NaN where a task has none. (n,) each.
        misses: one minus the probability of each query's own class, (n_queries,) each.
    """

    errors: Losses
    briers: Losses
    scores: Mapping[str, Losses]
    misses: tuple[Losses, ...] = ()


def bounds_of(judged: Judged, delta: float) -> tuple[Guarantee, ...]:
    """Bounds of mean error, of the mean over the worst tasks, and of the Brier score, each with probability 1 - delta.

    Minus the logarithm of a probability has no largest value, so that no bound of its mean follows from measured ones.
    Theorem 6.1 of the Bayes paper, in its kl form, stands among the others of the mean error: the router was fixed
    before these tasks, so that it is true of it, and never narrower than `kl` alone.
    """
    check_delta(delta)
    errors, briers = (unit_losses(each, LEAST_TASKS) for each in (judged.errors, judged.briers))
    tails = {name: bound(errors, SHARE, delta) for name, bound in CVAR_BOUNDS.items()}
    means = {name: bound(errors, delta) for name, bound in MEAN_BOUNDS.items()}
    if (divergence := _divergence(judged.scores)) is not None:
        means["PAC-Bayes"] = pac_bayes_kl(errors, divergence, delta)
    return (
        _bounded("mean error", means),
        _bounded(f"mean error of the worst {SHARE:.0%} of tasks", tails),
        _bounded("mean Brier score / 2", {name: bound(briers, delta) for name, bound in MEAN_BOUNDS.items()}),
    )


def selected_of(judged: Judged, delta: float) -> tuple[Selected, ...]:
    """The error of the surest tasks, by every score and at every share of `COVERAGES`; all hold together.

    The threshold is the k-th smallest score, as `RuleCalibration.threshold` has it. It is chosen by scores and not by
    errors, and given it the k - 1 tasks below it are an independent sample of such tasks: a bound of their mean is as
    good as at a threshold that was fixed beforehand. The task on the threshold itself is left out.
    """
    scores = {name: values for name, values in judged.scores.items() if np.isfinite(values).all()}
    n, level = len(judged.errors), delta / max(1, len(scores) * len(COVERAGES))
    found = []
    for name, values in scores.items():
        ordered = np.sort(values)
        for coverage in COVERAGES:
            threshold = float(ordered[max(0, round(coverage * n) - 1)])
            below = values < threshold  # tied scores may leave fewer than the wished share
            if below.sum() < LEAST_TASKS:
                continue
            risk = replace(mean_bound_betting(judged.errors[below], level), delta=delta)
            found.append(
                Selected(
                    score=name,
                    coverage=coverage,
                    threshold=threshold,
                    coverage_low=binomial_lower(int(below.sum()), n, level),
                    risk=_bounded(f"mean error of the surest {coverage:.0%} of tasks by {name}", {"betting": risk}),
                )
            )
    return tuple(found)


def _divergence(scores: Mapping[str, Losses]) -> float | None:
    """KL(q || p) of the posterior, or of the weights where there is none, mean over tasks; none of a rule without."""
    for name, sign in (("near-prior", -1.0), ("weight-divergence", 1.0)):
        if name in scores and np.isfinite(scores[name]).all():
            return max(0.0, sign * float(scores[name].mean()))
    return None


def _bounded(about: str, found: Mapping[str, UpperBound]) -> Guarantee:
    """The bound by betting, with the others beside it."""
    main = found["betting"]
    others = {name: each.value for name, each in found.items() if name != "betting"}
    return Guarantee(about=about, method="betting", value=main.value, estimate=main.estimate, others=others)
