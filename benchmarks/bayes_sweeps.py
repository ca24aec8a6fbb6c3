"""Settings of posteriors, and sizes of catalogues, for `bayes.py`: arithmetic on the same tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from bayes_rules import Case, Rule, half, judge, likeliest, top
from bayes_uncertainty import query_losses
from common import Rows

from smatter.posterior.catalogue import BestMember, choose_members
from smatter.posterior.prior import uniform_prior
from smatter.posterior.task_table import TaskTable
from smatter.route.table import BARE, POINT
from smatter.scores.intervals import bootstrap_interval
from smatter.scores.tail import cvar_of
from smatter.settings.posteriors import PosteriorTraining
from smatter.train.posterior import train_posterior

USUAL = PosteriorTraining(target="average")
SWEPT = {
    "kl": {kl: replace(USUAL, kl=kl) for kl in (0.0, 0.001, 0.01, 0.1, 1.0)},
    "rho": {rho: replace(USUAL, cvar=rho) for rho in (1.0, 0.5, 0.2, 0.1)},
    "rho .2, tasks of a step": {n: replace(USUAL, cvar=0.2, n_tasks=n) for n in (8, 32, 128)},
    "rho .1, window": {n: replace(USUAL, cvar=0.1, window=n) for n in (64, 256, 1024)},
    "members": {k: replace(USUAL, members=k) for k in (1, 3, 7)},
}
TOPS = (1, 2, 3, 4, 8)


def sweep_rows(training: Sequence[Case], validation: Sequence[Case]) -> Rows:
    """Settings of training, by what half 4 is worth on validation tasks; and the networks that are averaged."""
    rows: Rows = []
    for what, settings in SWEPT.items():
        for value, how in settings.items():
            rows.append(
                {"setting": what, "value": value, **_worth(_taught(training, validation, how), half("swept", 4))}
            )
    usual = _taught(training, validation, USUAL)
    rows += [{"setting": "top-k", "value": k, **_worth(usual, top("swept", k))} for k in TOPS]
    rows.append({"setting": "MAP", "value": 1, **_worth(usual, likeliest("swept"))})
    return rows


def size_rows(training: Sequence[Case], validation: Sequence[Case]) -> Rows:
    """Catalogues of fewer routings: the first of each kind are kept, those that share the point's experts always."""
    names, rows = training[0].names, []
    beside = [number for number, name in enumerate(names) if "point's" in name]
    others = [number for number, name in enumerate(names) if number not in (0, *beside)]
    for extra in (0, len(others) // 3, 2 * len(others) // 3, len(others)):
        kept = [0, *others[:extra], *beside]
        fewer = [[_only(case, kept) for case in cases] for cases in (training, validation)]
        rows.append({"setting": "routings", "value": len(kept), **_worth(_taught(*fewer, USUAL), half("swept", 4))})
    return rows


def _only(case: Case, rows: Sequence[int]) -> Case:
    """A task with some of its routings."""
    table = case.table
    some = replace(table, points=table.points[rows], held_out=table.held_out[rows], scores=table.scores[rows])
    return Case(some, tuple(case.names[row] for row in rows), case.sources, case.number, {})


def _taught(training: Sequence[Case], validation: Sequence[Case], how: PosteriorTraining) -> list[Case]:
    """Validation tasks with a posterior that was learnt so."""
    tables: list[TaskTable] = [case.table for case in training]
    prior = uniform_prior(len(tables[0].points))
    network = train_posterior(tables, prior, how)
    with torch.no_grad():
        return [replace(case, posteriors={"swept": network(case.table, prior)}) for case in validation]


def _worth(cases: Sequence[Case], rule: Rule) -> dict[str, float]:
    found = [judge(case, rule(case)) for case in cases]
    errors, losses = [each.error for each in found], [each.loss for each in found]
    return {
        "error": float(np.mean(errors)),
        "loss": float(np.mean(losses)),
        "CVaR 0.1 of error": cvar_of(errors, 0.1),
        "CVaR 0.1 of loss": cvar_of(losses, 0.1),
    }


def resident_rows(training: Sequence[Case], test: Sequence[Case], draws: Sequence[str]) -> Rows:
    """What it costs to choose among few networks that stay in memory, by evidence; last the nearest to the point."""
    names = test[0].names
    catalogue = [number for number, name in enumerate(names) if name not in (POINT, BARE) and "point's" not in name]
    losses = torch.stack([torch.from_numpy(query_losses(case).mean(axis=1))[catalogue] for case in training])
    rows: Rows = []
    for size in (1, 2, 4, 8):
        kept = choose_members(BestMember(losses), torch.ones(len(catalogue)), size, builder="medoids").members
        numbers = [catalogue[member] for member in kept]
        chosen = [numbers[int(case.table.losses[numbers].mean(dim=1).argmin())] for case in test]
        told = {"networks": size, "chosen by": "evidence", "routings": ", ".join(names[number] for number in numbers)}
        rows.append(told | _price(test, chosen, draws))
    distances = [(case.table.points[catalogue] - case.table.points[0]).abs().sum(dim=1) for case in test]
    nearest = [catalogue[int(each.argmin())] for each in distances]
    told = {"networks": len(catalogue), "chosen by": "distance to the point", "routings": "all"}
    rows.append(told | _price(test, nearest, draws))
    return rows


def _price(cases: Sequence[Case], chosen: Sequence[int], draws: Sequence[str]) -> dict[str, float]:
    """Points of error by which some routings are worse than the point."""
    price = np.array(
        [
            judge(case, case.one(row)).error - judge(case, case.one(0)).error
            for case, row in zip(cases, chosen, strict=True)
        ]
    )
    generator = np.random.default_rng(8)
    around = bootstrap_interval(lambda rows: float(price[rows].mean()), draws, generator=generator, n_resamples=1000)
    return {"price": around.mean, "price_low": around.low, "price_high": around.high}
