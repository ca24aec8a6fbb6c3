"""Sources that mix and experts that differ: what ships, beside the library and router before it.

    python benchmarks/sources_experts.py [--stage validation|test] [--tasks N] [--quick]

Mixing loss: what an average of the sources' predictions is above the average of their weights, at the same weights. An
expert is needed where closing it alone, so that others may stand in, costs points on some rendering. Experts are
weighed by the router's gate and by evidence; "gate alone" is without that. Renderings are left out in turn: a router
that never saw one is judged on it. Evidence and the plain average are also given the experts' change as sources of
their own. Beside them stand networks that one would train instead (`make sources-study`): one on all that any
specialist learns from, and the same in all renderings, alone and as a source. Two more seeds of the router and the
eight that leave one out are trained first where they are not there (.build/routers); the old library is taken from the
history. Intervals are clustered by domain.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import before
from common import ROOT, SCRATCH, Rows, machine, show, write_result
from signs_tasks import KINDS, PACKAGES, Scores, shared_out
from sources_experts_scores import LIBRARIES, PEER_NAMES, PEERS, RENDERINGS, SEEDS, router_folder, score

sys.path.insert(0, str(ROOT / "tools" / "router"))

from mixing_study import gain_rows
from train import N_STEPS, settings, train

from smatter.route.store import read_router
from smatter.scores.intervals import Interval, clustered_interval
from smatter.tasks.open import SHIPPED

NAME = "sources_experts"
CLEAN = tuple(f"{kind}-{shots}" for kind in KINDS for shots in (1, 2, 5))
OUTSIDE = tuple(f"outside-{name}" for name in RENDERINGS)
COST = 0.5
"""What closing an expert must cost on some rendering, in points, for it to count as needed."""

Found = dict[str, list[Scores]]


def over(found: Found, lists: Sequence[str], value: Callable[[Scores], float]) -> Interval:
    """The mean of a value over some lists' tasks; tasks of one domain are alike."""
    some = [each for name in lists for each in found[name]]
    return clustered_interval([value(each) for each in some], [each["domain"] for each in some])


def less(first: str, second: str) -> Callable[[Scores], float]:
    """A difference, task by task."""
    return lambda each: each[first] - each[second]


def over_seeds(first: str, second: str) -> Callable[[Scores], float]:
    """A difference, task by task, averaged over the seeds."""
    return lambda each: sum(each[f"{first} seed {s}"] - each[f"{second} seed {s}"] for s in SEEDS) / len(SEEDS)


def put(figures: dict[str, float], name: str, interval: Interval) -> None:
    """A figure with its interval."""
    figures |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def needed_rows(found: Found, seed: int) -> Rows:
    """What closing each expert alone costs on each rendering and on clean tasks."""
    n_experts = settings().router.n_experts
    rows: Rows = []
    for expert in range(n_experts):
        for name in (*OUTSIDE, "clean"):
            lists = CLEAN if name == "clean" else (name,)
            cost = over(found, lists, less(f"experts seed {seed}", f"closed {expert} seed {seed}"))
            weight = over(found, lists, lambda each, e=expert: each[f"alpha {e} seed {seed}"])
            rows.append(
                {
                    "seed": seed, "expert": expert, "tasks": name, "weight": weight.mean, "cost": cost.mean,
                    "cost_low": cost.low, "cost_high": cost.high,
                }
            )  # fmt: skip
    return rows


def rendering_rows(found: Found) -> Rows:
    """Accuracy on each rendering: with and without experts, never having seen it, and of peers with the same delta."""
    columns = {
        "without_experts": "no experts seed 0", "with_experts": "experts seed 0", "left_out": "left out",
        "gate_alone": "gate alone seed 0", "left_out_gate_alone": "left out, gate alone",
        "evidence": "weights evidence", "evidence_with_delta": "evidence with the delta",
        "evidence_with_each": "evidence with each expert", "uniform": "weights equal",
        "uniform_with_delta": "uniform with the delta", "predictions_equal": "predictions equal",
        "predictions_router": "predictions router", "best_in_hindsight": "best in hindsight",
        "one_for_all": "one-for-all", "rendered": "rendered", "evidence_with_rendered": "evidence with rendered",
        "left_out_evidence_with_delta": "left out, evidence with the delta",
        "left_out_evidence_with_each": "left out, evidence with each expert", "old_router": "old experts",
    }  # fmt: skip
    rows: Rows = []
    for name in OUTSIDE:
        row: dict[str, object] = {"rendering": name.removeprefix("outside-"), "tasks": len(found[name])}
        row |= {label: over(found, (name,), lambda each, k=key: each[k]).mean for label, key in columns.items()}
        gains = {"gain": over_seeds("experts", "no experts"), "gain_left_out": less("left out", "left out, no experts")}
        for label, value in gains.items():
            interval = over(found, (name,), value)
            row |= {label: interval.mean, f"{label}_low": interval.low, f"{label}_high": interval.high}
        rows.append(row)
    return rows


def mixing_rows(found: Found) -> Rows:
    """Weights against predictions at the same weights, of what ships and of what was before."""
    rows: Rows = []
    for lists, what in ((CLEAN, "clean"), (OUTSIDE, "renderings")):
        for label in ("equal", "evidence", "router"):
            for version, prefix in (("new", ""), ("old", "old ")):
                ours, peer = f"{prefix}weights {label}", f"{prefix}predictions {label}"
                loss = over(found, lists, less(peer, ours))
                rows.append(
                    {
                        "tasks": what, "weights_are": label, "library": version,
                        "weights": over(found, lists, lambda each, k=ours: each[k]).mean,
                        "predictions": over(found, lists, lambda each, k=peer: each[k]).mean,
                        "loss": loss.mean, "loss_low": loss.low, "loss_high": loss.high,
                    }
                )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("validation", "test"), default="test")
    parser.add_argument("--tasks", type=int, default=75, help="tasks of each rendering, and 0.4 of it of other lists")
    parser.add_argument("--routers", type=Path, default=ROOT / ".build" / "routers", help="those that do not ship")
    parser.add_argument("--quick", action="store_true", help="two tasks of each list, routers of three steps")
    options = parser.parse_args()
    begin = time.perf_counter()
    n_tasks = 2 if options.quick else options.tasks
    if missing := [name for name in PEER_NAMES if not (PEERS / name).exists()]:
        raise SystemExit(f"networks that one would train instead are not there: {missing}. Run make sources-study")
    before.restore()
    routers, n_steps = (SCRATCH / "routers", 3) if options.quick else (options.routers, N_STEPS)
    routers.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS[1:]:
        train(router_folder(routers, seed), seed, n_steps=n_steps)
    for name in RENDERINGS:
        train(router_folder(routers, without=name), without=name, n_steps=n_steps)
    jobs = [
        (f"{options.stage}-{name}", index)
        for name in (*CLEAN, *OUTSIDE)
        for index in range(n_tasks if name in OUTSIDE else max(2, round(0.4 * n_tasks)))
    ]
    found: Found = {}
    for (name, _), scores in shared_out("tasks", partial(score, routers), jobs, keep=True):
        found.setdefault(name.removeprefix(f"{options.stage}-"), []).append(scores)
    figures: dict[str, float] = {"tasks": len(jobs), "tasks_of_a_rendering": n_tasks}
    for label in ("equal", "evidence", "router"):
        for version, prefix in (("", ""), ("_before", "old ")):
            loss = over(found, CLEAN, less(f"{prefix}predictions {label}", f"{prefix}weights {label}"))
            put(figures, f"mixing_loss_{label}{version}", loss)
    gains = {version: gain_rows(folder, options.stage, n_tasks) for version, folder in LIBRARIES.items()}
    figures["specialist_gain_min"] = min(row["gain"] for row in gains["new"])
    figures["specialist_gain_min_before"] = min(row["gain"] for row in gains["old"])
    needed = [row for seed in SEEDS for row in needed_rows(found, seed)]
    for seed in SEEDS:
        some = [row for row in needed if row["seed"] == seed and row["tasks"] != "clean"]
        counted = {row["expert"] for row in some if row["cost"] >= COST and row["cost_low"] > 0}
        figures[f"experts_needed_seed_{seed}"] = len(counted)
        null = over(found, CLEAN, lambda each, s=seed: each[f"null seed {s}"])
        figures[f"null_on_clean_seed_{seed}"] = null.mean
        gain = over(found, OUTSIDE, less(f"experts seed {seed}", f"no experts seed {seed}"))
        figures[f"outside_gain_seed_{seed}"] = gain.mean
    figures["experts_needed"] = min(figures[f"experts_needed_seed_{seed}"] for seed in SEEDS)
    figures["null_on_clean"] = min(figures[f"null_on_clean_seed_{seed}"] for seed in SEEDS)
    put(figures, "outside_gain", over(found, OUTSIDE, over_seeds("experts", "no experts")))
    put(figures, "outside_gain_left_out", over(found, OUTSIDE, less("left out", "left out, no experts")))
    put(figures, "outside_gain_gate_alone", over(found, OUTSIDE, over_seeds("gate alone", "no experts")))
    gate_alone = less("left out, gate alone", "left out, no experts")
    put(figures, "outside_gain_left_out_gate_alone", over(found, OUTSIDE, gate_alone))
    put(figures, "inside_cost_gate_alone", over(found, CLEAN, over_seeds("no experts", "gate alone")))
    put(figures, "inside_cost", over(found, CLEAN, over_seeds("no experts", "experts")))
    for peer in ("evidence", "uniform"):
        plain = f"weights {'equal' if peer == 'uniform' else peer}"
        for what in ("the delta", "each expert"):
            label = f"{peer}_gain_with_{what.replace(' ', '_')}"
            put(figures, label, over(found, OUTSIDE, less(f"{peer} with {what}", plain)))
            put(figures, f"{label}_left_out", over(found, OUTSIDE, less(f"left out, {peer} with {what}", plain)))
            put(figures, f"{label}_clean", over(found, CLEAN, less(f"{peer} with {what}", plain)))
    for peer in PEER_NAMES:
        for what, lists in (("clean", CLEAN), ("renderings", OUTSIDE)):
            label = f"router_above_{peer.replace('-', '_')}_on_{what}"
            put(figures, label, over(found, lists, less("experts seed 0", peer)))
    put(
        figures, "evidence_gain_with_rendered", over(found, OUTSIDE, less("evidence with rendered", "weights evidence"))
    )
    shipped = read_router(SHIPPED / "signs-router").record
    figures["union_of_masks"] = shipped["expert_shares"][-1]
    common = [share for number, row in enumerate(shipped["expert_overlaps"]) for share in row[:number]]
    figures["overlap_mean"], figures["overlap_max"] = sum(common) / len(common), max(common)
    tables = {
        "mixing": mixing_rows(found), "renderings": rendering_rows(found), "closed": needed,
        "specialists": [{"library": version, **row} for version, rows in gains.items() for row in rows],
        "overlaps": shipped["expert_overlaps"], "shares": shipped["expert_shares"],
    }  # fmt: skip
    show("mixing", tables["mixing"])
    show("renderings", tables["renderings"])
    show("experts that are needed", [row for row in needed if row["cost"] >= COST and row["seed"] == 0] or needed[:1])
    name = NAME if options.stage == "test" else f"{NAME}_validation"
    write_result(name, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
