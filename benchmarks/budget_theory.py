"""The budget lab: what the AutoBudget paper says of allocation and prices, measured on small problems.

Writes benchmarks/results/budget_theory.json and docs/images/theory-budget.svg; --quick draws fewer instances and writes
beside the other scratch files instead. One thread, under three minutes; deterministic but for times.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from budget_duals import Outcome, eps_kkt, oracle, separation, slater, stochastic, written
from budget_lab import (
    BUDGETS,
    corrected,
    frontier,
    full_cost,
    grids,
    inflation,
    methods,
    nesting,
    network,
    priced_sweep,
    supported,
)
from common import ROOT, SCRATCH, Rows, machine, show, write_result
from theory_plots import Panel, Series, draw

NAME = "budget_theory"
EXPERIMENTS: tuple[tuple[Callable[[int], Outcome], int, int], ...] = (
    (methods, 60, 5), (grids, 20, 4), (supported, 30, 5), (nesting, 60, 10), (corrected, 60, 10), (inflation, 100, 20),
    (separation, 1, 1), (written, 3000, 1000), (eps_kkt, 6, 2), (stochastic, 6, 2), (slater, 1, 1), (oracle, 4000, 500),
)  # fmt: skip
"""Each with the number of its instances, runs or steps, in full and quick."""


def picture(tables: dict[str, Rows]) -> list[Panel]:
    ranked = network(np.random.default_rng(2), 6, 18)
    costs, values = (each / each.max() for each in frontier(ranked))
    full = full_cost(ranked)
    at_price = priced_sweep(ranked, np.geomspace(1e-4, 1e3, 400))
    most = frontier(ranked)[1].max()
    points = sorted({(float(c) / full, float(v) / float(most)) for c, v in zip(*at_price, strict=True)})
    sweep = [
        Series(
            "best at each budget", (costs * frontier(ranked)[0].max() / full).tolist(), values.tolist(), mark="points"
        ),
        Series("found by a price", *(list(each) for each in zip(*points, strict=True)), mark="both"),
    ]
    chains = ("best chain", "calibrated", "greedy")
    nested = [
        Series(name, [row["on"] for row in tables["nesting"] if row["chain"] == name],
               [row["lost"] for row in tables["nesting"] if row["chain"] == name])
        for name in chains
    ]  # fmt: skip
    few = [
        Series(f"{row_kind}, {solver}", [r["losses"] for r in rows], [r["regained"] for r in rows])
        for row_kind in ("modules", "units")
        for solver in ("exact", "steps")
        if (rows := [r for r in tables["few_losses"] if (r["wrong"], r["solver"]) == (row_kind, solver)])
    ]
    noisy = tables["oracle"]
    epsilons = sorted({row["epsilon"] for row in noisy})
    lower = [
        Series(f"descent, ε = {eps:g}", [r["calls"] for r in noisy if r["epsilon"] == eps],
               [r["descent_over_eps"] for r in noisy if r["epsilon"] == eps])
        for eps in epsilons
    ] + [
        Series("no method below" if eps == epsilons[0] else "", [r["calls"] for r in noisy if r["epsilon"] == eps],
               [r["least_possible"] for r in noisy if r["epsilon"] == eps], mark="dashed", colour=index)
        for index, eps in enumerate(epsilons)
    ]  # fmt: skip
    return [
        Panel("Prices find supported points alone", "share of the full cost", "share of the full value", sweep),
        Panel(
            f"What nesting costs over {len(BUDGETS)} budgets",
            "cost of being on, in units",
            "share of value lost",
            nested,
        ),
        Panel("Wrong values, corrected by support losses", "losses", "share of what was lost", few),
        Panel("Noisy slopes", "calls", "suboptimality / ε", lower, True, True, y_floor=1e-3),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer instances")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    start = time.perf_counter()
    figures: dict[str, float] = {}
    tables: dict[str, Rows] = {}
    seconds: dict[str, float] = {}
    for experiment, in_full, in_quick in EXPERIMENTS:
        begin = time.process_time()
        found, rows = experiment(in_quick if quick else in_full)
        figures |= found
        tables |= rows
        seconds[experiment.__name__] = round(time.process_time() - begin, 1)
    folder: Path = SCRATCH / "images" if quick else ROOT / "docs" / "images"
    draw(folder / "theory-budget.svg", picture(tables))
    for title, rows in tables.items():
        show(title.replace("_", " "), rows)
    show("figures", [{"figure": name, "value": value} for name, value in figures.items()])
    seconds["all, processor time"] = round(time.process_time(), 1)
    described = machine(["torch", "numpy", "scipy", "cvxpy", "cooper-optim"], threads=1)
    elapsed = time.perf_counter() - start
    path = write_result(NAME, figures, {**tables, "seconds": [seconds]}, described, elapsed, quick)
    print(
        f"wrote {path.relative_to(ROOT)} after {elapsed:.0f} s, {seconds['all, processor time']:.0f} s of the processor"
    )


if __name__ == "__main__":
    main()
