"""What a decision rule does on tasks that nothing was chosen on: scores of uncertainty beside errors.

Thresholds follow from it: those of a share of tasks that is answered, or of a mean error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from smatter.errors import InvalidSettings
from smatter.posterior.decide import Deployed, decide, deployable
from smatter.posterior.learnt import LearntPosterior, RuleCalibration
from smatter.posterior.task_table import TaskTable
from smatter.posterior.uncertainty import SCORES, Facts
from smatter.route.certificates import LEAST_TASKS
from smatter.route.table import row_names
from smatter.settings.decisions import Rule


def calibrate_rule(
    tables: Iterable[TaskTable], posterior: LearntPosterior, rule: Rule, *, base: str, tasks: str, digest: str
) -> RuleCalibration:
    """Judge a rule on tables of tasks with labelled queries.

    Args:
        tables: of the posterior's catalogue, one task each.
        posterior: over its routings.
        rule: how it becomes networks; each must be a row of the tables.
        base: name of the base among the catalogue's routings.
        tasks: name of the list.
        digest: of the list.
    """
    if rule.name == "mean":
        raise InvalidSettings("the mean routing is a network of its own, in no table: calibrate another decision")
    row, generator = row_names(posterior.catalogue).index(base), torch.Generator().manual_seed(0)
    found: dict[str, list[float]] = {name: [] for name in SCORES}
    errors = []
    for table in tables:
        told = posterior(table)
        facts = Facts(table, told, posterior.log_prior, row)
        for name, score in SCORES.items():
            found[name].append(score(facts))
        deployed = decide(rule, deployable(told, rule, table), table.points[0], generator)
        errors.append(error_of(table, averaged_scores(table, deployed)))
    if len(errors) < LEAST_TASKS:
        raise InvalidSettings(f"{len(errors)} tasks are too few to calibrate a decision: give {LEAST_TASKS} or more")
    scores = {name: torch.tensor(values, dtype=torch.float64) for name, values in found.items()}
    return RuleCalibration(str(rule), tasks, digest, scores, torch.tensor(errors, dtype=torch.float64))


def averaged_scores(table: TaskTable, deployed: Deployed) -> Tensor:
    """Scores of the queries by networks that are rows of the table, (n_queries, n_classes)."""
    is_row = (deployed.points[:, None] == table.points).all(dim=2)
    if not bool(is_row.any(dim=1).all()):
        raise InvalidSettings("a network of the decision is in no row of the table: pass it through the network")
    rows = is_row.to(torch.uint8).argmax(dim=1)
    averaged: Tensor = torch.tensordot(deployed.weights.to(table.scores), table.scores[rows], 1)
    return averaged


def error_of(table: TaskTable, scores: Tensor) -> float:
    """Share of the queries that scores name wrongly; of those that have a class."""
    known = table.truth >= 0
    if not bool(known.any()):
        return math.nan
    return float((scores[known].argmax(dim=1) != table.truth[known]).double().mean())
