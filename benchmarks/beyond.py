"""More than an average: predictions of several networks, branches, queries that help, beside what one would do instead.

    python benchmarks/beyond.py [--stage validation|test] [--tasks N] [--quick]

Gains are over the library and router before sources had a common trunk (benchmarks/before.py) and, beside them, over
the router that ships, each in one pass. Passes are those of a query when it is served; the examples are passed through
each source once more. Models of routers are means over three seeds; the router without a common part, which shipped
before, is one. Intervals are clustered by domain. Two more seeds of the router are trained first where they are not
there (.build/routers).
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial

import before
from beyond_scores import SEEDS, TRANSDUCED, over_seeds, score
from common import ROOT, SCRATCH, Rows, machine, show, write_result
from signs_tasks import KINDS, PACKAGES, Scores, shared_out
from sources_experts_scores import router_folder
from theory_plots import Panel, Series, draw

sys.path.insert(0, str(ROOT / "tools" / "router"))

from train import N_STEPS, train

from smatter.scores.intervals import Interval, clustered_interval

NAME = "beyond"
CLEAN = [f"{kind}-{form}" for kind in KINDS for form in (1, 2, 5, "noise")]
PASSES = {
    "base": 1, "uniform": 1, "best by support": 1, "evidence": 1, "solver": 1, "router": 1, "before": 1,
    "router without a common part": 1, "both without a common part": 7,
    "router predictions 2": 2, "best 2 by support, equal": 2, "random 2, equal": 2, "both 2": 2,
    "branches 2": 1.98, "both branches 2": 1.98,
    "router predictions 3": 3, "best 3 by support, equal": 3, "random 3, equal": 3, "both 3": 3,
    "router predictions 4": 4, "best 4 by support, equal": 4, "random 4, equal": 4, "both 4": 4,
    "router predictions": 6, "uniform predictions": 6, "evidence predictions": 6, "solver predictions": 6,
    "before, uniform predictions": 6, "ridge on all features": 6, "both": 7,
}  # fmt: skip
"""At most; sources of hardly any weight are left out of some."""

SOLVE_EVERY = 5
"""One task in so many is solved: the solver takes as long as all the others together."""

HINDSIGHT = ("best source in hindsight", "best source in hindsight, cross-fitted")

Found = Mapping[str, Sequence[Scores]]


def scored(found: Found, lists: Sequence[str], *labels: str) -> list[Scores]:
    """Tasks of some lists on which all of these models were asked."""

    def has(scores: Scores, label: str) -> bool:
        return label in scores or f"{label} seed 0" in scores

    return [each for name in lists for each in found[name] if all(has(each, label) for label in labels)]


def difference(found: Found, lists: Sequence[str], ours: str, theirs: str) -> Interval:
    """Ours less theirs in points, over tasks of some lists that have both."""
    both = scored(found, lists, ours, theirs)
    values = [over_seeds(each, ours) - over_seeds(each, theirs) for each in both]
    return clustered_interval(values, [each["domain"] for each in both])


def mean(found: Found, lists: Sequence[str], label: str) -> float:
    """Of a model on the tasks of some lists that have it."""
    some = [over_seeds(each, label) for each in scored(found, lists, label)]
    return sum(some) / len(some)


def model_rows(found: Found) -> Rows:
    """Every model: passes, accuracy by kind of task, gains."""
    rows: Rows = []
    for label, passes in PASSES.items():
        row = {"model": label, "passes": passes, "tasks": len(scored(found, CLEAN, label))}
        row |= {kind: mean(found, [name for name in CLEAN if name.startswith(kind)], label) for kind in KINDS}
        for peer, short in (("before", "before"), ("router", "router"), ("uniform predictions", "uniform")):
            gain = difference(found, CLEAN, label, peer)
            row |= {f"over_{short}": gain.mean, f"over_{short}_low": gain.low, f"over_{short}_high": gain.high}
        for key, prefix in (("nll", "nll "), ("nll_temperature_1", "nll, temperature 1, "), ("sure", "sure ")):
            row[key] = mean(found, CLEAN, f"{prefix}{label}")
        rows.append(row)
    return sorted(rows, key=lambda row: (row["passes"], -row["over_router"]))


def transduction_rows(found: Found) -> Rows:
    """What queries add to each model."""
    rows: Rows = []
    for label in TRANSDUCED:
        for what in ("all", "10to1", "ten"):
            gain = difference(found, CLEAN, f"{label} together {what}", f"{label} alone {what}")
            peer = difference(found, CLEAN, f"{label} sinkhorn {what}", f"{label} alone {what}")
            values = [
                each[f"{label} together {what}"] - each[f"{label} alone {what}"]
                for name in CLEAN
                for each in found[name]
            ]
            lost = sum(value <= -5 for value in values) / len(values)
            rows.append(
                {
                    "model": label, "queries": what, "gain": gain.mean, "gain_low": gain.low, "gain_high": gain.high,
                    "sinkhorn": peer.mean, "sinkhorn_low": peer.low, "sinkhorn_high": peer.high, "lost_five": lost,
                }
            )  # fmt: skip
    return rows


def passes_panel(models: Rows) -> Panel:
    """Accuracy against passes: a line for each idea, a point for each of its sizes.

    Models stand as far from the router as they are on tasks that both were asked: the solver was asked a fifth of them.
    """
    router = next(row for row in models if row["model"] == "router")
    level = sum(router[kind] for kind in KINDS) / len(KINDS)
    height = {row["model"]: level + row["over_router"] for row in models}
    lines = {
        "mixed network and sources": ("router", "both 2", "both 3", "both 4", "both"),
        "sources by router and evidence": (
            "router predictions 2", "router predictions 3", "router predictions 4", "router predictions"
        ),
        "branches": ("router", "branches 2"),
        "best by support, equal weights": (
            "best by support", "best 2 by support, equal", "best 3 by support, equal", "best 4 by support, equal",
            "uniform predictions",
        ),
        "random, equal weights": ("random 2, equal", "random 3, equal", "random 4, equal", "uniform predictions"),
        "one mixture: equal, evidence, solver": ("uniform", "evidence", "solver"),
        "ridge on all features": ("ridge on all features",),
        "router before": ("before",),
        "base": ("base",),
    }  # fmt: skip
    series = [
        Series(name, [PASSES[label] for label in labels], [height[label] for label in labels], mark="both")
        for name, labels in lines.items()
    ]
    return Panel("Accuracy on new tasks, in percent", "passes of each query", "", series, from_zero=False)


def put(figures: dict[str, float], name: str, interval: Interval) -> None:
    """A figure with its interval."""
    figures |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("validation", "test"), default="test")
    parser.add_argument("--tasks", type=int, default=50, help="tasks of each list")
    parser.add_argument("--quick", action="store_true", help="one task of each list")
    options = parser.parse_args()
    begin = time.perf_counter()
    before.restore()
    routers, n_steps = (SCRATCH / "routers", 3) if options.quick else (ROOT / ".build" / "routers", N_STEPS)
    routers.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS[1:]:
        train(router_folder(routers, seed), seed, n_steps=n_steps)
    n_tasks = 1 if options.quick else options.tasks
    jobs = [(f"{options.stage}-{name}", index) for name in CLEAN for index in range(n_tasks)]
    found: dict[str, list[Scores]] = {}
    for (name, _), scores in shared_out("tasks", partial(score, routers, SOLVE_EVERY), jobs, keep=True):
        found.setdefault(name.removeprefix(f"{options.stage}-"), []).append(scores)
    figures: dict[str, float] = {"tasks": len(jobs)}
    for name, ours in (
        ("k_pass", "router predictions"), ("two_pass", "branches 2"), ("one_pass", "router"),
        ("one_pass_plain", "router without a common part"), ("seven_pass", "both"),
    ):  # fmt: skip
        put(figures, f"{name}_gain", difference(found, CLEAN, ours, "before"))
        if ours != "router":
            put(figures, f"{name}_gain_over_shipped", difference(found, CLEAN, ours, "router"))
    put(figures, "gain_over_uniform_predictions", difference(found, CLEAN, "router predictions", "uniform predictions"))
    for name in HINDSIGHT:
        put(figures, name.replace(",", "").replace(" ", "_"), difference(found, CLEAN, name, "router"))
    transduction = transduction_rows(found)
    for row in transduction:
        if row["model"] == "router predictions":
            suffix = {"all": "", "10to1": "_10to1", "ten": "_ten_queries"}[row["queries"]]
            interval = Interval(row["gain"], row["gain_low"], row["gain_high"])
            put(figures, f"transductive_gain{suffix}", interval)
            figures[f"transductive_lost_five{suffix}"] = row["lost_five"]
    models = model_rows(found)
    show("models", models)
    show("queries that help each other", transduction)
    if options.stage == "test" and not options.quick:
        draw(ROOT / "docs" / "images" / f"{NAME}.svg", [passes_panel(models)])
    name = NAME if options.stage == "test" else f"{NAME}_validation"
    tables = {"models": models, "transduction": transduction}
    write_result(name, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
