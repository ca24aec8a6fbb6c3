"""Training for budgets on the shipped Signs library: accuracy at shares of what everything open costs.

    python benchmarks/budget_training.py --router ROUTER [--stage validation|test] [--tasks N] [--clean N] [--quick]

ROUTER is what `python tools/router/budgets.py -o ROUTER` makes of the shipped one, which is `before` here. Each task is
routed, and its experts cut to 5, 10, 25 and 50 % of what all that they open costs beyond the base, in
multiply-accumulates and 1 % of the base for each active module; a second profile, in bytes of weights, was not trained
on. `smatter` is what `smatter adapt --budget` does after training: exact allocation of the values that were learnt with
the experts. Its rivals have its order of units within each module and its tuning, so that only the allocation differs;
`blind to the task` takes the mean of the learnt values over experts. Before training, values come from a gradient of
the examples. On validation tasks there are ablations: `with a gradient` averages the learnt values and those of one
gradient, `value alone` disregards costs, `groups alone` closes what is no group; before training, `five passes` is what
`smatter adapt --budget` does. Intervals are by bootstrap over draws: tasks of one number are the same draw in eight
renderings.
"""

import argparse
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from budget import put, resampled, with_interval
from budget_scores import BUDGETS, RENDERINGS, Found
from budget_training_scores import ABLATIONS, BASELINES, OTHER, OTHER_BUDGETS, OWN, score
from common import Rows, machine, show, write_result
from signs_tasks import PACKAGES, shared_out

NAME = "budget_training"
CLEAN = ("id-5", "ood-5", "id-1", "ood-1")


def means_of(found: Mapping[Any, list[Found]]) -> dict[str, np.ndarray]:
    """Means of each score, then those of resamples of the draws."""
    keys = sorted(next(iter(found.values()))[0])
    draws = np.array([np.mean([[each[key] for key in keys] for each in own], axis=0) for own in found.values()])
    return dict(zip(keys, resampled(draws).T, strict=True))


def rule_rows(mean: Mapping[str, np.ndarray]) -> Rows:
    """Accuracy, share of the gain kept, and difference to what ships, of each rule at each budget."""
    rows: Rows = []
    rules = [("after", rule) for rule in (*OWN, *ABLATIONS)]
    rules += [("before", "gradient"), ("before", "five passes")]
    for budget in BUDGETS:
        for when, rule in rules:
            if f"{when} {rule} {budget}" not in mean:
                continue
            own, row = mean[f"{when} {rule} {budget}"], {"budget": budget, "experts": when, "rule": rule}
            none, full = mean[f"{when} nothing"], mean[f"{when} everything"]
            put(row, "accuracy", with_interval(own))
            put(row, "gain_kept", with_interval((own - none) / (full - none)))
            put(row, "below_smatter", with_interval(mean[f"after smatter {budget}"] - own))
            rows.append(row)
    return rows


def other_rows(mean: Mapping[str, np.ndarray]) -> Rows:
    """The same on a profile that was not trained on."""
    rows: Rows = []
    none, full = mean["after nothing"], mean["after everything"]
    for budget in OTHER_BUDGETS if f"after bytes {OTHER[0]} {OTHER_BUDGETS[0]}" in mean else ():
        for rule in OTHER:
            own, row = mean[f"after bytes {rule} {budget}"], {"budget": budget, "rule": rule}
            put(row, "gain_kept", with_interval((own - none) / (full - none)))
            rows.append(put(row, "below_smatter", with_interval(mean[f"after bytes smatter {budget}"] - own)))
    return rows


def end_rows(mean: Mapping[str, np.ndarray]) -> Rows:
    """Accuracy with nothing and with everything open, and of plain averages."""
    names = ("before nothing", "before everything", "after everything")
    averages = ("base", "average of weights", "average of predictions")
    rows = [put({"what": name}, "accuracy", with_interval(mean[name])) for name in (*names, *averages)]
    lost = mean["before everything"] - mean["after everything"]
    return [*rows, put({"what": "lost with everything open"}, "accuracy", with_interval(lost))]


def figures_of(mean: Mapping[str, np.ndarray], rows: Rows) -> dict[str, float]:
    """What the issue names."""
    figures: dict[str, Any] = {}
    put(figures, "at_stake", with_interval(mean["after everything"] - mean["after nothing"]))
    put(figures, "full_budget_loss", with_interval(mean["before everything"] - mean["after everything"]))
    won = 0
    for budget in BUDGETS:
        name = f"{round(100 * budget):02d}"
        own = {row["rule"]: row for row in rows if row["budget"] == budget and row["experts"] == "after"}
        put(figures, f"gain_kept_{name}", tuple(own["smatter"][f"gain_kept{end}"] for end in ("", "_low", "_high")))
        none, full = mean["before nothing"], mean["before everything"]
        before = (mean[f"before gradient {budget}"] - none) / (full - none)
        put(figures, f"gain_kept_{name}_before", with_interval(before))
        trained = mean[f"after smatter {budget}"] - mean[f"before gradient {budget}"]
        put(figures, f"gain_of_training_{name}", with_interval(trained))
        best = min((own[rule] for rule in BASELINES), key=lambda row: row["below_smatter"])
        put(figures, f"gain_over_best_baseline_{name}", tuple(best[f"below_smatter{e}"] for e in ("", "_low", "_high")))
        blind = own["blind to the task"]
        put(figures, f"task_gain_{name}", tuple(blind[f"below_smatter{e}"] for e in ("", "_low", "_high")))
        won += all(own[rule]["below_smatter_low"] >= -0.3 for rule in BASELINES)
    return figures | {"budgets_won_of_4": float(won)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--router", type=Path, required=True, help="trained for budgets")
    parser.add_argument("--stage", choices=("validation", "test"), default="validation")
    parser.add_argument("--tasks", type=int, default=12, help="tasks of each rendering")
    parser.add_argument("--clean", type=int, default=12, help="tasks of each of four clean lists")
    parser.add_argument("--quick", action="store_true", help="one task of each")
    options = parser.parse_args()
    begin = time.perf_counter()
    n_tasks, n_clean = (1, 1) if options.quick else (options.tasks, options.clean)
    router = options.router.resolve()
    jobs = [(f"{options.stage}-outside-{name}", index) for index in range(n_tasks) for name in RENDERINGS]
    found: dict[int, list[Found]] = {}
    for (_, index), scores in shared_out(
        "tasks", partial(score, router, "all" if options.stage == "validation" else "main"), jobs, keep=True
    ):
        found.setdefault(index, []).append(scores)
    mean = means_of(found)
    rows = rule_rows(mean)
    figures: dict[str, Any] = {"tasks": float(len(jobs)), **figures_of(mean, rows)}
    tables = {"rules": rows, "ends": end_rows(mean)}
    if others := other_rows(mean):
        tables["another profile"] = others
    if n_clean:
        jobs = [(f"{options.stage}-{name}", index) for index in range(n_clean) for name in CLEAN]
        clean = {job: [each] for job, each in shared_out("clean", partial(score, router, "ends"), jobs, keep=True)}
        tables["ends on clean tasks"] = end_rows(own := means_of(clean))
        figures["clean_tasks"] = float(len(jobs))
        put(figures, "clean_loss", with_interval(own["before everything"] - own["after everything"]))
    for title, table in tables.items():
        show(title, table)
    seconds, machine_ = time.perf_counter() - begin, machine(PACKAGES, 1)
    write_result(NAME, figures, tables, machine=machine_, seconds=seconds, quick=options.quick)


if __name__ == "__main__":
    main()
