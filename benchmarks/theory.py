"""The theory lab: the multi-source paper's rates, bounds and failure modes, measured in linear regression.

Writes benchmarks/results/theory.json and the pictures docs/images/theory-*.svg; --quick takes about a minute, draws
fewer tasks, and writes beside the other scratch files instead. One thread; deterministic.
"""

import argparse
import json
import time
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import torch
from common import RESULTS, ROOT, SCRATCH, Rows, machine, show, stage, write_result
from theory_limits import VARIANTS, collinear, dense_truth, frank_wolfe, mismatch, tiny_support
from theory_plots import Panel, Series, draw, of_rows
from theory_rates import (
    Outcome,
    Size,
    additivity,
    exactness,
    in_blocks,
    in_examples,
    in_sources,
    in_sparsity,
    in_weight_blocks,
)

NAME = "theory"
EXPERIMENTS: tuple[Callable[[Size], Outcome], ...] = (
    in_examples, in_sources, in_sparsity, exactness, additivity, in_blocks, in_weight_blocks, mismatch, frank_wolfe,
    collinear, dense_truth, tiny_support,
)  # fmt: skip
QUICK = Size(1, 24, quick=True)

Tables = dict[str, Rows]
Figures = dict[str, float]
RISK = "excess risk"


def picture_examples(tables: Tables, figures: Figures) -> list[Panel]:
    rows = tables["in_examples"]
    counts = [row["n"] for row in rows]
    guide = [rows[-1]["risk"] * counts[-1] / n for n in counts]
    series = [
        of_rows("amplitude at the threshold", rows, "n", "risk"),
        of_rows("fixed amplitude", rows, "n", "fixed_amplitude"),
        of_rows("no residual", rows, "n", "no_residual"),
        Series("1 / n", counts, guide, mark="dashed", colour=5),
    ]
    pairs = tables["additivity"]
    ends = [0.0, max(row["sum"] for row in pairs)]
    added = [
        of_rows(f"R = {r}", [row for row in pairs if row["sources"] == r], "sum", "risk", "points")
        for r in sorted({row["sources"] for row in pairs})
    ]
    added.append(Series("equal", ends, ends, mark="dashed", colour=5))
    return [
        Panel(f"Risk against n: slope {figures['slope_in_n']:.2f}", "examples n", RISK, series, True, True),
        Panel("Mixture and residual add up", "risk(R, 0) + risk(1, k)", "risk(R, k)", added),
    ]


def picture_sources(tables: Tables, figures: Figures) -> list[Panel]:
    rows = tables["in_sources"]
    near = [row for row in rows if row["in_regime"]]
    ends = [0.0, near[-1]["x"]]
    inside = [
        of_rows("truth in the middle", near, "x", "risk", "points"),
        of_rows("truth at a corner", near, "x", "at_corner", "points"),
        Series("(R - 1) / 2n", ends, [x / 2 for x in ends], mark="dashed", colour=5),
        of_rows("no estimator below (van Trees)", near, "x", "van_trees", "line", colour=2),
    ]
    outside = [
        of_rows("truth in the middle", rows, "sources", "risk"),
        of_rows("truth at a corner", rows, "sources", "at_corner"),
        of_rows("(R - 1) / 2n", rows, "sources", "rate", "dashed", colour=5),
    ]
    return [
        Panel(f"Few sources: R² = {figures['r2_in_sources']:.4f}", "(R - 1) / n, n = 2500", RISK, inside),
        Panel("R up to and above √n = 50", "sources R", RISK, outside, True, True),
    ]


def picture_sparsity(tables: Tables, figures: Figures) -> list[Panel]:
    rows, sweep = tables["in_sparsity"], tables["in_amplitude"]
    kept = sorted({row["k"] for row in rows})
    inside = [of_rows(f"k = {k}", [row for row in rows if row["k"] == k], "x", "risk", "points") for k in kept]
    ends = [min(row["x"] for row in rows), max(row["x"] for row in rows)]
    middle = sum(row["risk"] for row in rows) / len(rows)
    centre = sum(row["x"] for row in rows) / len(rows)
    line = [middle + figures["slope_in_sparsity"] * (x - centre) for x in ends]
    inside.append(Series("fitted line", ends, line, mark="dashed", colour=5))
    per_unit = [
        Series(
            f"k = {k}",
            [log(row["d"] / k) for row in rows if row["k"] == k],
            [row["risk"] * 400 / k for row in rows if row["k"] == k],
        )
        for k in kept
    ]
    bounds = [
        Series("measured", *zip(*sorted((r["x"], r["risk"]) for r in rows), strict=True), mark="points"),
        Series("Bayes bound", *zip(*sorted((r["x"], r["bayes"]) for r in rows), strict=True), mark="points", colour=2),
        Series("Fano bound", *zip(*sorted((r["x"], r["fano"]) for r in rows), strict=True), mark="points", colour=3),
        Series("amplitude × 4", *zip(*sorted((r["x"], r["large_amplitude"]) for r in rows), strict=True), mark="points",
               colour=1),
    ]  # fmt: skip
    other = [
        of_rows("estimator", sweep, "amplitude", "risk"),
        of_rows("no residual: k a² / 2", sweep, "amplitude", "no_residual", "dashed", colour=1),
        of_rows("known support: k / 2n", sweep, "amplitude", "known_support", "dashed", colour=5),
    ]
    return [
        Panel(f"At the threshold: R² = {figures['r2_in_sparsity']:.4f}", "k log(d/k) / n, n = 400", RISK, inside),
        Panel("The same, for each unit", "log(d/k)", "excess risk × n / k", per_unit),
        Panel("What no estimator can beat", "k log(d/k) / n", RISK, bounds, log_y=True),
        Panel("Other amplitudes, d = 256, k = 4", "amplitude / threshold", RISK, other, True, True),
    ]


def picture_blocks(tables: Tables, figures: Figures) -> list[Panel]:
    blocks, weights = tables["in_blocks"], tables["in_weight_blocks"]
    widths = sorted({row["width"] for row in blocks})
    grouped = [
        of_rows(f"width {w}", [row for row in blocks if row["width"] == w], "x", "risk", "points") for w in widths
    ]
    weighted = [
        of_rows("measured", weights, "x", "risk", "points"),
        of_rows("L (R - 1) / 2n", weights, "x", "rate", "dashed", colour=5),
    ]
    r2 = figures["r2_in_blocks"], figures["r2_in_weight_blocks"]
    return [
        Panel(f"Block residuals: R² = {r2[0]:.4f}", "(k log(L/k) + k width) / n, n = 600", RISK, grouped),
        Panel(f"Weights per block: R² = {r2[1]:.4f}", "L (R - 1) / n, n = 4000", RISK, weighted),
    ]


def picture_mismatch(tables: Tables, figures: Figures) -> list[Panel]:  # noqa: ARG001
    rows = tables["mismatch"]
    series = []
    deltas = sorted({row["delta"] for row in rows})
    for index, delta in enumerate(deltas):
        some = [row for row in rows if row["delta"] == delta]
        series.append(of_rows(f"δ = {delta:g}", some, "n", "risk", colour=index))
        if delta:
            series.append(of_rows("", some, "n", "approximation", "dashed", colour=index))
    series.append(Series("App(T)", [], [], mark="dashed", colour=5))
    last = [row for row in rows if row["n"] == max(row["n"] for row in rows)]
    ends = [0.0, deltas[-1] ** 2 / 2]
    plateau = [
        of_rows("risk at the largest n", last, "delta_term", "risk", "points"),
        of_rows("App(T)", last, "delta_term", "approximation", "line", colour=2),
        Series("δ² / 2", ends, ends, mark="dashed", colour=5),
    ]
    return [
        Panel("Truth δ away from the class", "examples n", RISK, series, True, True),
        Panel("Where the risk stops falling", "δ² / 2", RISK, plateau),
    ]


def picture_frank_wolfe(tables: Tables, figures: Figures) -> list[Panel]:  # noqa: ARG001
    rows = [row for row in tables["frank_wolfe"] if row["step"]]
    falls = [of_rows(name, rows, "step", name, "line") for name in VARIANTS]
    falls.append(of_rows("bound 2 L diam² / (t + 2)", rows, "step", "bound", "dashed", colour=5))
    active = [of_rows(name, rows, "step", f"{name}: active", "line") for name in VARIANTS]
    few = [row["step"] for row in rows if row["step"] <= 30]
    active.append(Series("t + 1", few, [step + 1 for step in few], mark="dashed", colour=5))
    return [
        Panel("Distance from the minimum", "step t", "loss - minimum", falls, True, True, y_floor=1e-14),
        Panel("Active sources, from one", "step t", "active sources", active, True),
    ]


def picture_failures(tables: Tables, figures: Figures) -> list[Panel]:  # noqa: ARG001
    twins, tiny, dense = tables["collinear"], tables["tiny_support"], tables["dense_truth"]
    spread = [
        of_rows("spread of a twin's weight", twins, "gap", "weight_sd"),
        of_rows("of the twins' sum", twins, "gap", "sum_of_two_sd"),
        of_rows("of predictions", twins, "gap", "prediction_sd"),
        of_rows("predicted from one support", twins, "gap", "predicted_weight_error", "dashed", colour=5),
    ]
    plateau = [of_rows(kind, dense, "n", kind) for kind in ("sparse", "dense")]
    ratio = [of_rows(kind, dense, "n", f"{kind}_promise_ratio") for kind in ("sparse", "dense")]
    overfit = [
        of_rows("support loss", tiny, "k", "support_loss"),
        of_rows("excess risk", tiny, "k", "risk"),
        of_rows("held-out loss", tiny, "k", "held_out_loss"),
    ]
    return [
        Panel("(i) Near-collinear sources, n = 100", "distance of the twins", "standard deviation", spread, True, True),
        Panel("(iii) 16 examples, d = 32", "k", "loss", overfit),
        Panel("(ii) Residual of norm 1, k = 4", "examples n", RISK, plateau, True, True),
        Panel("(ii) What k more would gain", "examples n", "promised gain / noise alone", ratio, True, True),
    ]


PICTURES: dict[str, Callable[[Tables, Figures], list[Panel]]] = {
    "examples": picture_examples,
    "sources": picture_sources,
    "sparsity": picture_sparsity,
    "blocks": picture_blocks,
    "mismatch": picture_mismatch,
    "frank-wolfe": picture_frank_wolfe,
    "failures": picture_failures,
}


def draw_pictures(folder: Path, tables: Tables, figures: Figures) -> None:
    with stage("pictures", len(PICTURES)) as tick:
        for name, picture in PICTURES.items():
            draw(folder / f"theory-{name}.svg", picture(tables, figures))
            tick()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tasks, about a minute")
    parser.add_argument("--pictures", action="store_true", help="only draw the stored results again")
    options = parser.parse_args()
    quick = options.quick
    folder = SCRATCH / "images" if quick else ROOT / "docs" / "images"
    if options.pictures:
        stored = json.loads((SCRATCH / "theory.quick.json" if quick else RESULTS / "theory.json").read_text())
        draw_pictures(folder, stored["tables"], stored["figures"])
        return
    torch.set_num_threads(1)
    start, size = time.perf_counter(), QUICK if quick else Size()
    figures: Figures = {}
    tables: dict[str, Any] = {}
    seconds: Figures = {}
    for experiment in EXPERIMENTS:
        begin = time.perf_counter()
        found, rows = experiment(size)
        figures |= found
        tables |= rows
        seconds[experiment.__name__] = round(time.perf_counter() - begin, 1)
    draw_pictures(folder, tables, figures)
    for title, rows in tables.items():
        show(title.replace("_", " "), rows)
    show("figures", [{"figure": name, "value": value} for name, value in figures.items()])
    seconds["all, processor time"] = round(time.process_time(), 1)
    described = machine(["torch", "numpy"], threads=1)
    elapsed = time.perf_counter() - start
    path = write_result(NAME, figures, tables | {"seconds": seconds}, described, elapsed, quick)
    print(f"wrote {path.relative_to(ROOT)} after {elapsed:.0f} s")


if __name__ == "__main__":
    main()
