"""Certificates: does every bound hold as often as it says, how far is it above what was measured, what does it need?

The simulated part, on one core in under three minutes; --quick draws less. Writes benchmarks/results/certificates.json.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from certificates_simulated import (
    DELTA,
    SHARE,
    all_trials,
    gap_rows,
    group_coverage_rows,
    violation_rows,
)
from common import ROOT, Rows, machine, show, stage, write_result

from smatter.certify.conformal import scores_for_coverage
from smatter.certify.drift import DriftMonitor, cusum_paths, make_drift_monitor, ranks_among, stability_indices
from smatter.certify.mean import MEAN_BOUNDS, tasks_for_mean
from smatter.certify.misrouting import (
    equidistant_families,
    misrouting_lower_fano,
    misrouting_lower_le_cam,
    misrouting_upper,
    missed_mass_upper,
    separation_of,
    simulate_routing,
)
from smatter.certify.tail import CVAR_BOUNDS, tasks_for_cvar

NAME = "certificates"
SLACK = 0.03
"""How far above delta a simulated rate may be: 500 draws at 0.05 vary by 0.01."""

Outcome = tuple[dict[str, float], dict[str, Rows]]


@dataclass(frozen=True)
class Size:
    """How much to simulate."""

    n_draws: int = 500
    n_gaps: int = 20
    n_streams: int = 1000
    n_routed: int = 20_000
    n_simulations: int = 5000


QUICK = Size(60, 2, 40, 4000, 300)


def violations(size: Size) -> Outcome:
    """Every bound with 200 or 400 tasks, on every shape of losses; its worst shape is the row."""
    trials = all_trials(200)
    with stage("violations", len(trials)) as tick:
        rows = violation_rows(trials, size.n_draws, tick)
    worst = max(row["violation_rate"] for row in rows)
    figures = {"certified_delta": DELTA, "certified_violation_rate": worst, "bounds_simulated": len(rows)}
    figures["bounds_within_promise"] = sum(row["violation_rate"] <= DELTA + SLACK for row in rows)
    return figures, {"violations": rows}


def gaps(size: Size) -> Outcome:
    """Gaps at N = 1,000 (means) and N = 5,000 (tails). The figures are the worst of the shapes that tasks have."""
    with stage("gaps", 7) as tick:
        rows = gap_rows(size.n_gaps, tick)
    figures = {}
    for name in ("mean", "cvar10"):
        figures[f"{name}_bound_gap"] = max(row[f"{name}_betting"] for row in rows if row["is_task"])
        figures[f"{name}_bound_gap_any_losses"] = max(row[f"{name}_betting"] for row in rows)
    return figures, {"gaps": rows}


def split_violations(
    losses: np.ndarray, n_calibration: int, generator: np.random.Generator, n_splits: int = 200
) -> Rows:
    """The same on measured losses, one for each task: bounds from a part, against the rest of the tasks.

    The rest has an error of its own, so that a sharp bound fails a little more often than delta; the smaller the part
    is, the less. Beside it stands the rate against all tasks, for which the promise is exact.
    """
    bounds = {f"mean, {name}": bound for name, bound in MEAN_BOUNDS.items()}
    bounds |= {f"CVaR, {name}": _of_share(bound) for name, bound in CVAR_BOUNDS.items()}
    failed = {name: np.zeros(2) for name in bounds}
    found_gaps: dict[str, list[float]] = {name: [] for name in bounds}
    of_all = _truths(losses)
    for _ in range(n_splits):
        order = generator.permutation(len(losses))
        part, of_rest = losses[order[:n_calibration]], _truths(losses[order[n_calibration:]])
        for name, bound in bounds.items():
            made, kind = bound(part, DELTA), name.split(",")[0]
            failed[name] += made.value < of_rest[kind], made.value < of_all[kind]
            found_gaps[name].append(made.gap)
    return [
        {
            "bound": name, "n": n_calibration, "violation_rate_rest": failed[name][0] / n_splits,
            "violation_rate": failed[name][1] / n_splits, "gap": float(np.mean(found_gaps[name])),
        }
        for name in bounds
    ]  # fmt: skip


def _of_share(bound: Callable) -> Callable:
    return lambda losses, delta: bound(losses, SHARE, delta)


def _truths(losses: np.ndarray) -> dict[str, float]:
    n_worst = SHARE * len(losses)
    weights = np.clip(n_worst - np.arange(len(losses)), 0, 1)
    return {"mean": float(losses.mean()), "CVaR": float(weights @ np.sort(losses)[::-1] / n_worst)}


def routing(size: Size) -> Outcome:
    """The finite-routing model over n and Delta; errors may pass a bound by three standard errors of simulation."""
    rows, between = [], []
    for n_routings in (2, 8):
        for separation in (0.05, 0.1, 0.2, 0.4, 0.8):
            families = equidistant_families(n_routings, separation)
            apart = separation_of(families)
            for n in (1, 2, 5, 10, 25, 100):
                seed = np.random.default_rng([n_routings, round(100 * separation), n])
                found = simulate_routing(families, n, size.n_routed, seed)
                le_cam = misrouting_lower_le_cam(apart.affinities, n)
                lower = max(le_cam, misrouting_lower_fano(n_routings, n, apart.divergence))
                upper = misrouting_upper(n_routings, n, separation)
                missed = missed_mass_upper(n_routings, n, separation)
                slack = 3 * 0.5 / size.n_routed**0.5
                is_between = (
                    lower - slack <= found.misrouting <= upper + slack
                    and lower - slack <= found.gibbs_error <= missed + slack
                    and abs(found.uncertainty - found.misrouting) <= slack
                )
                between.append(is_between)
                rows.append(
                    {
                        "routings": n_routings, "Delta": separation, "n": n, "below": lower,
                        "misrouting": found.misrouting, "mean_U": found.uncertainty, "above": upper,
                        "gibbs_error": found.gibbs_error, "gibbs_above": missed, "between": is_between,
                    }
                )  # fmt: skip
    return {"misrouting_between_bounds": float(np.mean(between))}, {"routing": rows}


def first_alarm(monitor: DriftMonitor, calibration: np.ndarray, values: np.ndarray) -> float:
    """After how many values there is an alarm, infinite where there is none; as `drift.watch_drift` would find it."""
    reference = np.sort(calibration)
    ranks = ranks_among(reference, values)
    over = np.maximum(*cusum_paths(ranks)) > monitor.cusum_limit
    indices = np.array(stability_indices(ranks, ranks_among(reference, reference), monitor.window))
    by_sum = float(over.argmax() + 1) if over.any() else np.inf
    spread = indices > monitor.psi_limit
    return min(by_sum, float((spread.argmax() + 1) * monitor.window) if spread.any() else np.inf)


def drift(size: Size) -> Outcome:
    """5,000 clean values against 500 of calibration, anew for each stream; then shifts of a normal value.

    The rate is over the streams without ties, where it should be as promised; ties lower it.
    """
    generator = np.random.default_rng(3)
    laws: dict[str, Callable[[int], np.ndarray]] = {
        "normal": lambda n: generator.normal(size=n),
        "gamma": lambda n: generator.gamma(0.5, size=n),
        "tied": lambda n: generator.normal(size=n).round(1),
    }
    monitor = make_drift_monitor(
        laws["normal"](500), 0.05, generator, horizon=5000, window=250, n_simulations=size.n_simulations
    )
    rows = []
    for name, law in laws.items():
        times = [first_alarm(monitor, law(500), law(5000)) for _ in range(size.n_streams)]
        rows.append({"values": name, "shift": "none", "alarms": float(np.isfinite(times).mean()), "delay": np.inf})
    changes = {
        "+0.5 sd": (0.5, 1.0),
        "+1 sd": (1.0, 1.0),
        "-1 sd": (-1.0, 1.0),
        "+2 sd": (2.0, 1.0),
        "sd x 2": (0.0, 2.0),
    }
    for name, (shift, scale) in changes.items():
        values = [shift + scale * laws["normal"](5000) for _ in range(size.n_streams)]
        times = [first_alarm(monitor, laws["normal"](500), each) for each in values]
        found = float(np.isfinite(times).mean())
        rows.append({"values": "normal", "shift": name, "alarms": found, "delay": float(np.median(times))})
    clean = float(np.mean([row["alarms"] for row in rows if row["shift"] == "none" and row["values"] != "tied"]))
    figures = {"false_alarm_rate": clean, "false_alarm_promise": monitor.rate}
    return figures, {"drift": [row | {"delay": row["delay"] if np.isfinite(row["delay"]) else None} for row in rows]}


def coverage(size: Size) -> Outcome:
    """Conformal sets by class at a wish of 90 %."""
    rows = group_coverage_rows(max(20, size.n_draws // 5))
    least = [min(value for key, value in row.items() if key != "limits") for row in rows]
    return {"worst_class_coverage": least[0], "worst_class_coverage_by_class": least[1]}, {"coverage_by_class": rows}


def wishes(_: Size) -> Outcome:
    """How many tasks, or calibration scores, a wish needs."""
    tasks: Rows = [
        {
            "wish": f"mean within {gap:g}",
            "hoeffding": tasks_for_mean(gap, DELTA, "hoeffding"),
            "kl": tasks_for_mean(gap, DELTA, "kl", mean=0.1),
            "bernstein": tasks_for_mean(gap, DELTA, "bernstein", variance=0.02),
        }
        for gap in (0.05, 0.03, 0.02, 0.01)
    ]
    tails: Rows = [
        {
            "wish": f"CVaR {share:g} within {gap:g}",
            "dkw": tasks_for_cvar(gap, share, DELTA, "dkw", quantile=0.5),
            "brown": tasks_for_cvar(gap, share, DELTA, "brown"),
        }
        for share in (0.1, 0.05, 0.01)
        for gap in (0.1, 0.05)
    ]
    sets: Rows = [
        {"coverage": 1 - delta}
        | {f"within {slack:g}": scores_for_coverage(delta, slack, 0.95) for slack in (0.05, 0.02, 0.01)}
        for delta in (0.1, 0.05)
    ]
    return {}, {"tasks_for_a_mean": tasks, "tasks_for_a_tail": tails, "scores_for_coverage": sets}


EXPERIMENTS: tuple[Callable[[Size], Outcome], ...] = (violations, gaps, routing, drift, coverage, wishes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer draws, under a minute")
    options = parser.parse_args()
    start, size = time.perf_counter(), QUICK if options.quick else Size()
    figures: dict[str, float] = {}
    tables: dict[str, object] = {}
    seconds: dict[str, float] = {}
    for experiment in EXPERIMENTS:
        begin = time.process_time()
        found, rows = experiment(size)
        figures |= found
        tables |= rows
        seconds[f"{experiment.__name__}, processor time"] = round(time.process_time() - begin, 1)
        for title, each in rows.items():
            show(title.replace("_", " "), each)
    show("figures", [{"figure": name, "value": float(value)} for name, value in figures.items()])
    described = machine(["numpy", "scipy"], threads=1)
    elapsed = time.perf_counter() - start
    path = write_result(NAME, figures, tables | {"seconds": seconds}, described, elapsed, options.quick)
    print(f"wrote {path.relative_to(ROOT)} after {elapsed:.0f} s, {time.process_time():.0f} s of them on the processor")


if __name__ == "__main__":
    main()
