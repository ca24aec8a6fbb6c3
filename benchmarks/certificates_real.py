"""Certificates on real tasks: the router that ships, on the calibration lists of Signs; then on other classes.

It reads what `certificates_tasks.py` has kept and runs no network. Writes benchmarks/results/certificates_real.json.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np
from certificates import DELTA, SHARE, Size, first_alarm, split_violations
from certificates_tasks import CALIBRATION, CORRUPT, TEST, Record, records
from common import ROOT, Rows, machine, show, write_result

from smatter.certify.conformal import conformal_limit, coverage_by_group, limits_by_group
from smatter.certify.drift import make_drift_monitor
from smatter.certify.mean import mean_bound_betting
from smatter.certify.tail import cvar_bound_betting

NAME = "certificates_real"
WATCHED = ("entropy", "divergence", "loss")
N_REFERENCE = 500


def errors_of(found: Sequence[Record]) -> np.ndarray:
    """Share of each task's queries that are named wrongly."""
    return np.array([each.error for each in found])


def worst_mean(losses: np.ndarray) -> float:
    """CVaR of all tasks, as measured."""
    return float(np.sort(losses)[::-1][: max(1, round(SHARE * len(losses)))].mean())


def splits(pool: Sequence[Record], n_splits: int) -> tuple[dict[str, float], Rows]:
    """Bounds from a part of the calibration tasks, against the rest and against all of them."""
    generator, losses, rows = np.random.default_rng(0), errors_of(pool), []
    for n in (200, 1000):
        rows += split_violations(losses, n, generator, n_splits)
    told = {
        "certified_violation_rate": max(row["violation_rate"] for row in rows),
        "certified_violation_rate_rest": max(row["violation_rate_rest"] for row in rows if row["n"] == 200),
        "mean_bound_gap": next(row["gap"] for row in rows if row["bound"] == "mean, betting" and row["n"] == 1000),
    }
    resampled = [
        cvar_bound_betting(generator.choice(losses, 5000), SHARE, DELTA).gap for _ in range(max(2, n_splits // 40))
    ]
    return told | {"cvar10_bound_gap": float(np.mean(resampled)), "calibration_tasks": len(pool)}, rows


def elsewhere() -> tuple[dict[str, float], Rows]:
    """Bounds of each calibration list against test lists of other classes: inside domains, and outside."""
    rows = []
    for name in TEST:
        kind, form = name.split("-")[1:]
        source = f"calibration-{'id' if kind == 'ood' else kind}-{form}"
        known, asked = errors_of(records(source)), errors_of(records(name))
        if len(known) < 100 or not len(asked):
            continue
        mean, tail = mean_bound_betting(known, DELTA), cvar_bound_betting(known, SHARE, DELTA)
        half = 1.96 * asked.std(ddof=1) / len(asked) ** 0.5
        rows.append(
            {
                "calibrated on": source, "n": len(known), "asked": name, "tasks": len(asked), "bound": mean.value,
                "measured": float(asked.mean()), "half_interval": float(half),
                "holds": bool(asked.mean() <= mean.value),
                "surely_fails": bool(asked.mean() - half > mean.value), "tail_bound": tail.value,
                "tail_measured": worst_mean(asked),
            }
        )  # fmt: skip
    inside = [row for row in rows if "ood" not in row["asked"]]
    outside = [row for row in rows if "ood" in row["asked"]]
    return {
        "test_lists_inside_that_hold": float(np.mean([row["holds"] for row in inside])),
        "test_lists_outside_that_hold": float(np.mean([row["holds"] for row in outside])),
        "test_lists_that_surely_fail": float(np.mean([row["surely_fails"] for row in rows])),
    }, rows


def queries_of(found: Sequence[Record]) -> tuple[np.ndarray, list[str], list[str]]:
    """1 - p of the true class of each query of tasks of one domain each, with its domain and its class."""
    scores, domains, classes = [], [], []
    for each in found:
        own = each.probabilities[np.arange(len(each.truth)), each.truth]
        scores.append(1 - own)
        domains += [each.told["domain"]] * len(own)
        classes += [f"{each.told['domain']} {each.told['names'][label]}" for label in each.truth.tolist()]
    return np.concatenate(scores), domains, classes


def coverage(n_draws: int) -> tuple[dict[str, float], Rows]:
    """Conformal sets at a wish of 90 %: a query of each of half of the tasks calibrates, the others' queries are asked.

    One query of a task and no more: those of one task are alike, and the promise is for queries of new tasks.
    """
    pool = [each for name in CALIBRATION if "-id-" in name for each in records(name)]
    generator = np.random.default_rng(2)
    overall, by_domain, own_domain, by_class = [], [], [], []
    for _ in range(n_draws):
        order = generator.permutation(len(pool))
        known, asked = ([pool[place] for place in part] for part in np.array_split(order, 2))
        picked = [(generator.integers(len(each.truth)), each) for each in known]
        own = [1 - each.probabilities[place, each.truth[place]] for place, each in picked]
        limit = conformal_limit(own, 0.1).value
        scores, domains, classes = queries_of(asked)
        overall.append(float((scores <= limit).mean()))
        by_domain.append(coverage_by_group(scores <= limit, domains))
        by_class.append(coverage_by_group(scores <= limit, classes))
        limits = limits_by_group(own, [each.told["domain"] for _, each in picked], 0.1)
        fitting = np.array([limits[name].value if name in limits else np.inf for name in domains])
        own_domain.append(coverage_by_group(scores <= fitting, domains))
    names = sorted({str(name) for row in by_domain for name in row})
    rows = [
        {
            "domain": name,
            "one limit": float(np.mean([row[name] for row in by_domain if name in row])),
            "a limit for each domain": float(np.mean([row[name] for row in own_domain if name in row])),
        }
        for name in names
    ]
    mean_by_class = {
        name: np.mean([row[name] for row in by_class if name in row]) for name in {n for row in by_class for n in row}
    }
    others = [each for name in TEST if "-id-" in name for each in records(name)]
    limit = conformal_limit([1 - each.probabilities[0, each.truth[0]] for each in pool], 0.1).value
    return {
        "coverage": float(np.mean(overall)),
        "worst_domain_coverage": min(row["one limit"] for row in rows),
        "worst_domain_coverage_by_domain": min(row["a limit for each domain"] for row in rows),
        "worst_class_coverage": float(min(mean_by_class.values())),
        "coverage_on_test_classes": float((queries_of(others)[0] <= limit).mean()),
        "calibration_queries": len(pool) // 2,
    }, rows


def alarm_after(monitor: object, reference: Sequence[Record], stream: Sequence[Record]) -> float:
    """After how many tasks one of the scores raises an alarm; infinite where none does."""
    columns = ((np.array([each.told[name] for each in part]) for part in (reference, stream)) for name in WATCHED)
    return min(first_alarm(monitor, *pair) for pair in columns)


def drift(pool: Sequence[Record], size: Size) -> tuple[dict[str, float], Rows]:
    """Clean streams of calibration tasks, distinct and drawn again and again; then each shift of validation tasks.

    Few tasks that are drawn again and again are not like clean ones either: the first row of the shifts says after how
    many of them an alarm comes without any shift. What is found among distinct tasks is found without such help.
    """
    generator = np.random.default_rng(4)
    rate, n_streams = 0.05 / len(WATCHED), max(20, size.n_streams // 5)
    n_distinct = min(1000, len(pool) - N_REFERENCE)

    def monitor_of(n: int, horizon: int) -> object:
        values = generator.normal(size=n)  # limits depend on their number alone
        return make_drift_monitor(
            values, rate, generator, horizon=horizon, window=100, n_simulations=size.n_simulations
        )

    distinct, repeated = monitor_of(N_REFERENCE, n_distinct), monitor_of(N_REFERENCE, 5000)
    times: dict[str, list[float]] = {"distinct": [], "repeated": []}
    for _ in range(n_streams):
        order = generator.permutation(len(pool)).tolist()
        known, rest = ([pool[place] for place in part] for part in (order[:N_REFERENCE], order[N_REFERENCE:]))
        times["distinct"].append(alarm_after(distinct, known, rest[:n_distinct]))
        again = [pool[place] for place in generator.integers(len(pool), size=5000)]
        times["repeated"].append(alarm_after(repeated, known, again))
    rates = {name: float(np.isfinite(each).mean()) for name, each in times.items()}
    reference = records("calibration-id-5")
    monitor, rows = monitor_of(len(reference), 1000), []
    for name in ("validation-id-5", *CORRUPT):
        changed = records(name)
        streams = [[changed[place] for place in generator.integers(len(changed), size=1000)] for _ in range(20)]
        found = [alarm_after(monitor, reference, stream) for stream in streams]
        median = float(np.median(found))
        once = [[changed[place] for place in generator.permutation(len(changed))] for _ in range(20)]
        soon = float(np.isfinite([alarm_after(monitor, reference, stream) for stream in once]).mean())
        rows.append(
            {
                "tasks": name, "distinct tasks": len(changed), "error": float(errors_of(changed).mean()),
                "found among distinct": soon, "alarms, repeated": float(np.isfinite(found).mean()),
                "delay, repeated": median if np.isfinite(median) else None,
            }
        )  # fmt: skip
    sooner = [row for row in rows if row["found among distinct"] > 0.5]
    return {
        "false_alarm_rate": rates["repeated"],
        "false_alarm_rate_distinct": rates["distinct"],
        "false_alarm_streams": n_streams,
        "distinct_stream_length": n_distinct,
        "shifts_found_within_15_tasks": len([row for row in sooner if "corrupt" in row["tasks"]]),
        "shifts": len(CORRUPT),
    }, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer draws")
    quick = parser.parse_args().quick
    start = time.perf_counter()
    size = Size(n_streams=100, n_simulations=200) if quick else Size(n_streams=500, n_simulations=1000)
    pool = [each for name in CALIBRATION for each in records(name)]
    figures: dict[str, float] = {"certified_delta": DELTA, "mean_error": float(errors_of(pool).mean())}
    tables: dict[str, Rows] = {}
    parts = {
        "splits": lambda: splits(pool, 20 if quick else 200),
        "elsewhere": elsewhere,
        "coverage": lambda: coverage(5 if quick else 50),
        "drift": lambda: drift(pool, size),
    }
    for name, part in parts.items():
        found, tables[name] = part()
        figures |= found
        show(name, tables[name])
    tables["tasks"] = [{"list": name, "tasks": len(records(name))} for name in (*CALIBRATION, *TEST)]
    show("figures", [{"figure": name, "value": float(value)} for name, value in figures.items()])
    described = machine(["numpy", "scipy", "torch"], threads=1)
    path = write_result(NAME, figures, tables, described, time.perf_counter() - start, quick)
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
