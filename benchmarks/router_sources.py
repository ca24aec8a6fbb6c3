"""Sources that come and go, and what a router's word costs and gives away: on Signs, with a trained router.

    python benchmarks/router_sources.py [ROUTER] [--study LIBRARY] [--tasks N] [--quick]

*Removed*: each specialist is taken away, from the router and from the solver. *Irrelevant*: sixteen random
perturbations of the base are added. *Study*: sixteen sources, among them twins of two specialists and one of noise
(`make sources-study`). *Private*: weights released under differential privacy. Beside all of them stands the plain
average of all sources' predictions, which needs no router but a pass for each source. Tasks come from the frozen test
lists; nothing is chosen here. Last the time of routing beyond encoding, against the numbers of sources and modules.
"""

import argparse
import shutil
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from beyond_scores import Look
from common import ROOT, SCRATCH, Rows, interleave, machine, show, write_result
from signs_tasks import KINDS, LIBRARY, PACKAGES, Scores, fitted, live, shared_out, tasks, trained

sys.path.insert(0, str(ROOT / "tests"))

from toy_suite import add_noise_sources

from smatter.compose.mixture import Mixture
from smatter.library.library import open_library
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods.private import PrivateSettings, private
from smatter.methods.router import RoutedSettings, router
from smatter.methods.solver import SolverSettings, solver
from smatter.route.descriptor import N_MOMENTS
from smatter.route.encode import ClassStatistics
from smatter.route.evidence import gather_evidence
from smatter.route.router import Router
from smatter.route.store import TrainedRouter
from smatter.scores.intervals import mean_interval, paired_difference
from smatter.settings.training import RouterSettings
from smatter.tasks.open import SHIPPED

NAME = "router_sources"
N_IRRELEVANT = 16
EPSILONS = (1.0, 4.0, 8.0)
NO_NOISE = 1e6
"""Hardly any noise: what is left is that examples are routed one by one."""

TWINS, NOISE_SOURCE = {"latin": "latin-twin", "emoji": "emoji-twin"}, "noise"
TOLD, UNTOLD = RoutedSettings(), RoutedSettings(evidence=False)


def add_irrelevant(folder: Path, library: Path = LIBRARY) -> None:
    """A library with random perturbations of its base, each tensor by half its own spread."""
    if folder.exists():
        return
    work = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(library, work)
    add_noise_sources(open_library(work), work, N_IRRELEVANT)
    work.rename(folder)


class Scorer:
    """One task: accuracies of what a network is made into, in percent."""

    def __init__(self, folder: Path, name: str, index: int) -> None:
        self.router = trained(folder)
        self.router.check_fits(live())
        self.episode = tasks(name).episode(index)

    def on(self, network: LiveMixture) -> Task:
        """The examples as a network's library sees them."""
        return Task.of(network, prepared_support(network, self.episode))

    def routed(self, network: LiveMixture, settings: RoutedSettings) -> tuple[float, dict[str, float]]:
        """By the router: accuracy and weights."""
        fit = fitted(network, self.on(network), router, replace(settings, router=self.router))
        return self.accuracy(network), fit.mixture.mean_weights

    def released(self, network: LiveMixture, epsilon: float) -> float:
        """By the router's private weights."""
        fitted(network, self.on(network), private, PrivateSettings(self.router, epsilon))
        return self.accuracy(network)

    def solved(self, network: LiveMixture) -> float:
        """By the solver."""
        fitted(network, self.on(network), solver, SolverSettings())
        return self.accuracy(network)

    def by_evidence(self, network: LiveMixture) -> float:
        """By evidence routing."""
        network.compose(gather_evidence(network, self.on(network).objective).mixture)
        return self.accuracy(network)

    def predicted(self, network: LiveMixture) -> float:
        """By the plain average of all sources' predictions."""
        look, names = Look(network, self.episode), network.library.names
        return look.right(look.plain(dict.fromkeys(names, 1 / len(names))).logits)

    def accuracy(self, network: LiveMixture) -> float:
        """As the network is now."""
        queries = episode_queries(network, self.episode)
        return 100 * queries.accuracy(network.read(queries))


def score_removed(folder: Path, name: str, index: int) -> Scores:
    """Router and solver with all sources, and without each of them but the base."""
    task, everyone = Scorer(folder, name, index), live().library
    scores = {}
    for source in ("", *(each for each in everyone.names if each != everyone.manifest.base)):
        network = live(without=source)
        scores |= {f"router {source}": task.routed(network, TOLD)[0], f"solver {source}": task.solved(network)}
        scores[f"predictions {source}"] = task.predicted(network)
    return scores


def score_added(folder: Path, study: Path, irrelevant: Path, name: str, index: int) -> Scores:
    """The router where there are more sources than it was trained with."""
    task = Scorer(folder, name, index)
    scores = {}
    for case, library in {"six": LIBRARY, "irrelevant": irrelevant, "study": study}.items():
        if library.exists():
            network = live(library)
            scores[f"{case} evidence rule"] = task.by_evidence(network)
            scores[f"{case} predictions"] = task.predicted(network)
            for label, settings in (("told", TOLD), ("untold", UNTOLD)):
                scores[f"{case} {label}"], weights = task.routed(network, settings)
                if case == "study":
                    scores |= {f"{label} {name}": weights.get(name, 0.0) for name in network.library.names}
    return scores


def score_private(folder: Path, name: str, index: int) -> Scores:
    """Private weights beside those that are not, without experts."""
    task, network = Scorer(folder, name, index), live()
    fit = router(network, task.on(network), replace(UNTOLD, router=task.router))
    network.compose(fit.mixture)
    scores = {"not private": task.accuracy(network)}
    average = dict.fromkeys(network.library.names, 1 / len(network.library.names))
    network.compose(Mixture.of(average))
    scores |= {"plain average": task.accuracy(network), "predictions": task.predicted(network)}
    for epsilon in (*EPSILONS, NO_NOISE):
        scores[f"epsilon {epsilon:g}"] = task.released(network, epsilon)
    return scores


def timed_rows(router: TrainedRouter, rounds: int) -> Rows:
    """Milliseconds of one routing against numbers of sources and modules; features are given."""
    n_features, n_groups = router.statistics[0].prototypes.shape[1], len(router.statistics)
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(25, n_features, generator=generator), torch.arange(25) % 5
    cases, rows = {}, []
    sizes = [(n_sources, 1) for n_sources in (2, 6, 16, 64, 256)] + [(6, n_modules) for n_modules in (8, 64, 512)]
    for n_sources, n_modules in sizes:
        settings = RouterSettings(tying="per-module" if n_modules > 1 else "global")
        made = Router(settings, router.statistics, n_modules, torch.ones(2, N_MOMENTS), generator).requires_grad_(False)
        descriptors = torch.randn(n_sources, n_groups, N_MOMENTS, generator=generator)
        losses = torch.rand(n_sources, 25, generator=generator)

        def route(made: Router = made, descriptors: torch.Tensor = descriptors, losses: torch.Tensor = losses) -> None:
            made(ClassStatistics.of(features, labels, 5), descriptors, losses)

        cases[f"{n_sources} sources, {n_modules} rows"] = route
    timings = interleave(cases, rounds)
    for (n_sources, n_modules), case in zip(sizes, cases, strict=True):
        rows.append({"sources": n_sources, "rows_of_weights": n_modules, "ms": 1e3 * timings.median(case)})
    return rows


def compared(rows: Rows, found: list[Scores], label: str, ours: str, peer: str) -> float:
    """Append one paired difference; its mean."""
    against = paired_difference([each[ours] for each in found], [each[peer] for each in found])
    mean = mean_interval([each[ours] for each in found])
    rows.append(
        {"case": label, "tasks": len(found), "accuracy": mean.mean, "minus": peer, "difference": against.mean,
         "half": against.half}
    )  # fmt: skip
    return against.mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("router", type=Path, nargs="?", default=SHIPPED / "signs-router", help="its folder")
    parser.add_argument("--study", type=Path, default=ROOT / ".build" / "signs-study", help="sixteen sources")
    parser.add_argument("--tasks", type=int, default=40, help="tasks of each list")
    parser.add_argument("--quick", action="store_true", help="one task of each list")
    options = parser.parse_args()
    n_tasks = 1 if options.quick else options.tasks
    begin = time.perf_counter()
    irrelevant = (SCRATCH if options.quick else ROOT / ".build") / "signs-irrelevant"
    irrelevant.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    add_irrelevant(irrelevant)

    def scores(label: str, work: object, shots: int) -> list[Scores]:
        jobs = [(f"test-{kind}-{shots}", index) for kind in KINDS for index in range(n_tasks)]
        return [each for _, each in shared_out(label, work, jobs, keep=True)]  # type: ignore[arg-type]

    figures: dict[str, float] = {"tasks_per_list": n_tasks}
    rows: Rows = []
    removed = scores("removed", partial(score_removed, options.router), 5)
    more = []
    for source in (name for name in live().library.names if name != live().library.manifest.base):
        compared(rows, removed, f"router without {source}", f"router {source}", "router ")
        compared(rows, removed, f"solver without {source}", f"solver {source}", "solver ")
        compared(rows, removed, f"predictions without {source}", f"predictions {source}", f"router {source}")
        for each in removed:
            each["lost"] = each["router "] - each[f"router {source}"]
            each["lost by the solver"] = each["solver "] - each[f"solver {source}"]
        label = f"the router's loss without {source}"
        more.append(compared(rows, removed, label, "lost", "lost by the solver"))
    compared(rows, removed, "predictions of all six", "predictions ", "router ")
    figures["removed_loses_more_than_solver_mean"] = sum(more) / len(more)
    figures["removed_loses_more_than_solver_most"] = max(more)
    added = scores("added", partial(score_added, options.router, options.study, irrelevant), 2)
    for label in ("told", "untold"):
        figures[f"irrelevant_cost_{label}"] = -compared(
            rows, added, f"sixteen irrelevant, {label}", f"irrelevant {label}", f"six {label}"
        )
    compared(rows, added, "sixteen irrelevant, evidence rule", "irrelevant evidence rule", "six evidence rule")
    for case, what in {"six": "all six", "irrelevant": "sixteen irrelevant", "study": "sixteen of the study"}.items():
        if f"{case} predictions" in added[0]:
            peer = f"{case} told"
            figures[f"{case}_predictions_minus_router"] = compared(
                rows, added, f"{what}, predictions", f"{case} predictions", peer
            )
    if options.study.exists():
        for label in ("told", "untold"):
            compared(rows, added, f"sixteen of the study, {label}", f"study {label}", f"six {label}")
            figures[f"study_minus_evidence_rule_{label}"] = compared(
                rows, added, f"sixteen of the study, {label}", f"study {label}", "study evidence rule"
            )
            figures[f"noise_weight_{label}"] = mean_interval([each[f"{label} {NOISE_SOURCE}"] for each in added]).mean
            for source, twin in TWINS.items():
                pair = [(each[f"{label} {source}"], each[f"{label} {twin}"]) for each in added]
                both = [one + other for one, other in pair]
                figures[f"{source}_and_twin_weight_{label}"] = sum(both) / len(both)
                figures[f"{source}_share_of_both_{label}"] = sum(one for one, _ in pair) / sum(both)
    private = scores("private", partial(score_private, options.router), 5)
    for case in ("plain average", "predictions", *(f"epsilon {epsilon:g}" for epsilon in (*EPSILONS, NO_NOISE))):
        figures[f"private_{case.replace(' ', '_')}"] = compared(rows, private, case, case, "not private")
    timed = timed_rows(trained(options.router), 3 if options.quick else 300)
    figures |= {f"routing_ms_{row['sources']}_sources": row["ms"] for row in timed if row["rows_of_weights"] == 1}
    show("sources that come and go", rows)
    show("routing beyond encoding", timed)
    tables = {"comparisons": rows, "time": timed}
    write_result(NAME, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
