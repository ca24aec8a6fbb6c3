"""Tasks are counted, and a router that is asked about other tasks than it was calibrated on is told of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from smatter import methods
from smatter.adapted import Adapted
from smatter.compose.mixture import Mixture
from smatter.compose.records import MAX_WORDS, Decision
from smatter.errors import InvalidSettings
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit
from smatter.route.certificates import find_certificates, sources_digest
from smatter.route.store import TrainedRouter
from smatter.route.watch import WARN, watch_task
from smatter.settings.decisions import BASE
from smatter.settings.rules import LIMITS, rule_of
from smatter.steps.judge import judged_model


def check_watching(drift: object, on_drift: str | None, router: object, settings: object = None) -> None:
    """Refuse to watch what cannot be watched, and to follow what cannot be followed."""
    if drift is not None and getattr(settings, "catalogue", None) is not None:
        raise InvalidSettings("choices from a catalogue have no calibration: leave out --drift, or --catalogue")
    if drift is None and on_drift is not None:
        raise InvalidSettings("nothing is watched for drift: give --drift FILE, or leave out --on-drift")
    if drift is not None and router is None:
        raise InvalidSettings("drift is told by the scores of a router: give --router, or leave out --drift")
    if on_drift not in (None, WARN, BASE):
        way = methods.find(on_drift)
        if way.needs_router or way.is_private:
            raise InvalidSettings(f"{on_drift} cannot be followed instead: use {WARN}, {BASE} or another method")


def watched(
    live: LiveMixture,
    task: Task,
    adapted: Adapted,
    *,
    router: TrainedRouter | None,
    path: Path,
    on_drift: str | None,
) -> Adapted:
    """Count the task; while an alarm stands, no certificate is told, and another method may be followed.

    Args:
        live: the network.
        task: what was fitted to.
        adapted: its model.
        router: who was asked.
        path: of the file that counts.
        on_drift: what happens while an alarm stands; see `pipeline.adapt`.
    """
    origin = adapted.origin
    assert origin is not None
    rule = rule_of(origin.method, {key: text for key, text in origin.settings.items() if key not in LIMITS})
    if router is None or rule is None:
        raise InvalidSettings(f"{origin.method} with these settings is no rule that is calibrated: leave out --drift")
    library = live.library
    certificate = find_certificates(router.certificates, rule, sources_digest(library.manifest))[-1]
    watch = watch_task(path, certificate, adapted.uncertainty, on_drift)
    if watch.alarms:
        told, fit = (*adapted.fit.notes, watch.told), adapted.fit
        if watch.then == WARN:
            adapted.fit = replace(fit, notes=told)
        else:
            alone = Fit(Mixture.of({library.manifest.base: 1.0}))
            other = alone if watch.then == BASE else methods.find(watch.then)(live, task)
            reason = f"{watch.then} instead: {watch.told}"[:MAX_WORDS]
            decision = Decision(outcome="abstained", rule=watch.then, reason=reason)
            fit = replace(other, notes=told, decision=decision, uncertainty=fit.uncertainty)
            told_of = adapted.support
            options = {"head": adapted.head, "class_names": adapted.class_names, "origin": origin, "support": told_of}
            adapted = judged_model(live, task, fit, **options)
        adapted.certify(())
    adapted.watch = watch
    return adapted
