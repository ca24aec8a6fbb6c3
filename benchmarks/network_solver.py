"""Evidence routing and the solver on a live network, beside uniform weights and the best single source in hindsight.

    python benchmarks/network_solver.py [--quick]

The suite is the one of the tests: three synthetic image domains, a tiny ViT trained on all and a specialist of each.
Tasks are 5-way 5-shot, of classes that no network has seen, from one domain or two. Two suites of other networks and
other domains are made, so that one lucky training does not decide. It tells the methods apart, not how good they are
on real images; that is the business of a real suite.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import PLAIN_PROCESS, ROOT, Rows, machine, show, stage, write_result

os.environ |= PLAIN_PROCESS
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np
import torch
from toy_suite import DOMAINS, Episode, add_noise_sources, draw_episode, make_checkpoints, make_library

from smatter.adapted import Adapted
from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit
from smatter.methods.average import average
from smatter.methods.solver import SolverSettings, solver
from smatter.route.evidence import gather_evidence
from smatter.scores.intervals import mean_interval, paired_difference
from smatter.settings import MixSettings

NAME = "network_solver"
KINDS = (*DOMAINS, "red+green", "green+blue", "blue+red")
N_IRRELEVANT = 16
SOLVERS = {
    "solver": SolverSettings(),
    "solver, weights per module": SolverSettings(per_module=True),
    "solver and 200 elements": SolverSettings(n_elements=200),
}
Scores = dict[str, list[float]]


def accuracy(live: LiveMixture, task: Task, episode: Episode, fit: Fit) -> float:
    """Percent of the queries that the prototype head of a fitted network gets right."""
    adapted = Adapted(live, task, fit, class_names=episode.support.class_names)
    predicted = adapted.predict(episode.queries).probabilities.argmax(dim=1)
    return 100 * float((predicted == episode.labels).double().mean())


def run_episode(live: LiveMixture, episode: Episode, scores: Scores, seconds: Scores, everything: bool) -> None:
    """Append the accuracy and the time of every method."""

    def record(name: str, find: Callable[[], Fit]) -> None:
        begin = time.perf_counter()
        fit = find()
        seconds.setdefault(name, []).append(time.perf_counter() - begin)
        scores.setdefault(name, []).append(accuracy(live, task, episode, fit))

    names, task = live.library.names, Task.of(live, episode.support)
    record("evidence routing", lambda: Fit(gather_evidence(live, task.objective).mixture))
    record("solver", lambda: solver(live, task, SOLVERS["solver"]))
    record("average of predictions", lambda: average(live, task, MixSettings(mix="predictions")))
    if not everything:
        return
    for name, settings in list(SOLVERS.items())[1:]:
        record(name, lambda settings=settings: solver(live, task, settings))
    record("uniform", lambda: Fit(Mixture.of(dict.fromkeys(names, 1 / len(names)))))
    record("best single by evidence", lambda: Fit(Mixture.of({gather_evidence(live, task.objective).best: 1.0})))
    singles = [accuracy(live, task, episode, Fit(Mixture.of({name: 1.0}))) for name in names]
    scores.setdefault("best single in hindsight", []).append(max(singles))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tasks, about a minute")
    quick = parser.parse_args().quick
    begin = time.perf_counter()
    torch.set_num_threads(1)
    n_suites, n_seeds = (1, 2) if quick else (2, 10)
    scores: Scores = {}
    seconds: Scores = {}
    crowded_scores: Scores = {}
    with tempfile.TemporaryDirectory() as scratch, stage("tasks", n_suites * n_seeds * len(KINDS)) as tick:
        for suite in range(n_suites):
            folder = Path(scratch) / str(suite)
            folder.mkdir()
            domains = make_checkpoints(folder, seed=100 * suite)
            live = LiveMixture(make_library(folder))
            (folder / "more").mkdir()
            for name in ("base", *DOMAINS):
                (folder / "more" / name).symlink_to(folder / name)
            crowded = LiveMixture(add_noise_sources(make_library(folder / "more"), folder / "more", N_IRRELEVANT))
            for kind in KINDS:
                for seed in range(n_seeds):
                    episode = draw_episode(domains, kind, 9000 + seed)
                    run_episode(live, episode, scores, seconds, everything=True)
                    run_episode(crowded, episode, crowded_scores, {}, everything=False)
                    tick()
    rows: Rows = []
    for name, values in scores.items():
        mean, against = mean_interval(values), paired_difference(values, scores["solver"])
        rows.append(
            {
                "method": name, "accuracy": mean.mean, "accuracy_low": mean.low, "accuracy_high": mean.high,
                "minus_solver": against.mean, "minus_solver_low": against.low, "minus_solver_high": against.high,
                "seconds": float(np.median(seconds[name])) if name in seconds else float("nan"),
            }
        )  # fmt: skip
    rows.sort(key=lambda row: -row["accuracy"])
    figures = {"tasks": len(scores["solver"])}
    lost: Rows = []
    for name in crowded_scores:
        loss = paired_difference(scores[name], crowded_scores[name])
        lost.append(
            {"method": name, "points_lost": loss.mean, "points_lost_low": loss.low, "points_lost_high": loss.high}
        )
        figures[f"irrelevant_sources_cost_{name.replace(' ', '_')}"] = loss.mean
    for row in rows:
        figures["accuracy_" + row["method"].replace(",", "").replace(" ", "_")] = row["accuracy"]
    for row in rows:
        row["seconds"] = None if row["seconds"] != row["seconds"] else row["seconds"]
    show("methods", rows)
    show(f"{N_IRRELEVANT} irrelevant sources", lost)
    packages = ("torch", "transformers", "numpy")
    tables = {"methods": rows, "irrelevant_sources": lost}
    write_result(NAME, figures, tables, machine(packages, 1), time.perf_counter() - begin, quick)


if __name__ == "__main__":
    main()
