"""A router's rules on calibration tasks: thresholds and certificates (Bayes-routed paper, section 6)."""

from __future__ import annotations

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
from smatter.library.library import Library
from smatter.posterior.learnt import RuleCalibration
from smatter.posterior.uncertainty import QUERIES
from smatter.records import Progress, silent
from smatter.route.certificates import (
    MAX_WATCHED,
    CalibrationSettings,
    Certificate,
    Judged,
    bounds_of,
    selected_of,
    sources_digest,
)
from smatter.route.class_sets import class_sets
from smatter.route.place import router_identity
from smatter.route.store import TrainedRouter, read_router, write_router
from smatter.settings.decisions import Rule
from smatter.settings.rules import BAYES, settings_of
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
    domains = _classes(tasks, len(asked))
    alone = [task.domain if task.domain in domains else None for task in compared.tasks]
    made = tuple(
        Certificate(
            rule=rule,
            tasks=tasks.name,
            digest=tasks.digest,
            n=len(asked),
            delta=settings.delta,
            choices=len(judged),
            domains=domains,
            router=identity,
            sources=sources_digest(library.manifest),
            bounds=bounds_of(each, settings.delta / len(judged)),
            selected=selected_of(each, settings.delta / len(judged)),
            sets=class_sets(each.misses, alone, tasks.name, len(judged)),
            watched={
                name: tuple(values[:MAX_WATCHED].tolist())
                for name, values in each.scores.items()
                if np.isfinite(values).all() and name not in QUERIES  # which a stream of tasks need not have
            },
        )
        for rule, each in judged.items()
    )
    if router_identity(folder) != identity:
        raise InvalidSettings(f"{folder} was trained on meanwhile: calibrate it again")
    trained = read_router(folder)  # what was calibrated meanwhile stays
    others = tuple(each for each in trained.certificates if each.digest != tasks.digest)
    trained = replace(trained, certificates=(*others, *made), posterior=_with_calibrations(trained, tasks, judged))
    write_router(folder, trained, replace=True)
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


def _classes(tasks: TaskList, n_tasks: int) -> dict[str, tuple[str, ...]]:
    """The classes that occur in tasks, by domain."""
    domains = tasks.sampler.suite.domains
    drawn = {pair for index in range(n_tasks) for pair in tasks.sampler.draw(index).classes}
    found: dict[str, list[str]] = {}
    for domain, number in sorted(drawn):
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
