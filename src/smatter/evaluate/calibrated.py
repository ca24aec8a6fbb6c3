"""A router's rules on calibration tasks: thresholds and certificates (Bayes-routed paper, section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smatter.errors import InvalidCertificate, InvalidSettings
from smatter.evaluate.compare import Comparison, Score
from smatter.evaluate.contenders import Contender
from smatter.evaluate.run import score_contenders
from smatter.evaluate.trials import trials_of
from smatter.files.writing import locked_folder
from smatter.library.library import Library
from smatter.posterior.learnt import RuleCalibration
from smatter.posterior.uncertainty import QUERIES
from smatter.records import Progress, silent
from smatter.route.certificates import MAX_WATCHED, CalibrationSettings, Certificate, sources_digest
from smatter.route.class_sets import class_sets
from smatter.route.judged import Judged, bounds_of, selected_of
from smatter.route.place import router_identity
from smatter.route.store import TrainedRouter, read_router, write_router
from smatter.settings.decisions import Rule
from smatter.settings.rules import BAYES, needs_posterior, settings_of
from smatter.tasks.lists import TaskList


def calibrate_router(
    folder: str | Path,
    tasks: TaskList,
    library: Library,
    settings: CalibrationSettings | None = None,
    *,
    cache: str | Path | None = None,
    n_workers: int = 1,
    progress: Progress = silent,
) -> tuple[Certificate, ...]:
    """Run rules on calibration tasks, and keep in the router what came of it; older certificates on them give way.

    Rules that are certified together share delta, so that the best of them may be taken. Whoever certifies one rule
    after the other and takes the best has chosen without paying.

    Args:
        folder: the router's.
        tasks: of classes that are kept for calibration.
        library: whose sources are routed.
        settings: which rules, and how surely.
        cache: a folder where the score of each task is kept, so that a run that was stopped goes on.
        n_workers: processes.
        progress: called with 1 for every rule on every task.
    """
    settings, folder = settings or CalibrationSettings(), Path(folder)
    settings.check_tasks(tasks)
    rules = [(rule, *settings_of(rule)) for rule in settings.rules_for(folder)]
    asked = trials_of(tasks, f"the list {tasks.name}", settings.n_tasks)
    takers = [
        Contender(rule, method=method, settings=tuple(told.items()), sees_queries=method == BAYES)
        for rule, method, told in rules
    ]
    options: dict[str, Any] = {"router": folder, "cache": cache, "n_workers": n_workers, "progress": progress}
    identity = router_identity(folder)
    compared = score_contenders(library, asked, takers, **options)
    judged = {rule: _judged(compared, rule) for rule, *_ in rules}
    drawn = [tasks.sampler.draw(index).classes for index in range(len(asked))]
    domains = tasks.sampler.suite.domains
    own = [domains[classes[0][0]].name if len({each for each, _ in classes}) == 1 else None for classes in drawn]
    made = tuple(
        Certificate(
            rule=rule,
            tasks=tasks.name,
            digest=tasks.digest,
            n=len(asked),
            delta=settings.delta,
            choices=len(judged),
            domains=_classes(tasks, drawn),
            router=router_identity(folder, needs_posterior(rule)),
            sources=sources_digest(library.manifest),
            bounds=bounds_of(each, settings.delta / len(judged)),
            selected=selected_of(each, settings.delta / len(judged)),
            sets=class_sets(each.misses, own, tasks.name, len(judged)),
            watched={
                name: tuple(values[:MAX_WATCHED].tolist())
                for name, values in each.scores.items()
                if np.isfinite(values).all() and name not in QUERIES  # which a stream of tasks need not have
            },
        )
        for rule, each in judged.items()
    )
    with locked_folder(folder.resolve().parent):  # who calibrates on another list meanwhile keeps that
        if router_identity(folder) != identity:
            raise InvalidSettings(f"{folder} was trained on meanwhile: calibrate it again")
        trained = read_router(folder)
        others = tuple(each for each in trained.certificates if each.digest != tasks.digest)
        posterior = _with_calibrations(trained, tasks, judged)
        write_router(folder, replace(trained, certificates=(*others, *made), posterior=posterior), replace=True)
    return made


def _judged(compared: Comparison, rule: str) -> Judged:
    """What a rule did on each task; refuses one that fails on any, since the others would be a choice."""
    scores: list[Score] = []
    for task, score in zip(compared.tasks, compared.scores[rule], strict=True):
        if isinstance(score, str):
            raise InvalidCertificate(f"{rule} fails on {task.name}: {score}")
        scores.append(score)
    names = dict.fromkeys(name for each in scores for name in each.uncertainty)
    return Judged(
        errors=np.array([1 - task.hits(score).mean() for task, score in zip(compared.tasks, scores, strict=True)]),
        briers=np.array([np.mean(score.briers) for score in scores]),
        scores={name: np.array([score.uncertainty.get(name, np.nan) for score in scores]) for name in names},
        misses=tuple(-np.expm1(-np.array(score.losses)) for score in scores),
    )


def _classes(tasks: TaskList, drawn: Sequence[Sequence[tuple[int, int]]]) -> dict[str, tuple[str, ...]]:
    """The classes that occur in tasks, by domain."""
    domains = tasks.sampler.suite.domains
    found: dict[str, list[str]] = {}
    for domain, number in sorted({pair for classes in drawn for pair in classes}):
        found.setdefault(domains[domain].name, []).append(domains[domain].classes[number].name)
    return {name: tuple(classes) for name, classes in found.items()}


def _with_calibrations(trained: TrainedRouter, tasks: TaskList, judged: dict[str, Judged]) -> Any:
    """The posterior, which then knows thresholds for its rules."""
    if trained.posterior is None:
        return None
    made = {
        rule: RuleCalibration(
            rule,
            tasks.name,
            tasks.digest,
            scores={name: torch.from_numpy(values) for name, values in each.scores.items()},
            errors=torch.from_numpy(each.errors),
        )
        for rule, each in judged.items()
        if settings_of(rule)[0] == BAYES
    }
    known = {str(Rule.parse(rule)): each for rule, each in trained.posterior.calibrations.items()}
    return replace(trained.posterior, calibrations=known | made)
