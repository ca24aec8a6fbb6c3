"""A posterior over routings that earns its passes: decision rules, tails, uncertainty and abstention, all on tables.

    python benchmarks/bayes.py [--stage validation|test] [--tasks N] [--quick]

Every network that any rule may run is run once for each task, and what it says is kept (.build/routings); the rest is
arithmetic. Posteriors learn on tasks of the router's classes, choices are made on validation tasks, figures are of the
test lists, or of further validation tasks. *Today* is the first library and router (benchmarks/before.py), *members*
what `adapt --mix both` takes at the same passes. Intervals are over draws; rules of three routers with three posteriors
are averaged. Hindsight is cross-fitted, the naive one beside it. Needs routers of two more seeds (.build/routers),
which benchmarks/beyond.py trains.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import before
import numpy as np
import torch
from bayes_compared import Compared, Found, draw_of, errors_of, group_rows, put
from bayes_curves import coverage_rows, hindsight_rows, picture, sure_rows
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
from bayes_tables import CLEAN, CORRUPT, OUTSIDE, REFERENCES, TRAINING, jobs_of, make, read, references, tables
from bayes_uncertainty import (
    FREE,
    LEARNT,
    LEARNT_SUPPORT,
    Learnt,
    Study,
    ceiling,
    fallback_rows,
    filled,
    names_for,
    query_losses,
    regret_of,
    score_rows,
    scores_of,
)
from common import ROOT, SCRATCH, Rows, machine, show, write_result
from signs_tasks import PACKAGES, shared_out

from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.catalogue import BestMember, choose_members
from smatter.posterior.prior import uniform_prior
from smatter.route.table import BARE, POINT, row_names
from smatter.scores.coverage import selective_risk_at
from smatter.scores.intervals import Interval, bootstrap_interval
from smatter.scores.tail import cvar_of
from smatter.train.posterior import PosteriorTraining, train_posterior

NAME = "bayes"
SEEDS = (0, 1, 2)
VARIANTS = {
    "gibbs": PosteriorTraining(target="gibbs"),
    "gibbs, CVaR 0.2": PosteriorTraining(target="gibbs", cvar=0.2),
    "average": PosteriorTraining(target="average"),
    "average, CVaR 0.2": PosteriorTraining(target="average", cvar=0.2),
    "average, CVaR 0.1 by a window": PosteriorTraining(target="average", cvar=0.1, window=256),
    "average, queries": PosteriorTraining(target="average"),
}
SWEPT = {
    "kl": [PosteriorTraining(target="average", kl=kl) for kl in (0.0, 0.001, 0.01, 0.1, 1.0)],
    "rho": [PosteriorTraining(target="average", cvar=rho) for rho in (1.0, 0.5, 0.2, 0.1)],
    "members": [PosteriorTraining(target="average", members=k) for k in (1, 3, 7)],
}
UNTRAINED = ("evidence 1", "evidence 3", "bootstrap")
TAUGHT = 12
"""Tasks of a list from which posteriors learn."""
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
    "uniform predictions": uniform_predictions, "pooled predictions": pooled_predictions,
    **{f"half {k}, {name}": half(name, k) for k in (2, 4, 7) for name in VARIANTS},
    **{f"top {k}, {name}": top(name, k) for k in (2, 4) for name in VARIANTS},
    **{f"drawn {k}, {name}": drawn(name, k) for k in (2, 4, 8) for name in ("gibbs", "average", "evidence 1")},
    **{f"half 4, {name}": half(name, 4) for name in UNTRAINED},
}  # fmt: skip
RULES = ONE_PASS | SEVERAL


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


def hindsight_figures(cases: Sequence[Case], found: Found, draws: Sequence[str]) -> tuple[dict[str, float], Interval]:
    """What knowing the labels would give at one routing; and the gain of it, cross-fitted."""
    regrets = [regret_of(case) for case in cases]
    own = errors_of(found, "point")
    crossed = own - np.array([each.best_error for each in regrets])
    naive = own - np.array([each.naive_error for each in regrets])
    generator = np.random.default_rng(6)
    gain = bootstrap_interval(lambda rows: float(crossed[rows].mean()), draws, generator=generator, n_resamples=1000)
    return {"naive": float(naive.mean()), "cross-fitted": gain.mean}, gain


def study_of(
    cases: Sequence[Case], found: Found, jobs: Sequence[tuple[str, int]], learnt: Mapping[str, Learnt]
) -> Study:
    """Scores and outcomes of some tasks; `learnt` scores from others are added."""
    prior = uniform_prior(len(cases[0].names))
    rows = [scores_of(case, "gibbs", prior) for case in cases]
    scores = {name: filled([row[name] for row in rows]) for name in rows[0]}
    scores |= {name: each(scores) for name, each in learnt.items()}
    regrets = [regret_of(case) for case in cases]
    base = [judge(case, case.one(case.row("base"))) for case in cases]
    return Study(
        scores,
        excess=np.array([each.crossed for each in regrets]),
        halves=np.array([each.halves for each in regrets]).T,
        outcomes=found,
        lists=[name for name, _ in jobs],
        draws=[draw_of(*job) for job in jobs],
        ways=np.array([case.table.n_classes for case in cases], float),
        base_loss=np.array([each.loss for each in base]),
        margin=np.array([float(each.sure.mean()) for each in base]),
    )


def uncertainty(figures: dict[str, float], train: Study, study: Study, several: str) -> dict[str, Rows]:
    """Misrouting, abstention and escalation."""
    gains = study.errors("point") - study.errors(several)
    rows = score_rows(study, gains)
    for name, where in (("", "queries"), ("_support", "support")):
        best = LEARNT if where == "queries" else LEARNT_SUPPORT
        row = next(row for row in rows if row["score"] == best)
        figures |= {f"misrouting_auroc{name}": row["auroc"], f"misrouting_auroc{name}_low": row["auroc_low"],
                    f"misrouting_auroc{name}_high": row["auroc_high"], f"misrouting_partial{name}": row["partial"],
                    f"gain_kept_at_half{name}": row["gain_kept_at_half"]}  # fmt: skip
        figures[f"misrouting_auroc{name}_best_single"] = max(
            row["auroc"] for row in rows if row["looks_at"] == where and "learnt" not in str(row["score"])
        )
    figures |= {"misrouted": float(study.misrouted.mean()), "misrouting_auroc_labels": ceiling(study)}
    chosen = {}
    errors = train.errors("point")
    support = [str(row["score"]) for row in rows if row["looks_at"] == "support"]
    for label, names in (("with_queries", list(study.scores)), ("support", support), ("routing_free", list(FREE))):
        chosen[label] = max(names, key=lambda name: selective_risk_at(train.scores[name], errors, 0.8).share_of_oracle)
    shares = {
        (label, coverage): selective_risk_at(study.scores[name], study.errors("point"), coverage).share_of_oracle
        for label, name in chosen.items()
        for coverage in (0.8, 0.95)
    }
    figures |= {
        "selective_share_of_oracle_80": shares["with_queries", 0.8],
        "selective_share_support_80": shares["support", 0.8],
        "selective_share_of_oracle_95": shares["with_queries", 0.95],
        "selective_share_support_95": shares["support", 0.95],
        "routing_adds_80": shares["with_queries", 0.8] - shares["routing_free", 0.8],
    }
    fallbacks = fallback_rows(study, LEARNT, (several, "members 7", "base", "equal weights"))
    best = min((row for row in fallbacks if row["fallback"] == several and 0.5 <= row["coverage"] <= 0.8),
               key=lambda row: row["difference"])  # fmt: skip
    figures |= {"escalation_risk_difference": best["difference"], "escalation_risk_difference_low": best["low"],
                "escalation_risk_difference_high": best["high"]}  # fmt: skip
    return {
        "scores": rows,
        "fallbacks": fallbacks,
        "chosen": [{"for": key, "score": name} for key, name in chosen.items()],
    }


def sweep_rows(training: Sequence[Case], validation: Sequence[Case]) -> Rows:
    """Settings of training, by what half 4 is worth on validation tasks."""
    rows: Rows = []
    learn_from = [case.table for case in training]
    prior = uniform_prior(len(learn_from[0].points))
    for what, settings in SWEPT.items():
        for how in settings:
            network = train_posterior(learn_from, prior, how)
            errors, losses = [], []
            for case in validation:
                with torch.no_grad():
                    told = {"swept": network(case.table, prior)}
                one = Case(case.table, case.names, sources=case.sources, number=case.number, posteriors=told)
                outcome = judge(one, half("swept", 4)(one))
                errors.append(outcome.error)
                losses.append(outcome.loss)
            value = {"kl": how.kl, "rho": how.cvar, "members": how.members}[what]
            rows.append(
                {
                    "setting": what, "value": value, "error": float(np.mean(errors)), "loss": float(np.mean(losses)),
                    "CVaR 0.1 of error": cvar_of(errors, 0.1), "CVaR 0.1 of loss": cvar_of(losses, 0.1),
                }
            )  # fmt: skip
    return rows


def resident_rows(training: Sequence[Case], test: Sequence[Case], draws: Sequence[str]) -> Rows:
    """What it costs to choose among few networks that stay in memory, by evidence."""
    catalogue = [
        number for number, name in enumerate(test[0].names) if name not in (POINT, BARE) and "point's" not in name
    ]
    losses = torch.stack([torch.tensor(_means(case))[catalogue] for case in training])
    own = np.array([judge(case, case.one(0)).error for case in test])
    rows: Rows = []
    for size in (1, 2, 4, 8):
        kept = choose_members(BestMember(losses), torch.ones(len(catalogue)), size, builder="medoids").members
        numbers = [catalogue[member] for member in kept]
        errors = []
        for case in test:
            best = numbers[int(case.table.losses[numbers].mean(dim=1).argmin())]
            errors.append(judge(case, case.one(best)).error)
        price = np.array(errors) - own
        generator = np.random.default_rng(8)
        interval = bootstrap_interval(
            lambda rows, p=price: float(p[rows].mean()), draws, generator=generator, n_resamples=1000
        )
        rows.append({"networks": size, "routings": ", ".join(test[0].names[number] for number in numbers),
                     "price": interval.mean, "price_low": interval.low, "price_high": interval.high})  # fmt: skip
    return rows


def _means(case: Case) -> list[float]:
    return query_losses(case).mean(axis=1).tolist()


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
    routers = (SCRATCH if options.quick else ROOT / ".build") / "routers"
    seeds = SEEDS[: 1 if options.quick else options.seeds]
    few = (lambda lists: lists[:2]) if options.quick else (lambda lists: lists)
    n, corrupt = (
        (2, few(CORRUPT)) if options.quick else (options.tasks, [name for name in CORRUPT if "missing" not in name])
    )
    training = jobs_of("router", [(few(TRAINING), 6 if options.quick else TAUGHT)])
    validation = jobs_of("validation", [(few(CLEAN), CHOSEN_ON), (few(OUTSIDE), CHOSEN_ON), (corrupt, 2)])
    counts = [(few(CLEAN), n), (few(OUTSIDE), max(1, 4 * n // 5)), (corrupt, max(1, 2 * n // 5))]
    test = jobs_of(options.stage, counts, 0 if options.stage == "test" else CHOSEN_ON)
    wanted = [(seed, *job) for seed in seeds for job in training + (validation if not seed else []) + test]
    for _ in shared_out("tables", partial(make, routers), wanted, keep=True):
        pass
    then = [scores for _, scores in shared_out("references", references, test, keep=True)]
    if options.only:
        return
    figures: dict[str, float] = {"tasks": len(test)}
    outcomes, first = [], None
    for seed in seeds:
        posteriors = learn(cases_of(routers, seed, training, {}), seed)
        taught = cases_of(routers, seed, training, posteriors)
        cases = cases_of(routers, seed, test, posteriors)
        outcomes.append(outcomes_of(cases))
        first = first or (taught, posteriors, cases)
    assert first
    taught, posteriors, cases = first
    judged = cases_of(routers, 0, validation, posteriors)
    chosen_on = outcomes_of(judged)

    def best(rules: Iterable[str]) -> str:
        return min(rules, key=lambda rule: float(errors_of(chosen_on, rule).mean()))

    one = best(rule for rule in ONE_PASS if rule.startswith("likeliest") and "queries" not in rule)
    ours = best(rule for rule in SEVERAL if rule.startswith(("half 4", "top 4", "drawn 4")) and "queries" not in rule)
    asks = best(rule for rule in SEVERAL if rule.startswith(("half 4", "top 4")) and "queries" in rule)
    compared = Compared(outcomes, then, test)
    rows = [compared.row(rule) for rule in (*REFERENCES, *RULES)]
    seen = ("rule", "networks", "error", "loss", "over today", "over point", "over members 4", "harm")
    show("rules", [{key: row[key] for key in seen if key in row} for row in rows])
    hindsight, gain = hindsight_figures(cases, outcomes[0], compared.draws)
    figures |= {"hindsight_naive": hindsight["naive"]}
    put(figures, "hindsight", gain)
    put(figures, "one_pass_gain_over_point", compared.gain(one, "point"))
    figures["share_of_hindsight_mean"] = figures["one_pass_gain_over_point"] / figures["hindsight"]
    put(figures, "one_pass_nll_cvar10_reduction", compared.tail(one, "point", "loss"))
    put(figures, "one_pass_cvar10_reduction", compared.tail(one, "point", "error"))
    put(figures, "k4_gain", compared.gain(ours, "today"))
    put(figures, "k4_gain_over_members", compared.gain(ours, "members 4"))
    put(figures, "k4_queries_gain_over_members", compared.gain(asks, "members 4"))
    put(figures, "k4_gain_over_random", compared.gain(ours, "random members 4"))
    put(figures, "k4_gain_over_plain_average_of_predictions", compared.gain(ours, "plain average of predictions"))
    put(figures, "k4_nll_cvar10_reduction", compared.tail(ours, "today", "loss"))
    put(figures, "k4_cvar10_reduction", compared.tail(ours, "today", "error"))
    for name, rule in (("harm_rate", ours), ("harm_rate_members", "members 4"), ("harm_rate_today", "today")):
        figures[name] = compared.harm(rule)
    resident = resident_rows(taught, cases, compared.draws)
    figures["catalogue_price"] = next(row["price"] for row in resident if row["networks"] == 8)
    train_study = study_of(taught, outcomes_of(taught), training, {})
    learnt = {
        name: Learnt(train_study.scores, train_study.excess, names_for(name)) for name in (LEARNT, LEARNT_SUPPORT)
    }
    known = study_of(judged, chosen_on, validation, learnt)
    study = study_of(cases, outcomes[0], test, learnt)
    tables_found = uncertainty(figures, known, study, ours)
    groups = group_rows(compared, (*REFERENCES[:4], "point", one, "members 4", ours))
    choices = [{"for": "one pass", "rule": one}, {"for": "four passes", "rule": ours}, {"for": "queries", "rule": asks}]
    choices += [{"for": f"validation, {rule}", "error": float(errors_of(chosen_on, rule).mean())} for rule in RULES]
    result = {
        "rules": rows, "groups": groups, "resident": resident, "choices": choices,
        "swept": sweep_rows(taught, judged), "hindsight": hindsight_rows(cases), **tables_found,
        "coverage": coverage_rows(study, {"learnt, with queries": LEARNT, "learnt, examples alone": LEARNT_SUPPORT,
                                          "the examples' loss": "loss", "doubt about queries": "doubt"}),
        "reliability": sure_rows(outcomes[0], ("point", "members 4", ours)),
    }  # fmt: skip
    for title in ("groups", "resident", "swept", "scores", "fallbacks"):
        show(title, result[title])
    if options.stage == "test" and not options.quick:
        picture(ROOT / "docs" / "images" / f"{NAME}.svg", result, ours)
    name = NAME if options.stage == "test" else f"{NAME}_validation"
    write_result(name, figures, result, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
