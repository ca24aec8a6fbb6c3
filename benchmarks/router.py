"""A trained router on Signs in its modes, beside the solver, evidence routing, single sources and the plain average.

    python benchmarks/router.py [ROUTER] [--stage validation|test] [--tasks N] [--quick]

Tasks come from the frozen lists: inside the domains that sources learnt from, from domains held out as a whole, with
classes of two or three domains at once, and in renderings that no source has seen. The weak ones have one or two
examples of each class, or wrong labels. Averages of predictions, with equal weights and with the router's, stand beside
the mixtures of weights; they take a pass of each source for every query.

Five more routers are trained, each without one of the specialists, and one with all (.build/apart): what is the
specialist worth on its own domains, and how much of that comes back when it is added to a router that never saw it?
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from common import ROOT, SCRATCH, Rows, machine, show, write_result
from signs_tasks import (
    KINDS,
    PACKAGES,
    Scores,
    by_draw,
    fitted,
    live,
    right,
    shared_out,
    tasks,
    train_on_signs,
    trained,
    weighed,
)

sys.path.insert(0, str(ROOT / "tools" / "common"))
sys.path.insert(0, str(ROOT / "tools" / "sources"))

import torch
from plan import SPECIALISTS
from renderings import RENDERINGS

from smatter.compose.mixture import Mixture
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries
from smatter.live.task import Task
from smatter.methods import Fit
from smatter.methods.refined import RefinedSettings, refined
from smatter.methods.router import RoutedSettings, router
from smatter.methods.solver import SolverSettings, solver
from smatter.route.encode import encode
from smatter.route.evidence import gather_evidence
from smatter.scores.intervals import mean_interval, paired_difference
from smatter.settings.training import MetaSettings
from smatter.tasks.open import SHIPPED

NAME = "router"
SETS = {kind: [f"{kind}-{shots}" for shots in (1, 2, 5)] for kind in KINDS}
SETS["outside"] = [f"outside-{rendering}" for rendering in RENDERINGS]
SETS["weak"] = [f"{kind}-{form}" for kind in KINDS for form in (1, 2, "noise")]
ROUTED = {
    "no_adapt": (router, RoutedSettings(evidence=False)),
    "with_evidence": (router, RoutedSettings()),
    "refined": (refined, RefinedSettings()),
}
WITHOUT_EXPERTS = "with_evidence_without_experts"
METHODS = (
    *ROUTED, WITHOUT_EXPERTS, "solver", "evidence_rule", "best_by_support", "best_hindsight", "uniform",
    "base", "predictions_equal", "predictions_router",
)  # fmt: skip
PER_TASK = (*ROUTED, "solver", "best_hindsight")
"""Accuracies that the result holds for each task, so that regrets can be looked at one by one."""

APART_STEPS, ALL = 200, "all"
LEAST_GAIN = 2.0
"""What a specialist must be worth, in points, to ask how much of it comes back."""

Found = Mapping[str, Sequence[Scores]]


def score(folder: Path, apart: Path, name: str, index: int) -> Scores:
    """Accuracy of every method on one task, in percent, and the passes that it took."""
    network = live()
    names = network.library.names
    episode = tasks(name).episode(index)
    queries = episode_queries(network, episode)
    task = Task.of(network, prepared_support(network, episode))
    domains = sorted(set(episode.query.domains.tolist()))
    scores: Scores = {"domain": domains[0] if len(domains) == 1 else -1}

    def record(method: str, adapt: Callable[[], object]) -> None:
        """Leaves the network adapted, scores it, counts."""
        before = network.n_forwards, network.n_backwards
        adapt()
        scores[f"forwards {method}"] = network.n_forwards - before[0]
        scores[f"backwards {method}"] = network.n_backwards - before[1]
        scores[method] = _accuracy(network, queries)

    fits: dict[str, Fit] = {}
    for label, (way, settings) in ROUTED.items():
        asking = replace(settings, router=trained(folder))
        record(label, lambda n=label, w=way, s=asking: fits.update({n: fitted(network, task, w, s)}))
    record(WITHOUT_EXPERTS, lambda: network.compose(fits["with_evidence"].mixture))
    record("solver", lambda: fitted(network, task, solver, SolverSettings()))
    evidence = gather_evidence(network, task.objective)
    record("evidence_rule", lambda: network.compose(evidence.mixture))
    record("uniform", lambda: network.compose(Mixture.of(dict.fromkeys(names, 1 / len(names)))))
    logits = []
    for source in names:
        record(f"source {source}", lambda source=source: network.compose(Mixture.of({source: 1.0})))
        logits.append(queries.logits(network.read(queries)))
    found = fits["with_evidence"].mixture.mean_weights
    for label, weights in (("equal", [1.0] * len(names)), ("router", [found.get(source, 0.0) for source in names])):
        mixed = torch.tensordot(torch.tensor(weights), torch.stack(logits), 1)
        scores[f"predictions_{label}"] = right(queries, mixed)
    scores["best_by_support"] = scores[f"source {evidence.best}"]
    scores["best_hindsight"] = max(scores[f"source {source}"] for source in names)
    scores["base"] = scores[f"source {network.library.manifest.base}"]
    domain = tasks(name).sampler.suite.domains[domains[0]].name
    for source, own in SPECIALISTS.items():
        if len(domains) == 1 and domain in own:
            scores |= _unseen(apart, source, task, queries)
    return scores


def _accuracy(network: LiveMixture, queries: Queries) -> float:
    return 100 * queries.accuracy(network.read(queries))


def _unseen(apart: Path, source: str, task: Task, queries: Queries) -> Scores:
    """Routers that know a source, that never saw it, and that never saw it until now, on a task of its domains."""
    told = encode(live(), task.objective, live().library.names)
    cases = {"known": (ALL, ""), "missing": (source, source), "added": (source, "")}
    scores = {}
    for case, (name, without) in cases.items():
        network = live(without=without)
        for label, with_evidence in (("no_adapt", False), ("with_evidence", True)):
            weighed(network, trained(apart / name), told, with_evidence)
            scores[f"{case} {label} {source}"] = _accuracy(network, queries)
    return scores


def train_apart(folder: Path, without: str, n_steps: int) -> None:
    """A router that never saw a source, or saw all."""
    settings = MetaSettings(n_steps=n_steps, validate_every=min(100, n_steps))
    train_on_signs(settings, folder / without, "" if without == ALL else without)


def method_rows(found: Found) -> Rows:
    """Every method on every kind of task, and its paired difference to some of them."""
    rows: Rows = []
    for kind, names in SETS.items():
        n_tasks = sum(len(found[name]) for name in names)
        for method in METHODS:
            ours = by_draw(found, names, method)
            mean = mean_interval(ours)
            row = {"kind": kind, "method": method, "tasks": n_tasks, "draws": len(ours), "accuracy": mean.mean}
            row["half"] = mean.half
            for peer in ("solver", "evidence_rule", "uniform", "best_hindsight", WITHOUT_EXPERTS):
                against = paired_difference(ours, by_draw(found, names, peer))
                row |= {f"minus_{peer}": against.mean, f"minus_{peer}_half": against.half}
            rows.append(row)
    return rows


def domain_rows(found: Found) -> Rows:
    """Each domain alone: the router with evidence beside the best source by support."""
    by_domain: dict[int, list[Scores]] = defaultdict(list)
    for name in (*SETS["id"], *SETS["ood"]):
        for each in found[name]:
            by_domain[int(each["domain"])].append(each)
    suite = tasks("validation-id-1").sampler.suite
    rows: Rows = []
    for domain, some in sorted(by_domain.items()):
        ours, best = ([each[method] for each in some] for method in ("with_evidence", "best_by_support"))
        against = paired_difference(ours, best)
        rows.append(
            {
                "domain": suite.domains[domain].name, "tasks": len(some), "with_evidence": sum(ours) / len(ours),
                "best_by_support": sum(best) / len(best), "difference": against.mean, "half": against.half,
            }
        )  # fmt: skip
    return rows


def unseen_rows(found: Found) -> Rows:
    """Each specialist: what knowing it is worth on its domains, and how much of that comes back when it is added."""
    rows: Rows = []
    for source in SPECIALISTS:
        for label in ("no_adapt", "with_evidence"):
            keys = [f"{case} {label} {source}" for case in ("known", "missing", "added")]
            some = [each for name in SETS["id"] for each in found[name] if keys[0] in each]
            if not some:
                continue
            known, missing, added = ([each[key] for each in some] for key in keys)
            gain, back = paired_difference(known, missing), paired_difference(added, missing)
            rows.append(
                {
                    "source": source, "mode": label, "tasks": len(some), "known": mean_interval(known).mean,
                    "gain": gain.mean, "gain_half": gain.half, "comes_back": back.mean, "comes_back_half": back.half,
                    "recovered": back.mean / gain.mean if gain.mean else 0.0,
                }
            )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("router", type=Path, nargs="?", default=SHIPPED / "signs-router", help="its folder")
    parser.add_argument("--stage", choices=("validation", "test"), default="test")
    parser.add_argument("--quick", action="store_true", help="two tasks of each list, four steps of training")
    parser.add_argument("--tasks", type=int, default=100, help="tasks of each list, three quarters of it outside")
    options = parser.parse_args()
    n_tasks, n_steps = (2, 4) if options.quick else (options.tasks, APART_STEPS)
    begin = time.perf_counter()
    apart = (SCRATCH if options.quick else ROOT / ".build") / "apart"
    apart.mkdir(parents=True, exist_ok=True)
    trainings = [(apart, without, n_steps) for without in (ALL, *SPECIALISTS)]
    for _ in shared_out("training", train_apart, trainings, 1):
        pass
    lists = sorted({name for names in SETS.values() for name in names})
    jobs = [
        (options.router, apart, f"{options.stage}-{name}", index)
        for name in lists
        for index in range(-(-3 * n_tasks // 4) if name in SETS["outside"] else n_tasks)
    ]
    found: dict[str, list[Scores]] = {}
    for (_, _, name, _), scores in shared_out("tasks", score, jobs, keep=True):
        found.setdefault(name.removeprefix(f"{options.stage}-"), []).append(scores)
    rows, domains, unseen = method_rows(found), domain_rows(found), unseen_rows(found)
    figures: dict[str, float] = {"tasks_per_list": n_tasks}
    figures |= {f"{row['kind']}_{row['method']}": row["accuracy"] for row in rows}
    for kind, names in SETS.items():
        gains = [each["with_evidence"] - each[WITHOUT_EXPERTS] for name in names for each in found[name]]
        figures[f"{kind}_experts_gain"] = sum(gains) / len(gains)
    figures["inside_experts_gain"] = sum(figures[f"{kind}_experts_gain"] for kind in KINDS) / len(KINDS)
    everything = [each for scores in found.values() for each in scores]

    def passes(method: str, *directions: str) -> float:
        return sum(each[f"{way} {method}"] for each in everything for way in directions) / len(everything)

    for method in (*ROUTED, "solver"):
        figures[f"passes_{method}"] = passes(method, "forwards", "backwards")
    figures["forward_ratio_to_solver"] = figures["passes_no_adapt"] / figures["passes_solver"]
    figures["gradient_ratio_refined_to_solver"] = passes("refined", "backwards") / passes("solver", "backwards")
    figures["domains_below_best_by_support"] = sum(row["difference"] + row["half"] < 0 for row in domains)
    for label, figure in (("with_evidence", ""), ("no_adapt", "_no_adapt")):
        shares = [row["recovered"] for row in unseen if row["mode"] == label and row["gain"] > LEAST_GAIN]
        figures[f"unseen_sources_counted{figure}"] = len(shares)
        if shares:
            figures[f"unseen_source_recovered{figure}"] = sum(shares) / len(shares)
    by_list = [
        {"list": name, **{method: mean_interval([each[method] for each in some]).mean for method in METHODS}}
        for name, some in found.items()
    ]
    per_task = [{"list": name} | {m: [each[m] for each in some] for m in PER_TASK} for name, some in found.items()]
    show("methods", rows)
    show("lists", by_list)
    show("domains", domains)
    show("a source that was not there in training", unseen)
    name = NAME if options.stage == "test" else f"{NAME}_validation"
    tables = {"methods": rows, "lists": by_list, "domains": domains, "unseen": unseen, "tasks": per_task}
    write_result(name, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
