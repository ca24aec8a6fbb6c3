"""More than an average, on texts: a router of Words in weight space and in prediction space, beside what one would do
instead.

    python benchmarks/beyond_words.py [--stage validation|test] [--tasks N] [--quick]

As `beyond.py` does for Signs. Gains are paired task by task, and intervals are clustered by domain. Models of routers
are means over the seeds that were trained. Needs `make words`, `make sources-words` and `make router-words`.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from beyond import CLEAN, SOLVE_EVERY, difference, mean, put, scored, transduction_rows
from beyond_scores import SEEDS
from beyond_words_scores import score
from common import Rows, machine, show, write_result
from signs_tasks import KINDS, PACKAGES, Scores, shared_out
from words_tasks import ROUTER

from smatter.scores.intervals import Interval

NAME = "beyond_words"
TWO = ["id-two", "ood-two"]
FORMS = {
    "one shot": [f"{kind}-1" for kind in KINDS], "two shots": [f"{kind}-2" for kind in KINDS],
    "five shots": [f"{kind}-5" for kind in KINDS], "wrong labels": [f"{kind}-noise" for kind in KINDS],
    "two classes": TWO,
}  # fmt: skip
PASSES = {
    "base": 1, "uniform": 1, "best by support": 1, "evidence": 1, "solver": 1, "router": 1,
    "router without evidence": 1, "router predictions 2": 2, "best 2 by support, equal": 2,
    "best 3 by support, equal": 3, "router predictions": 4, "router predictions without evidence": 4,
    "uniform predictions": 4, "evidence predictions": 4, "solver predictions": 4, "ridge on all features": 4,
    "both 4": 4, "both": 5,
}  # fmt: skip
"""Of a query, at most; sources of hardly any weight are left out of some."""

PEERS = ("uniform", "uniform predictions", "evidence", "best by support", "base")
FIGURES = {
    "words_router": "router", "words_router_without_evidence": "router without evidence",
    "words_evidence": "evidence", "words_predictions": "router predictions",
    "words_evidence_predictions": "evidence predictions", "words_uniform_predictions": "uniform predictions",
}  # fmt: skip
Found = Mapping[str, Sequence[Scores]]


def router_folder(seed: int) -> Path:
    """Where the router of a seed is."""
    return ROUTER.with_name(f"{ROUTER.name}-{seed}") if seed else ROUTER


def model_rows(found: Found) -> Rows:
    """Every model: passes, accuracy by kind of task, gains."""
    rows: Rows = []
    for label, passes in PASSES.items():
        row = {"model": label, "passes": passes, "tasks": len(scored(found, CLEAN, label))}
        row |= {kind: mean(found, [name for name in CLEAN if name.startswith(kind)], label) for kind in KINDS}
        row["two"] = mean(found, TWO, label)
        for peer in PEERS[:2]:
            gain, key = difference(found, CLEAN, label, peer), f"over_{peer.replace(' ', '_')}"
            row |= {key: gain.mean, f"{key}_low": gain.low, f"{key}_high": gain.high}
        rows.append(row | {"nll": mean(found, CLEAN, f"nll {label}")})
    return sorted(rows, key=lambda row: (row["passes"], -row["over_uniform"]))


def form_rows(found: Found) -> Rows:
    """What each model of the figures gains over equal weights, by form of task."""
    rows: Rows = []
    for label in (*FIGURES.values(), "best by support"):
        row: dict[str, object] = {"model": label}
        for form, lists in FORMS.items():
            gain = difference(found, lists, label, "uniform")
            row |= {form: gain.mean, f"{form}_low": gain.low, f"{form}_high": gain.high}
        rows.append(row)
    return rows


def figures_of(found: Found, transduction: Rows) -> dict[str, float]:
    """Gains over each peer, over all clean lists and over those with one shot."""
    figures: dict[str, float] = {"words_tasks": sum(len(found[name]) for name in CLEAN)}
    for name in ("best source in hindsight", "best source in hindsight, cross-fitted"):
        key = "words_" + name.replace(",", "").replace(" ", "_")
        put(figures, key, difference(found, CLEAN, name, "router"))
    for name, ours in FIGURES.items():
        for peer in PEERS:
            if peer != ours:
                put(figures, f"{name}_vs_{peer.replace(' ', '_')}", difference(found, CLEAN, ours, peer))
    for peer in ("uniform", "best by support"):
        for ours in ("router", "router predictions"):
            name = f"words_one_shot_{ours.replace(' ', '_')}_vs_{peer.replace(' ', '_')}"
            put(figures, name, difference(found, FORMS["one shot"], ours, peer))
    for row in transduction:
        if row["model"] == "router predictions":
            suffix = {"all": "", "10to1": "_10to1", "ten": "_ten_queries"}[row["queries"]]
            interval = Interval(row["gain"], row["gain_low"], row["gain_high"])
            put(figures, f"words_transductive_gain{suffix}", interval)
            figures[f"words_transductive_lost_five{suffix}"] = row["lost_five"]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("validation", "test"), default="test")
    parser.add_argument("--tasks", type=int, default=25, help="tasks of each list")
    parser.add_argument("--quick", action="store_true", help="two tasks of each list")
    options = parser.parse_args()
    begin = time.perf_counter()
    routers = [folder for seed in SEEDS if (folder := router_folder(seed)).exists()]
    n_tasks = 2 if options.quick else options.tasks
    jobs = [(f"{options.stage}-{name}", index) for name in (*CLEAN, *TWO) for index in range(n_tasks)]
    found: dict[str, list[Scores]] = {}
    for (name, _), scores in shared_out("tasks", partial(score, routers, SOLVE_EVERY), jobs, keep=True):
        found.setdefault(name.removeprefix(f"{options.stage}-"), []).append(scores)
    transduction = transduction_rows(found)
    models, forms = model_rows(found), form_rows(found)
    show("models", models)
    show("over equal weights, by form of task", forms)
    show("queries that help each other", transduction)
    name = NAME if options.stage == "test" else f"{NAME}_validation"
    tables = {"routers": len(routers), "models": models, "forms": forms, "transduction": transduction}
    figures = figures_of(found, transduction)
    write_result(name, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
