"""Mixing on Signs: the solver and evidence routing beside uniform weights and single sources, on validation tasks.

    python benchmarks/signs_solver.py [--quick] [--tasks N]

Tasks come from frozen validation lists: inside the domains that sources learnt from, from domains held out as a whole,
and with classes of two or three domains at once; with 1, 2 and 5 shots. Beside the methods stands what hindsight gives:
the best single source by its accuracy on the queries, and the hull, whose weights are optimised on the queries' labels.
"""

import argparse
import time

import torch
from common import Rows, machine, show, write_result
from signs_tasks import KINDS, PACKAGES, Scores, live, shared_out, tasks

from smatter.compose.mixture import Mixture
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.problems import MixtureLoss
from smatter.live.task import Task
from smatter.methods.solver import solver
from smatter.route.evidence import gather_evidence
from smatter.scores.intervals import mean_interval, paired_difference
from smatter.solve.frank_wolfe import FrankWolfe, uniform
from smatter.solve.loop import run

NAME = "signs_solver"
SHOTS = (1, 2, 5)
HULL = "hull_on_queries"
METHODS = ("solver", "evidence", "best_by_support", "best_hindsight", "uniform", "base", HULL)
HULL_STEPS, HULL_EVERY = 15, 4
"""The hull costs more than all else together, so one task in four has it."""


def score(kind: str, shots: int, index: int) -> Scores:
    """Accuracy of every method on one task, in percent."""
    network = live()
    library = network.library
    episode = tasks(f"validation-{kind}-{shots}").episode(index)
    queries = episode_queries(network, episode)

    def accuracy(mixture: Mixture) -> float:
        network.compose(mixture)
        return 100 * queries.accuracy(network.read(queries))

    task = Task.of(network, prepared_support(network, episode))
    evidence = gather_evidence(network, task.objective)
    singles = {name: accuracy(Mixture.of({name: 1.0})) for name in library.names}
    scores = {f"source {name}": value for name, value in singles.items()}
    if index % HULL_EVERY == 0:
        hull = MixtureLoss(network, queries)
        start = uniform(1, 1, len(library.names), torch.zeros(1, dtype=torch.float64))
        best = run(FrankWolfe(1e-3, "vanilla"), hull, start, HULL_STEPS).point
        scores[HULL] = accuracy(hull.mixture(best))
    return scores | {
        "solver": accuracy(solver(network, task).mixture),
        "evidence": accuracy(evidence.mixture),
        "best_by_support": singles[evidence.best],
        "best_hindsight": max(singles.values()),
        "uniform": accuracy(Mixture.of(dict.fromkeys(library.names, 1 / len(library.names)))),
        "base": singles["base"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="eight tasks of each list, about a minute")
    parser.add_argument("--tasks", type=int, default=200, help="tasks of each list")
    options = parser.parse_args()
    n_tasks = 8 if options.quick else options.tasks
    begin = time.perf_counter()
    jobs = [(kind, shots, index) for kind in KINDS for shots in SHOTS for index in range(n_tasks)]
    found: dict[tuple[str, int], list[Scores]] = {}
    for (kind, shots, _), scores in shared_out("tasks", score, jobs):
        found.setdefault((kind, shots), []).append(scores)
    rows: Rows = []
    figures: dict[str, float] = {"tasks_per_list": n_tasks}
    for kind in KINDS:
        for shots in (*SHOTS, "all"):
            some = [each for (k, s), scores in found.items() if k == kind and shots in (s, "all") for each in scores]
            for method in METHODS:
                pairs = [(each["solver"], each[method]) for each in some if method in each]
                ours, values = ([pair[side] for pair in pairs] for side in (0, 1))
                mean, against = mean_interval(values), paired_difference(ours, values)
                rows.append(
                    {
                        "kind": kind, "shots": shots, "method": method, "tasks": len(values),
                        "accuracy": mean.mean, "low": mean.low, "high": mean.high, "solver_minus_it": against.mean,
                        "solver_minus_it_low": against.low, "solver_minus_it_high": against.high,
                    }
                )  # fmt: skip
                if shots == "all":
                    figures[f"{kind}_{method}"] = mean.mean
        hulls = [each for (k, _), scores in found.items() if k == kind for each in scores if HULL in each]
        reached = max(sum(each[method] for each in hulls) for method in ("solver", "evidence"))
        figures[f"{kind}_headroom"] = (sum(each[HULL] for each in hulls) - reached) / len(hulls)
    show("methods", rows)
    write_result(NAME, figures, {"methods": rows}, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
