"""Queries that help each other, on the readings of the validation tasks: the package's rule, and ways one would try.

Every rule sees the labelled examples and some queries of a task: all of them, a draw in which the classes' numbers fall
geometrically to a tenth, or ten at random. Settings were chosen on the first half of each list, and the tables are of
the other; readings.py has read both before. Gains are over the same networks without queries, in points of accuracy on
the queries that were seen.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from common import PLAIN_PROCESS, Rows, machine, show, write_result

os.environ |= PLAIN_PROCESS

import torch
from readings import KEPT, Reading, reading
from signs_tasks import shared_out
from torch import Tensor
from transduction_peers import alone, counted, examples_alone, hard, k_means, laplacian, refined, sinkhorn, soft

from smatter.backbones.transduction import Transduction
from smatter.scores.intervals import Interval, clustered_interval

NAME = "transduction_study"
KINDS, SHOTS = ("id", "ood", "mixed"), ("1", "2", "5", "noise")
NETWORKS = {
    "six sources": ("base", "latin", "alphabets", "syllables", "emoji", "symbols"),
    "routed network": ("routed",),
    "average of weights": ("equal",),
}
"""Whose predictions are averaged, with equal weights. Nothing was chosen on the last, another single network."""

SUFFIXES = {"six sources": "", "routed network": "_routed", "average of weights": "_average"}
"""Of their figures."""

OURS, ALONE = "counted, then refined", "without queries"
RULES: dict[str, Callable[..., Tensor]] = {
    ALONE: alone,
    OURS: refined,
    "the same, labels of examples trusted": partial(refined, settings=Transduction(trust=100.0)),
    "examples alone, labels not trusted": examples_alone,
    "soft k-means": partial(k_means, soft_labels=soft),
    "soft k-means, full weight": partial(k_means, soft_labels=soft, query_weight=1.0),
    "soft k-means, shares by EM": partial(k_means, soft_labels=counted),
    "hard pseudo-labels": partial(k_means, soft_labels=hard),
    "balanced by Sinkhorn": sinkhorn,
    "neighbours (Laplacian)": laplacian,
}
DRAWS = {"all": 1, "10:1": 3, "ten": 5}
"""Which queries a rule sees, and how many draws of them are averaged in a task."""

FIGURES = {"all": "transductive_gain", "10:1": "transductive_gain_10to1", "ten": "transductive_gain_ten_queries"}
LOSS = 5.0
"""Points of accuracy; a task that loses as many counts as harmed."""


def drawn(queries: str, truth: Tensor, generator: torch.Generator) -> Tensor:
    """Places of the queries that are seen."""
    if queries == "all":
        return torch.arange(len(truth))
    if queries == "ten":
        return torch.randperm(len(truth), generator=generator)[:10]
    n_classes, kept = int(truth.max()) + 1, []
    for rank, label in enumerate(torch.randperm(n_classes, generator=generator).tolist()):
        places = (truth == label).nonzero()[:, 0]
        n_kept = max(1, round(len(places) * 0.1 ** (rank / (n_classes - 1))))
        kept.append(places[torch.randperm(len(places), generator=generator)[:n_kept]])
    return torch.cat(kept)


def accuracies(task: Reading, names: Sequence[str], queries: str, seed: int) -> dict[str, float]:
    """Of each rule in percent, mean over draws of the queries."""
    support, asked = (torch.stack([each(name) for name in names]) for each in (task.support, task.queries))
    labels, weights = task.labels[task.unchanged], torch.full((len(names),), 1 / len(names))
    generator, found = torch.Generator().manual_seed(seed), dict.fromkeys(RULES, 0.0)
    for _ in range(DRAWS[queries]):
        places = drawn(queries, task.truth, generator)
        for rule, logits in RULES.items():
            said = logits(support, labels, asked[:, places], weights, task.n_classes).argmax(dim=1)
            found[rule] += 100 * float((said == task.truth[places]).double().mean()) / DRAWS[queries]
    return found


def task_rows(path: Path, shots: str, index: int) -> Rows:
    """Accuracies on one task, for each set of networks and each choice of queries."""
    torch.set_num_threads(1)
    task = reading(path)
    return [
        {"networks": who, "queries": queries, "shots": shots, "index": index, "domain": task.domain}
        | accuracies(task, names, queries, index)
        for who, names in NETWORKS.items()
        for queries in DRAWS
    ]


def chosen(tasks: Rows, who: str, queries: str) -> Rows:
    """Those of a set of networks and a choice of queries."""
    return [each for each in tasks if (each["networks"], each["queries"]) == (who, queries)]


def gain(tasks: Rows, rule: str, other: str = ALONE) -> Interval:
    """What a rule is above another on the same tasks."""
    return clustered_interval([each[rule] - each[other] for each in tasks], [each["domain"] for each in tasks])


def harmed(tasks: Rows, rule: str) -> float:
    """Percentage of tasks that lose five points or more."""
    return 100 * sum(each[ALONE] - each[rule] > LOSS - 1e-9 for each in tasks) / len(tasks)


def summary(tasks: Rows) -> Rows:
    """A row for each rule, set of networks and choice of queries."""
    rows: Rows = []
    for who in NETWORKS:
        for queries in DRAWS:
            mine = chosen(tasks, who, queries)
            for rule in RULES:
                interval = gain(mine, rule)
                row = {
                    "networks": who, "queries": queries, "rule": rule,
                    "accuracy": sum(each[rule] for each in mine) / len(mine),
                    "gain": interval.mean, "gain_low": interval.low, "gain_high": interval.high,
                }  # fmt: skip
                row |= {
                    f"gain_{shots}": gain([each for each in mine if each["shots"] == shots], rule).mean
                    for shots in SHOTS
                }
                rows.append(row | {"harmed": harmed(mine, rule)})
    return rows


def differences(tasks: Rows) -> Rows:
    """What the package's rule is above the others, task by task."""
    rows: Rows = []
    for who in NETWORKS:
        for rule in [rule for rule in RULES if rule not in (OURS, ALONE)]:
            row: dict[str, object] = {"networks": who, "rule": rule}
            for queries in DRAWS:
                above = gain(chosen(tasks, who, queries), OURS, rule)
                row |= {queries: above.mean, f"{queries}_low": above.low, f"{queries}_high": above.high}
            rows.append(row)
    return rows


def figures(rows: Rows) -> dict[str, float]:
    """What the package's rule gains, and its interval."""
    found: dict[str, float] = {}
    for row in rows:
        if row["rule"] != OURS:
            continue
        label = FIGURES[row["queries"]] + SUFFIXES[row["networks"]]
        found |= {label: row["gain"], f"{label}_low": row["gain_low"], f"{label}_high": row["gain_high"]}
        if row["queries"] == "all":
            found[label.replace("gain", "harmed")] = row["harmed"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=Path, default=KEPT / "new", help="folder of the readings")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of tasks; all by default")
    parser.add_argument("--tasks", type=int, default=60, help="tasks of each list, of which the second half is scored")
    parser.add_argument("--quick", action="store_true", help="four tasks of each list")
    options = parser.parse_args()
    begin, n_tasks = time.perf_counter(), 4 if options.quick else options.tasks
    jobs = [
        (options.readings / f"validation-{kind}-{shots}" / f"{index}.npz", shots, index)
        for kind in options.kinds
        for shots in SHOTS
        for index in range(n_tasks // 2, n_tasks)
    ]
    if missing := [path for path, _, _ in jobs if not path.exists()]:
        raise SystemExit(f"{len(missing)} of {len(jobs)} tasks were not read yet: see benchmarks/readings.py")
    found = shared_out("tasks", task_rows, jobs, 8, keep=not options.quick)
    tasks = [row for _, mine in found for row in mine]
    rows, above = summary(tasks), differences(tasks)
    show("held-out half", rows)
    show(f"{OURS}, above others", above)
    seconds = time.perf_counter() - begin
    tables = {"kinds": options.kinds, "tasks": len(jobs), "rules": rows, "differences": above}
    print(write_result(NAME, figures(rows), tables, machine(("torch",), 1), seconds, options.quick))


if __name__ == "__main__":
    main()
