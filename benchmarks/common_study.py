"""Does a common part pay: routers whose shared change has a part that is open for every task, beside the one without.

    python benchmarks/common_study.py [--tasks N] [--quick]

On validation tasks, since it decides what ships: clean lists and renderings, in one pass and in several. The router
without is read from the history (benchmarks/before.py), those with are the one that ships and two of other seeds, which
are trained first where they are not there (.build/routers). Intervals are clustered by domain.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import before
from beyond import CLEAN
from beyond_scores import SEEDS, Look, over_seeds
from common import ROOT, SCRATCH, Rows, machine, show, write_result
from signs_tasks import LIBRARY, PACKAGES, Scores, live, shared_out, tasks, trained
from sources_experts import OUTSIDE
from sources_experts_scores import router_folder

sys.path.insert(0, str(ROOT / "tools" / "router"))

from train import N_STEPS, train

from smatter.methods.router import RoutedSettings, fit_of
from smatter.route.opening import route_task
from smatter.scores.intervals import clustered_interval

NAME = "common_study"
MIXES = {"one pass": "weights", "six passes": "predictions", "seven passes": "both"}


def score(routers: Path, name: str, index: int) -> Scores:
    """A task by the router without a common part, and by those with."""
    episode = tasks(name).episode(index)
    look = Look(live(LIBRARY), episode)
    scores: Scores = {"domain": int(episode.query.domains.min())}
    asked = {"without seed 0": before.PLAIN_ROUTER}
    asked |= {f"with seed {seed}": router_folder(routers, seed) for seed in SEEDS}
    for label, folder in asked.items():
        router = trained(folder)
        router.check_fits(look.network)
        told = route_task(look.network, look.task.objective, router)
        for passes, mix in MIXES.items():
            fit = fit_of(look.network, look.task, RoutedSettings(router=router, mix=mix), told)
            what, _, seed = label.partition(" ")
            scores |= look.figures_of(f"{what}, {passes} {seed}", look.voices(fit))
    return scores


def row_of(some: Sequence[Scores], what: str, passes: str, seed: str) -> dict[str, object]:
    """What a common part gains on some tasks."""
    suffix = f" seed {seed}" if seed else ""
    peer = f"without, {passes}"

    def gain(prefix: str) -> list[float]:
        return [
            over_seeds(each, f"{prefix}with, {passes}{suffix}") - over_seeds(each, f"{prefix}{peer}") for each in some
        ]

    domains = [each["domain"] for each in some]
    interval = clustered_interval(gain(""), domains)
    return {
        "lists": what, "passes": passes, "seed": seed or "mean", "tasks": len(some),
        "without": sum(over_seeds(each, peer) for each in some) / len(some),
        "gain": interval.mean, "gain_low": interval.low, "gain_high": interval.high,
        "nll_gain": clustered_interval(gain("nll "), domains).mean,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=40, help="tasks of each clean list, and half of it of renderings")
    parser.add_argument("--quick", action="store_true", help="one task of each list")
    options = parser.parse_args()
    begin = time.perf_counter()
    before.restore()
    routers, n_steps = (SCRATCH / "routers", 3) if options.quick else (ROOT / ".build" / "routers", N_STEPS)
    routers.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS[1:]:
        train(router_folder(routers, seed), seed, n_steps=n_steps)
    n_tasks = 1 if options.quick else options.tasks
    jobs = [(f"validation-{name}", index) for name in CLEAN for index in range(n_tasks)]
    jobs += [(f"validation-{name}", index) for name in OUTSIDE for index in range(max(1, n_tasks // 2))]
    found: dict[str, list[Scores]] = {}
    for (name, _), scores in shared_out("tasks", partial(score, routers), jobs, keep=True):
        found.setdefault(name.removeprefix("validation-"), []).append(scores)
    rows: Rows = []
    groups = {"clean": CLEAN, "renderings": OUTSIDE} | {name: (name,) for name in OUTSIDE}
    for what, lists in groups.items():
        some = [each for name in lists for each in found[name]]
        seeds = ("", *map(str, SEEDS)) if len(lists) > 1 else ("",)
        rows += [row_of(some, what, passes, seed) for passes in MIXES for seed in seeds]
    show("what a common part gains", rows)
    figures: dict[str, float] = {"tasks": len(jobs)}
    for row in rows:
        if row["lists"] in ("clean", "renderings") and row["seed"] == "mean":
            name = f"common_gain_{row['lists']}_{row['passes'].replace(' ', '_')}"
            figures |= {name: row["gain"], f"{name}_low": row["gain_low"], f"{name}_high": row["gain_high"]}
    write_result(NAME, figures, {"gains": rows}, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
