"""Sources that mislead, for `bayes.py`: one that reads a cue which tells the class of examples and nothing of queries.

    python benchmarks/bayes_planted.py [--tasks N] [--quick]

Libraries: the sources that ship; with `cue`, which learnt to read the patch and nothing else; with `cue-latin`, which
reads it where there is one and is a specialist where there is none (tools/sources/planted.py, `make sources-planted`).
On tasks whose support alone is inverted nothing is planted: every source is misled alike. *Recovered* is the share of
what evidence loses by the planted source that a rule does not lose: 1 where it is as good as evidence without it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import torch
from bayes_rules import (
    Case,
    drawn,
    half,
    judge,
    least_loss,
    least_source,
    likeliest,
    members,
    one_row,
    pooled_predictions,
    top,
    uniform_predictions,
    untrained,
)
from bayes_tables import TRAINING, jobs_of, judged_catalogue, read, task_list
from beyond_scores import Look
from common import ROOT, Rows, machine, show, write_result
from signs_tasks import LIBRARY, PACKAGES, Scores, shared_out, trained
from sources_experts_scores import router_folder

from smatter.library.library import open_library
from smatter.live.mixture import LiveMixture
from smatter.methods.evidence import EvidenceSettings, evidence
from smatter.posterior.amortised import Amortised
from smatter.posterior.prior import uniform_prior
from smatter.posterior.uncertainty import SCORES, Facts
from smatter.route.table import POINT, make_table, row_names
from smatter.scores.intervals import Interval, clustered_interval
from smatter.scores.ranking import auroc
from smatter.train.posterior import PosteriorTraining, train_posterior

NAME = "bayes_planted"
PLANTED = ROOT / ".build" / "signs-planted"
LIBRARIES = {"as it ships": (), "cue": ("cue",), "cue-latin": ("cue-latin",)}
LISTS = ("corrupt-spurious-cue-id", "corrupt-spurious-cue-ood", "corrupt-inverted-id", "corrupt-inverted-ood", "id-5")
POSTERIORS = {"gibbs": PosteriorTraining(target="gibbs"), "average": PosteriorTraining(target="average")}
RULES = {
    "router with evidence": one_row(POINT), "base": one_row("base"), "equal weights": one_row("all alike"),
    "best source by support": least_source, "least loss of all routings": least_loss,
    "uniform predictions": uniform_predictions, "router predictions": pooled_predictions, "members 4": members(4),
    **{f"likeliest, {name}": likeliest(name) for name in (*POSTERIORS, "evidence 1")},
    **{f"half 4, {name}": half(name, 4) for name in POSTERIORS},
    "top 4, average": top("average", 4), "drawn 4, evidence 1": drawn("evidence 1", 4),
}  # fmt: skip
BY_EVIDENCE = (
    "evidence predictions", *(rule for rule in RULES if rule not in ("base", "equal weights", "uniform predictions"))
)  # fmt: skip
HARM = 5.0


@cache
def network(which: str) -> LiveMixture:
    """One for each process and library."""
    torch.set_num_threads(1)
    library, kept = open_library(PLANTED), open_library(LIBRARY).names
    return LiveMixture(library.only((*kept, *LIBRARIES[which])))


@cache
def posteriors(routers: Path) -> Mapping[str, Amortised]:
    """Learnt from tables of the library that ships: no parameter belongs to a source."""
    tables = [read(routers, 0, *job) for job in jobs_of("router", [(TRAINING, 6)])]
    prior = uniform_prior(len(tables[0].points))
    return {name: train_posterior(tables, prior, how) for name, how in POSTERIORS.items()}


def score(routers: Path, which: str, name: str, index: int) -> Scores:
    """Errors of every rule on one task with one library, and how unsure they are."""
    asked, seen = trained(router_folder(routers)), network(which)
    asked.check_fits(seen)
    catalogue, episode = judged_catalogue(seen.library, asked), task_list(name).episode(index)
    table, names = make_table(seen, asked, catalogue, episode), row_names(catalogue)
    prior = uniform_prior(len(names))
    told = {label: each(table, prior) for label, each in posteriors(routers).items()}
    case = Case(table, names, sources=seen.library.names, number=index, posteriors=told)
    case = Case(table, names, sources=seen.library.names, number=index, posteriors=told | untrained(case))
    found = {rule: judge(case, weigh(case)).error for rule, weigh in RULES.items()}
    look = Look(seen, episode)
    for label, settings in (("evidence", None), ("evidence predictions", EvidenceSettings(mix="predictions"))):
        fit = evidence(seen, look.task, settings) if settings else evidence(seen, look.task)
        found[label] = 100 - look.right(look.voices(fit).logits)
    facts = Facts(table, case.posteriors["gibbs"], prior, case.row("base"))
    found |= {f"score {label}": each(facts) for label, each in SCORES.items()}
    found["weight of planted"] = sum(
        float(table.points[0][seen.library.names.index(each)]) for each in LIBRARIES[which]
    )
    return {"domain": int(episode.query.domains.min())} | found


def recovered(found: Mapping[str, Sequence[Scores]], which: str, rule: str) -> Interval:
    """What a rule keeps of what evidence loses."""
    clean, spoilt = found["as it ships"], found[which]
    lost = [b["evidence"] - a["evidence"] for a, b in zip(clean, spoilt, strict=True)]
    kept = [b["evidence"] - b[rule] for b in spoilt]
    whole = sum(lost) / len(lost)
    share = sum(kept) / sum(lost)
    rest = [(mine - share * other) / whole for mine, other in zip(kept, lost, strict=True)]
    around = clustered_interval(rest, [each["domain"] for each in spoilt])
    return Interval(share, share + around.low, share + around.high)


def lost_by(found: Mapping[str, Sequence[Scores]], which: str, rule: str) -> float:
    """Points that a rule itself loses by the planted source."""
    pairs = zip(found["as it ships"], found[which], strict=True)
    return sum(spoilt[rule] - clean[rule] for clean, spoilt in pairs) / len(found[which])


def crossed_auroc(tasks: Sequence[Scores], misled: Sequence[float]) -> float:
    """AUROC of the score that does best on the other half of the tasks, mean over halves."""

    def of(label: str, half: int) -> float:
        return auroc([each[f"score {label}"] for each in tasks[half::2]], misled[half::2])

    return sum(of(max(SCORES, key=lambda label, h=half: of(label, 1 - h)), half) for half in (0, 1)) / 2  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=30, help="of each list")
    parser.add_argument("--quick", action="store_true", help="two tasks of each list")
    options = parser.parse_args()
    if not PLANTED.exists():
        raise SystemExit("the planted sources are not there: run make sources-planted")
    begin = time.perf_counter()
    n_tasks = 2 if options.quick else options.tasks
    routers = ROOT / ".build" / "routers"
    jobs = [(which, f"test-{name}", index) for which in LIBRARIES for name in LISTS for index in range(n_tasks)]
    found: dict[str, dict[str, list[Scores]]] = {}
    for (which, name, _), scores in shared_out("tasks", partial(score, routers), jobs, keep=True):
        found.setdefault(name.removeprefix("test-"), {}).setdefault(which, []).append(scores)
    rules = ("evidence", "evidence predictions", *RULES)
    rows: Rows = []
    for name, libraries in found.items():
        for which, tasks in libraries.items():
            row: dict[str, object] = {"list": name, "library": which, "tasks": len(tasks)}
            row |= {rule: 100 - sum(each[rule] for each in tasks) / len(tasks) for rule in rules}
            rows.append(row | {"weight": sum(each["weight of planted"] for each in tasks) / len(tasks)})
    show("accuracy", rows)
    figures: dict[str, float] = {"tasks": len(jobs)}
    cued = {which: [each for name in LISTS[:2] for each in found[name][which]] for which in LIBRARIES}
    shares: Rows = []
    for which in ("cue", "cue-latin"):
        for rule in ("evidence predictions", *RULES):
            part, own = recovered(cued, which, rule), lost_by(cued, which, rule)
            row = {"library": which, "rule": rule, "recovered": part.mean, "low": part.low, "high": part.high}
            shares.append(row | {"lost": own})
        told = [row for row in shares if row["library"] == which and row["rule"] in BY_EVIDENCE]
        end = "" if which == "cue" else "_b"
        figures[f"planted_recovered{end}_least"] = min(row["recovered"] for row in told)
        figures[f"planted_recovered{end}_router"] = next(
            r["recovered"] for r in told if r["rule"] == "router with evidence"
        )
        figures[f"planted_lost{end}"] = lost_by(cued, which, "evidence")
    show("recovered", shares)
    both = [each for which in ("cue", "cue-latin") for each in cued[which]]
    both += [each for which in ("cue", "cue-latin") for each in found["id-5"][which]]
    misled = [float(each["evidence"] > each["base"] + HARM) for each in both]
    scores_rows: Rows = []
    for label in SCORES:
        values = [each[f"score {label}"] for each in both]
        scores_rows.append({"score": label, "auroc": auroc(values, misled)})
    figures["planted_auroc"] = crossed_auroc(both, misled)
    for which in ("cue", "cue-latin"):
        values = [each["base"] - each["members 4"] for each in cued[which]]
        end = "" if which == "cue" else "_b"
        figures[f"planted_worst{end}_members"] = sum(values) / len(values)
        values = [each["base"] - each["evidence"] for each in cued[which]]
        figures[f"planted_worst{end}_evidence"] = sum(values) / len(values)
    tables = {"accuracy": rows, "recovered": shares, "scores": scores_rows}
    write_result(NAME, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
