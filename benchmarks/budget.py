"""Budgets on the shipped Signs library: accuracy at shares of what everything open costs, and measured times.

    python benchmarks/budget.py [--stage validation|test] [--tasks N] [--profile P] [--quick]

Each task is routed once; then its experts are cut to 5, 10, 25 and 50 % of what all that they open costs beyond the
base, in multiply-accumulates and 1 % of the base for each active module. `smatter` is what `smatter adapt --budget`
does: values by gradient x delta at three masks, exact allocation, two losses more. Baselines have its order of units
within each module, so that only the allocation differs: the same share of each module, shares in proportion to 1/cost,
to the size of the delta per parameter, or to the module's gain at first order; one threshold on sizes for all units;
units by chance. `smatter without losses` stops after the allocation, `smatter with one gradient` looks at one mask.
Intervals are by bootstrap over draws: tasks of one number are the same draw in eight renderings.

With a profile of this machine, recipes cut for five budgets are timed beside the base in a shared runtime, by the
processor's clock.
"""

import argparse
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from budget_scores import BUDGETS, RENDERINGS, RULES, Found, score
from common import Rows, interleave, machine, show, write_result
from signs_tasks import PACKAGES, live, shared_out, tasks, trained

from smatter.compose.mixture import Mixture
from smatter.devices.budgets import Budgets, open_fractions
from smatter.devices.cut import cut_experts
from smatter.devices.profile import Profile, read_profile
from smatter.devices.stacks import Bench
from smatter.live.episodes import prepared_support
from smatter.live.task import Task
from smatter.route.opening import route_task
from smatter.settings.devices import DeviceSetting
from smatter.tasks.open import SHIPPED

NAME, SHARES = "budget", (0.05, 0.10, 0.25, 0.50, 1.0)
N_ROUNDS = 30


def resampled(draws: np.ndarray) -> np.ndarray:
    """Means over the draws, (n_draws, n_keys), and over two thousand resamples of them; (2001, n_keys)."""
    again = np.random.default_rng(0).integers(len(draws), size=(2000, len(draws)))
    return np.concatenate([draws.mean(axis=0)[None], draws[again].mean(axis=1)])


def with_interval(values: np.ndarray) -> tuple[float, float, float]:
    """A value of the means, and where 95 % of those of the resamples lie."""
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return float(values[0]), float(low), float(high)


def put(row: dict[str, Any], name: str, found: tuple[float, ...]) -> dict[str, Any]:
    """A row with a figure and its interval added."""
    row |= dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))
    return row


def accuracy_rows(found: Mapping[int, list[Found]]) -> tuple[Rows, Rows]:
    """Accuracy, share of the gain kept, and difference to what ships, of each rule at each budget."""
    keys = sorted(next(iter(found.values()))[0])
    draws = np.array([np.mean([[each[key] for key in keys] for each in own], axis=0) for own in found.values()])
    mean = dict(zip(keys, resampled(draws).T, strict=True))
    none, full = mean["nothing"], mean["everything"]
    rows: Rows = []
    for budget in BUDGETS:
        for rule in RULES:
            own, row = mean[f"{rule} {budget}"], {"budget": budget, "rule": rule}
            put(row, "accuracy", with_interval(own))
            put(row, "gain_kept", with_interval((own - none) / (full - none)))
            put(row, "below_smatter", with_interval(mean[f"smatter {budget}"] - own))
            rows.append(row)
    whole = {"nothing": none, "everything": full, "at stake": full - none}
    ends: Rows = [put({"budget": name}, "accuracy", with_interval(each)) for name, each in whole.items()]
    return rows, ends


def bench(path: Path) -> Bench:
    """The base in a shared runtime, as a profile says, which knows the experts of the shipped router."""
    at = read_profile(path).fingerprint
    made = Bench(live().library, DeviceSetting(at.threads, at.batch, at.dtype, at.length))  # type: ignore[arg-type]
    made.library.lend(trained(SHIPPED / "signs-router").bank)
    return made


def passed(on: Bench, task: str) -> object:
    """A batch of one task's rows in the shared runtime."""
    return on.runtime.features(on.inputs, [task] * on.setting.batch)


def time_rows(path: Path, stage: str, n_tasks: int, n_rounds: int) -> Rows:
    """Measured times of recipes cut for each budget, beside what the profile says."""
    profile, network, on = read_profile(path), live(), bench(path)
    router, rows = trained(SHIPPED / "signs-router"), []
    router.check_fits(network)
    base = Mixture.of({network.library.manifest.base: 1.0})
    for number in range(n_tasks):
        rendering = RENDERINGS[number % len(RENDERINGS)]
        episode = tasks(f"{stage}-outside-{rendering}").episode(number)
        task = Task.of(network, prepared_support(network, episode))
        routed = route_task(network, task.objective, router)
        experts = router.mix(network, routed.routing.experts)
        assert experts is not None
        bank = network.library.bank(experts.bank)
        full = float(profile.predict(open_fractions(bank, bank.bank.gates(experts)))[0]) / profile.base - 1
        budgets = {share: Budgets.of(f"{1 + share * full:.9g}x", _unbounded(profile)) for share in SHARES}
        cut = {s: cut_experts(network, task.objective, base, experts, each) for s, each in budgets.items()}
        for share, mix in cut.items():
            on.runtime.load(str(share), network.library.recipe(base, experts=mix))
        on.runtime.load("nothing", network.library.recipe(base))
        cases = {name: partial(passed, on, name) for name in ("nothing", *map(str, SHARES))}
        timed = interleave(cases, n_rounds, clock=time.process_time)
        for share, mix in cut.items():
            gates = bank.bank.gates(mix)
            active, n_open = open_fractions(bank, gates), int((gates > 0).sum())
            ratio = timed.ratio(str(share), "nothing")
            rows.append(
                {
                    "task": number, "rendering": rendering, "budget": share, "units": n_open,
                    "allowed": 1 + share * full, "predicted": float(profile.predict(active)[0]) / profile.base,
                    "measured": ratio.median, "measured_low": ratio.low, "measured_high": ratio.high,
                    "bound": float(profile.bound(active)[0]) / profile.base,
                }
            )  # fmt: skip
    return rows


def _unbounded(profile: Profile) -> Profile:
    """The same costs with nothing added for safety: predictions are compared with measurements as they are."""
    return profile.model_copy(update={"kappa": 1.0, "epsilon": 0.0, "points": (), "wider_by": 1.0})


def time_figures(rows: Rows) -> dict[str, float]:
    """How predictions and measurements of cut recipes agree."""
    measured, predicted, bound = (np.array([row[key] for row in rows]) for key in ("measured", "predicted", "bound"))
    off = measured / predicted - 1
    extra = (measured - 1) / np.maximum(predicted - 1, 1e-9)
    return {
        "times_measured": float(len(rows)),
        "off_median": float(np.median(np.abs(off))),
        "within_10_percent": float((np.abs(off) <= 0.1).mean()),
        "below_bound": float((measured <= bound).mean()),
        "extra_over_predicted_median": float(np.median(extra)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=("validation", "test"), default="validation")
    parser.add_argument("--tasks", type=int, default=8, help="tasks of each rendering")
    parser.add_argument("--profile", type=Path, help="of this machine, for the table of times")
    parser.add_argument("--quick", action="store_true", help="one task of each rendering")
    options = parser.parse_args()
    begin = time.perf_counter()
    n_tasks = 1 if options.quick else options.tasks
    jobs = [(f"{options.stage}-outside-{name}", index) for index in range(n_tasks) for name in RENDERINGS]
    found: dict[int, list[Found]] = {}
    for (_, index), scores in shared_out("tasks", score, jobs, keep=True):
        found.setdefault(index, []).append(scores)
    rows, ends = accuracy_rows(found)
    figures: dict[str, Any] = {"tasks": float(len(jobs))}
    put(figures, "at_stake", tuple(ends[-1][key] for key in ("accuracy", "accuracy_low", "accuracy_high")))
    for row in rows:
        if row["rule"] == "smatter":
            figures[f"gain_kept_{round(100 * row['budget']):02d}"] = row["gain_kept"]
    rivals = [row for row in rows if not row["rule"].startswith("smatter")]
    for budget in BUDGETS:
        best = min((row for row in rivals if row["budget"] == budget), key=lambda row: row["below_smatter"])
        name = f"gain_over_best_baseline_{round(100 * budget):02d}"
        figures |= {name: best["below_smatter"], f"{name}_low": best["below_smatter_low"]}
    tables = {"accuracy": rows, "ends": ends}
    if options.profile is not None:
        tables["times"] = time_rows(
            options.profile, 2 if options.quick else 8, options.stage, 6 if options.quick else N_ROUNDS
        )
        figures |= time_figures(tables["times"])
    for title, table in tables.items():
        show(title, table)
    seconds, machine_ = time.perf_counter() - begin, machine(PACKAGES, 1)
    write_result(NAME, figures, tables, machine=machine_, seconds=seconds, quick=options.quick)


if __name__ == "__main__":
    main()
