"""A posterior over routings that earns its passes: decision rules, tails, uncertainty and abstention, all on tables.

    python benchmarks/bayes.py [--stage validation|test] [--tasks N] [--quick]

Every network that any rule may run is run once for each task, and what it says is kept (.build/routings); the rest is
arithmetic. Posteriors learn on tasks of the router's classes, choices are made on validation tasks, figures are of the
test lists, or of further validation tasks, with the router that ships. *Today* is the first library and router
(benchmarks/before.py), *members* what `adapt --mix both` takes at the same passes. Intervals are over draws. Hindsight
is cross-fitted, the naive one beside it. On every fourth task stand two routers of other seeds (benchmarks/beyond.py
trains them, .build/routers) with the same posteriors, whose parameters belong to no router, the networks of mean
weights, and networks that are tuned on the examples.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import before
import numpy as np
import torch
from bayes_compared import Compared, errors_of, group_rows, put
from bayes_curves import (
    calibration_rows,
    coverage_rows,
    hindsight_figures,
    hindsight_rows,
    part_rows,
    picture,
    sure_rows,
)
from bayes_mean import mean_network
from bayes_moved import moved
from bayes_rules import (
    Case,
    Outcome,
    Rule,
    drawn,
    half,
    judge,
    least_loss,
    least_source,
    likeliest,
    members,
    one_row,
    pooled_predictions,
    random_members,
    top,
    uniform_predictions,
    untrained,
)
from bayes_search import SEARCH_RULES, returns_that_increase, search_rows
from bayes_sweeps import resident_rows, size_rows, sweep_rows
from bayes_tables import CLEAN, CORRUPT, MANY, OUTSIDE, TRAINING, jobs_of, make, read, references, tables
from bayes_tuned import tuned_scores
from bayes_uncertainty import (
    LEARNT,
    LEARNT_SUPPORT,
    Learnt,
    answer_rows,
    misrouted_rows,
    names_for,
    study_of,
    uncertainty,
)
from common import ROOT, SCRATCH, Rows, machine, show, write_result
from signs_tasks import PACKAGES, Scores, shared_out

from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.prior import uniform_prior
from smatter.route.table import BARE, POINT, row_names
from smatter.train.posterior import PosteriorTraining, train_posterior

NAME = "bayes"
Job = tuple[str, int]
SEEDS = (0, 1, 2)
VARIANTS = {
    "gibbs": PosteriorTraining(target="gibbs"),
    "gibbs, CVaR 0.2": PosteriorTraining(target="gibbs", cvar=0.2),
    "average": PosteriorTraining(target="average"),
    "average, CVaR 0.2": PosteriorTraining(target="average", cvar=0.2),
    "average, CVaR 0.1 by a window": PosteriorTraining(target="average", cvar=0.1, window=256),
    "average, queries": PosteriorTraining(target="average"),
}
UNTRAINED = ("evidence 1", "evidence 3", "bootstrap")
TAUGHT = 12
"""Tasks of a list from which posteriors learn."""
EVERY = 4
CHOSEN_ON = 6
"""Validation tasks of a list, at most, on which rules are chosen; those after them may be judged."""

ONE_PASS: dict[str, Rule] = {
    "point": one_row(POINT), "point without experts": one_row(BARE), "base": one_row("base"),
    "equal weights": one_row("all alike"), "equal weights, every expert": one_row("all alike, every expert"),
    "least loss": least_loss, "best source by support": least_source,
    **{f"likeliest, {name}": likeliest(name) for name in (*VARIANTS, *UNTRAINED)},
    **{f"one drawn, {name}": drawn(name, 1) for name in ("gibbs", "average", "evidence 1")},
}  # fmt: skip
SEVERAL: dict[str, Rule] = {
    **{f"members {k}": members(k) for k in (2, 4, 7)},
    **{f"random members {k}": random_members(k) for k in (2, 4)},
    "members 4, half for the mixed network": members(4, 0.5),
    "uniform predictions": uniform_predictions, "pooled predictions": pooled_predictions,
    **{f"half {k}, {name}": half(name, k) for k in (2, 4, 8) for name in VARIANTS},
    **{f"top {k}, {name}": top(name, k) for k in (2, 4) for name in VARIANTS},
    **{f"drawn {k}, {name}": drawn(name, k) for k in (2, 4, 8) for name in ("gibbs", "average", "evidence 1")},
    **{f"half 4, {name}": half(name, 4) for name in UNTRAINED},
}  # fmt: skip
RULES = ONE_PASS | SEVERAL | SEARCH_RULES


def cases_of(
    routers: Path, seed: int, jobs: Sequence[tuple[str, int]], posteriors: Mapping[str, Amortised]
) -> list[Case]:
    """Tasks with their tables and what posteriors say of them."""
    made = tables(routers, seed)
    names, sources = row_names(made.catalogue), made.live.library.names
    log_prior, cases = uniform_prior(len(names)), []
    for name, index in jobs:
        table = read(routers, seed, name, index)
        told = {}
        with torch.no_grad():
            for label, network in posteriors.items():
                told[label] = network(table, log_prior)
        case = Case(table, names, sources=sources, number=index, posteriors=told)
        cases.append(Case(table, names, sources=sources, number=index, posteriors=told | untrained(case)))
    return cases


def learn(cases: Iterable[Case], seed: int) -> dict[str, Amortised]:
    """Posteriors of every variant."""
    training = [case.table for case in cases]
    prior = uniform_prior(len(training[0].points))
    return {
        name: train_posterior(training, prior, replace(how, seed=seed), PosteriorSettings(queries="queries" in name))
        for name, how in VARIANTS.items()
    }


def outcomes_of(cases: Sequence[Case]) -> dict[str, list[Outcome]]:
    """Every rule on every task."""
    return {label: [judge(case, rule(case)) for case in cases] for label, rule in RULES.items()}


@dataclass(frozen=True)
class Plan:
    """Which tasks.

    Args:
        routers: where routers of more seeds are.
        seeds: of routers; the first ships.
        taught: tasks of a list that posteriors learn from.
        training: those tasks.
        validation: on which rules are chosen.
        judged: on which they are judged.
    """

    routers: Path
    seeds: Sequence[int]
    taught: int
    training: Sequence[Job]
    validation: Sequence[Job]
    judged: Sequence[Job]

    @classmethod
    def of(cls, options: argparse.Namespace) -> Plan:
        """What is asked for."""
        corrupt = tuple(name for name in CORRUPT if "missing" not in name)
        groups, many, taught, n = (CLEAN, OUTSIDE, corrupt), MANY, TAUGHT, options.tasks
        if options.quick:
            groups, many, taught, n = (CLEAN[:2], OUTSIDE[:2], CORRUPT[:2]), (), 6, 2
        shares = (1.0, 0.8, 0.4)
        counts = [(names, max(1, int(share * n))) for names, share in zip(groups, shares, strict=True)] + [(many, n)]
        chosen_on = [(groups[0], CHOSEN_ON), (groups[1], CHOSEN_ON), (groups[2], CHOSEN_ON // 3)]
        return cls(
            (SCRATCH if options.quick else ROOT / ".build") / "routers",
            SEEDS[: 1 if options.quick else options.seeds],
            taught,
            training=jobs_of("router", [(TRAINING[:2] if options.quick else TRAINING, taught)]),
            validation=jobs_of("validation", chosen_on),
            judged=jobs_of(options.stage, counts, 0 if options.stage == "test" else CHOSEN_ON),
        )

    @property
    def tables(self) -> list[tuple[int, str, int]]:
        """Every table that is needed; rules are chosen with the first router alone."""
        first, *others = self.seeds
        wanted = [(first, *job) for job in (*self.training, *self.validation, *self.judged)]
        return wanted + [(seed, *job) for seed in others for job in self.some]

    @property
    def some(self) -> Sequence[Job]:
        """Tasks on which routers of other seeds, and what takes long, are judged."""
        return self.judged[::EVERY]


def found_by(label: str, work: Callable[..., Scores], jobs: Sequence[tuple[object, ...]]) -> list[Scores]:
    """Scores of some jobs."""
    return [scores for _, scores in shared_out(label, work, jobs, keep=True)]


@dataclass(frozen=True)
class Judged:
    """What came of the plan, with the first router unless it says otherwise.

    Args:
        taught: tasks that posteriors learnt from.
        validated: tasks on which rules are chosen.
        cases: judged tasks.
        chosen_on: outcomes of every rule on `validated`.
        outcomes: on judged tasks.
        others: of the other routers, on some of them.
    """

    taught: Sequence[Case]
    validated: Sequence[Case]
    cases: Sequence[Case]
    chosen_on: Mapping[str, Sequence[Outcome]]
    outcomes: Mapping[str, Sequence[Outcome]]
    others: Sequence[Mapping[str, Sequence[Outcome]]]

    @classmethod
    def of(cls, plan: Plan) -> Judged:
        """Learn posteriors of each router and apply every rule."""
        first, *seeds = plan.seeds
        posteriors = learn(cases_of(plan.routers, first, plan.training, {}), first)
        taught, validated, cases = (
            cases_of(plan.routers, first, jobs, posteriors) for jobs in (plan.training, plan.validation, plan.judged)
        )
        others = [outcomes_of(cases_of(plan.routers, seed, plan.some, posteriors)) for seed in seeds]
        return cls(taught, validated, cases, outcomes_of(validated), outcomes_of(cases), others)

    def best(self, begins: tuple[str, ...], queries: bool = False) -> str:
        """The rule of least error on validation tasks among those with such names.

        Args:
            begins: their beginnings.
            queries: whether their posteriors look at queries without labels.
        """
        names = [name for name in RULES if name.startswith(begins) and ("queries" in name) == queries]
        return min(names, key=lambda rule: float(errors_of(self.chosen_on, rule).mean()))


def headline(figures: dict[str, float], compared: Compared, one: str, ours: str, asks: str) -> None:
    """Differences that the documents tell."""
    for name, rule, peer in (
        ("one_pass_gain_over_point", one, "point"),
        ("k4_gain", ours, "today"),
        ("k4_gain_over_members", ours, "members 4"),
        ("k4_gain_over_members_of_half", ours, "members 4, half for the mixed network"),
        ("k4_gain_over_random", ours, "random members 4"),
        ("k4_gain_over_plain_average_of_predictions", ours, "plain average of predictions"),
        ("k4_queries_gain_over_members", asks, "members 4"),
        ("search_gain_over_members", "every set, up to 4", "members 4"),
    ):
        put(figures, name, compared.gain(rule, peer))
    for name, rule, peer, what in (
        ("one_pass_nll_cvar10_reduction", one, "point", "loss"),
        ("one_pass_cvar10_reduction", one, "point", "error"),
        ("k4_nll_cvar10_reduction", ours, "today", "loss"),
        ("k4_cvar10_reduction", ours, "today", "error"),
    ):
        put(figures, name, compared.tail(rule, peer, what))
    for name, rule in (("harm_rate", ours), ("harm_rate_members", "members 4"), ("harm_rate_today", "today")):
        figures[name] = compared.harm(rule)


def seed_rows(
    plan: Plan, found: Sequence[Mapping[str, Sequence[Outcome]]], then: Sequence[Scores], one: str, ours: str
) -> Rows:
    """The same rules with each router, on some tasks."""
    rows: Rows = []
    for seed, outcomes in zip(plan.seeds, found, strict=True):
        compared = Compared(outcomes, (then,), plan.some)
        for rule, peer in ((one, "point"), (ours, "today"), (ours, "members 4"), ("members 4", "point")):
            gain = compared.gain(rule, peer)
            told = {"seed": seed, "tasks": len(plan.some), "rule": rule, "over": peer}
            rows.append(told | {"gain": gain.mean, "low": gain.low, "high": gain.high})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("validation", "test"), default="test", help="whose tasks are judged")
    parser.add_argument("--tasks", type=int, default=25, help="judged tasks of each clean list; fewer of others")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="routers")
    parser.add_argument("--quick", action="store_true", help="one task of some lists")
    parser.add_argument("--only", choices=("tables",), help="make tables and stop")
    options = parser.parse_args()
    begin = time.perf_counter()
    before.restore()
    plan = Plan.of(options)
    for _ in shared_out("tables", partial(make, plan.routers), plan.tables, keep=True):
        pass
    then = found_by("references", references, plan.judged)
    if options.only:
        return
    tuned = found_by("tuned", tuned_scores, plan.some)
    means = found_by("means", partial(mean_network, plan.routers, plan.taught), plan.some)
    moves = found_by("moved", partial(moved, plan.routers), plan.judged[:: len(plan.judged) // 60 or 1])
    found = Judged.of(plan)
    one, ours = found.best(("likeliest",)), found.best(("half 4", "top 4", "drawn 4"))
    asks = found.best(("half 4", "top 4"), queries=True)
    compared = Compared(found.outcomes, (then,), plan.judged)
    of_some = {rule: outcomes[::EVERY] for rule, outcomes in found.outcomes.items()}
    fewer = Compared(of_some, (then[::EVERY], tuned, means), plan.some)
    figures: dict[str, float] = {"tasks": len(plan.judged), "seeds": len(plan.seeds)}
    headline(figures, compared, one, ours, asks)
    hindsight, gain = hindsight_figures(found.cases, found.outcomes, compared.draws)
    figures["hindsight_naive"] = hindsight["naive"]
    put(figures, "hindsight", gain)
    figures["share_of_hindsight_mean"] = figures["one_pass_gain_over_point"] / figures["hindsight"]
    figures["returns_that_increase"] = returns_that_increase(found.cases)
    resident = resident_rows(found.taught, found.cases, compared.draws)
    figures["catalogue_price"] = next(float(row["price"]) for row in resident if row["networks"] == 8)
    train = study_of(found.taught, outcomes_of(found.taught), plan.training, {})
    learnt = {name: Learnt(train.scores, train.excess, names_for(name)) for name in (LEARNT, LEARNT_SUPPORT)}
    known = study_of(found.validated, found.chosen_on, plan.validation, learnt)
    study = study_of(found.cases, found.outcomes, plan.judged, learnt)
    told = ("point", one, "members 4", ours)
    choices = [{"for": "one pass", "rule": one}, {"for": "four passes", "rule": ours}, {"for": "queries", "rule": asks}]
    choices += [
        {"for": f"validation, {rule}", "error": float(errors_of(found.chosen_on, rule).mean())} for rule in RULES
    ]
    followed = {"learnt, with queries": LEARNT, "learnt, examples alone": LEARNT_SUPPORT, "the examples' loss": "loss",
                "doubt about queries": "doubt"}  # fmt: skip
    result: dict[str, Rows] = {
        "rules": [compared.row(rule) for rule in (*compared.peers, *RULES)],
        "groups": group_rows(compared, ("today", "plain base", "plain average of predictions", *told)),
        "parts": part_rows(found.cases, found.outcomes, plan.judged),
        "fewer tasks": [fewer.row(rule) for rule in (*fewer.peers, *told)],
        "seeds": seed_rows(plan, (of_some, *found.others), then[::EVERY], one, ours),
        "resident": resident,
        "choices": choices,
        "swept": sweep_rows(found.taught, found.validated) + size_rows(found.taught, found.validated),
        "moved": [{"what": key, "mean": float(np.mean([each[key] for each in moves]))} for key in moves[0]],
        "search": search_rows(found.cases),
        "answers": answer_rows(study, told),
        "misrouted": misrouted_rows(study, ("unlikely", "entropy", LEARNT, LEARNT_SUPPORT)),
        "calibration": calibration_rows(found.cases, {rule: RULES[rule] for rule in told}),
        "hindsight": hindsight_rows(found.cases),
        **uncertainty(figures, known, study, ours),
        "coverage": coverage_rows(study, followed),
        "reliability": sure_rows(found.outcomes, ("point", "members 4", ours)),
    }
    seen = ("rule", "networks", "error", "loss", "over today", "over point", "over members 4", "harm")
    for title in ("rules", "fewer tasks"):
        show(title, [{key: row[key] for key in seen if key in row} for row in result[title]])
    for title in (
        "groups",
        "seeds",
        "parts",
        "resident",
        "swept",
        "search",
        "moved",
        "scores",
        "fallbacks",
        "calibration",
    ):
        show(title, result[title])
    name = NAME if options.stage == "test" else f"{NAME}_validation"
    write_result(name, figures, result, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)
    if options.stage == "test" and not options.quick:
        picture(ROOT / "docs" / "images" / f"{NAME}.svg", result)


if __name__ == "__main__":
    main()
