"""A trained router on Signs in its modes, beside the solver, evidence routing, single sources and the plain average.

    python benchmarks/router.py ROUTER [--stage validation|test] [--tasks N] [--quick]

Tasks come from the frozen lists: inside the domains that sources learnt from, from domains held out as a whole, with
classes of two or three domains at once, and in renderings that no source has seen. The weak ones have one or two
examples of each class, or wrong labels.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from common import Rows, machine, show, write_result
from signs_tasks import KINDS, PACKAGES, Scores, live, shared_out, tasks, trained

from smatter.adaptation.episodes import episode_rows, prepared_support
from smatter.adaptation.evidence import gather_evidence
from smatter.adaptation.identity import Task
from smatter.adaptation.modes import ModeSettings, Routed, route_task
from smatter.adaptation.solver import SolverSettings, solve_live
from smatter.compose.mixture import Mixture
from smatter.scores.intervals import mean_interval, paired_difference

NAME = "router"
SETS = {kind: [f"{kind}-{shots}" for shots in (1, 2, 5)] for kind in KINDS}
SETS["outside"] = [f"outside-{rendering}" for rendering in ("inverted", "outline", "textured", "rotated")]
SETS["weak"] = [f"{kind}-{form}" for kind in KINDS for form in (1, 2, "noise")]
ROUTED = {
    "no_adapt": ModeSettings(evidence=False),
    "with_evidence": ModeSettings(),
    "refined": ModeSettings("gradient-free"),
}
METHODS = (
    *ROUTED, "with_evidence_without_experts", "solver", "evidence_rule", "best_by_support", "best_hindsight", "uniform",
    "base",
)  # fmt: skip


def score(folder: Path, name: str, index: int) -> Scores:
    """Accuracy of every method on one task, in percent, and the passes that it took."""
    network, router = live(), trained(folder)
    names = network.library.names
    episode = tasks(name).episode(index)
    queries = episode_rows(network, episode)
    support = Task.of(network, prepared_support(network, episode)).support
    scores: Scores = {}

    def accuracy() -> float:
        return 100 * queries.accuracy(network.features(queries.inputs))

    def record(method: str, adapt: Callable[[], object]) -> None:
        """Leaves the network adapted, scores it, counts."""
        before = network.n_forwards, network.n_backwards
        adapt()
        scores[f"forwards {method}"] = network.n_forwards - before[0]
        scores[f"backwards {method}"] = network.n_backwards - before[1]
        scores[method] = accuracy()

    routed: dict[str, Routed] = {}
    for method, settings in ROUTED.items():
        record(method, lambda m=method, s=settings: routed.update({m: route_task(network, support, router, s)}))
    record("with_evidence_without_experts", lambda: network.compose(routed["with_evidence"].mixture))
    record("solver", lambda: solve_live(network, network.rows(support), SolverSettings()))
    evidence = gather_evidence(network, network.rows(support))
    record("evidence_rule", lambda: network.compose(evidence.mixture))
    record("uniform", lambda: network.compose(Mixture.of(dict.fromkeys(names, 1 / len(names)))))
    for source in names:
        record(f"source {source}", lambda source=source: network.compose(Mixture.of({source: 1.0})))
    scores["best_by_support"] = scores[f"source {evidence.best}"]
    scores["best_hindsight"] = max(scores[f"source {source}"] for source in names)
    scores["base"] = scores[f"source {network.library.manifest.base}"]
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("router", type=Path, help="its folder")
    parser.add_argument("--stage", choices=("validation", "test"), default="test")
    parser.add_argument("--quick", action="store_true", help="four tasks of each list, about a minute")
    parser.add_argument("--tasks", type=int, default=100, help="tasks of each list")
    options = parser.parse_args()
    n_tasks = 4 if options.quick else options.tasks
    begin = time.perf_counter()
    lists = sorted({name for names in SETS.values() for name in names})
    jobs = [(options.router, f"{options.stage}-{name}", index) for name in lists for index in range(n_tasks)]
    found: dict[str, list[Scores]] = {}
    for (_, name, _), scores in shared_out("tasks", score, jobs):
        found.setdefault(name.removeprefix(f"{options.stage}-"), []).append(scores)
    rows: Rows = []
    figures: dict[str, float] = {"tasks_per_list": n_tasks}
    for kind, names in SETS.items():
        some = [each for name in names for each in found[name]]
        for method in METHODS:
            mean = mean_interval([each[method] for each in some])
            row = {"kind": kind, "method": method, "tasks": len(some), "accuracy": mean.mean, "half": mean.half}
            for peer in ("solver", "evidence_rule", "uniform", "best_hindsight"):
                against = paired_difference([each[method] for each in some], [each[peer] for each in some])
                row |= {f"minus_{peer}": against.mean, f"minus_{peer}_half": against.half}
            rows.append(row)
            figures[f"{kind}_{method}"] = mean.mean
        gain = [each["with_evidence"] - each["with_evidence_without_experts"] for each in some]
        figures[f"{kind}_experts_gain"] = sum(gain) / len(gain)
    figures["inside_experts_gain"] = sum(figures[f"{kind}_experts_gain"] for kind in KINDS) / len(KINDS)
    everything = [each for scores in found.values() for each in scores]
    passes = {
        method: sum(each[f"forwards {method}"] + each[f"backwards {method}"] for each in everything) / len(everything)
        for method in (*ROUTED, "solver")
    }
    figures["forward_ratio_to_solver"] = passes["no_adapt"] / passes["solver"]
    figures |= {f"passes_{method}": number for method, number in passes.items()}
    gradients = {m: sum(each[f"backwards {m}"] for each in everything) for m in ("refined", "solver")}
    figures["gradient_ratio_refined_to_solver"] = gradients["refined"] / gradients["solver"]
    by_list = [
        {"list": name, **{method: mean_interval([each[method] for each in some]).mean for method in METHODS}}
        for name, some in found.items()
    ]
    show("methods", rows)
    show("lists", by_list)
    name = NAME if options.stage == "test" else f"{NAME}_validation"
    tables = {"methods": rows, "lists": by_list}
    write_result(name, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
