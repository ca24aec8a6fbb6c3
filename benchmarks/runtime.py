"""Many tasks on one base, beside PEFT's mixed-adapter batches and one merged network for each task.

    python benchmarks/runtime.py [--rounds N] [--quick]

Networks have random weights: a ViT of 2.7 M parameters on pictures of 64 by 64, and a BERT of MiniLM's size on 32
tokens. A batch has a row for each task, at least 16 rows, in any order. As many parameters change in each method: LoRA
has a rank on every linear operator of a layer, or on its MLP alone, ours random groups of the same operators;
*operators* says how many of 36 a task of ours touches. Merged networks have weights of their own each. The *ceiling* is
the base alone on the whole batch, as if deltas cost nothing. Everything of a size is timed in one process, interleaved,
on one thread.
"""

import argparse
import gc
import os
import subprocess
import sys
import time
from functools import partial
from itertools import islice

from common import (
    PLAIN_PROCESS,
    ROOT,
    Interval,
    Rows,
    interleave,
    keep_freed_memory,
    machine,
    show,
    stage,
    write_result,
)

os.environ |= PLAIN_PROCESS

import numpy as np
import torch
from runtime_memory import SMALL_FRACTION, load_tasks
from runtime_peers import BASE, SIZES, TARGETS, Network, PeftRuntime, how_much, lora_rank
from transformers.utils import logging

from smatter.backbones.network import Inputs
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.devices.choice import TaskLoad, choose_runtime
from smatter.devices.measure import measure_profile
from smatter.live.mixture import Resident
from smatter.runtime.merged import MergedRuntime
from smatter.runtime.shared import SharedRuntime
from smatter.settings.devices import DeviceSetting, MeasureSettings

NAME = "runtime"
TASKS, FRACTIONS = (1, 4, 16, 64), (0.05, 0.1, 0.2, 0.5)
MAIN_TASKS, MAIN_FRACTION = 16, 0.1
LEAST_ROWS, N_RESIDENT, FEW, N_LOADS = 16, 1000, 10, 50
ROWS_TIMED = 1500
"""Small loads are timed more often, until this many rows have passed."""


def timed_rows(network: Network, rounds: int, n_tasks_of: tuple[int, ...], fractions: tuple[float, ...]) -> Rows:
    """Every number of tasks and active fraction."""
    merged, rows = MergedRuntime(network.library), []
    for fraction in fractions:
        ranks = {where: lora_rank(network, fraction, where) for where in TARGETS}
        n_parameters = ranks["all"][1]
        shared = SharedRuntime(network.library, {"base": BASE})
        n_ours, n_operators = 0, 0
        for number in range(max(n_tasks_of)):
            gates = network.gates(n_parameters, number)
            recipe = network.recipe(gates, number)
            shared.load(f"task {number}", recipe)
            network.runtime.open(f"task {number}", gates)
            merged.load(f"task {number}", recipe)
            assert recipe.residual
            n_ours += recipe.residual.n_nonzero
            n_operators += sum(name.endswith("weight") for name in recipe.residual.tensors)
        off = n_ours / max(n_tasks_of) / n_parameters - 1
        assert abs(off) < 0.05, f"tasks differ by {off:.1%} in parameters"
        for n_tasks in n_tasks_of:
            n_rows = max(LEAST_ROWS, n_tasks)
            inputs = network.inputs(n_rows)
            names = [f"task {row % n_tasks}" for row in np.random.default_rng(0).permutation(n_rows)]
            peft = {f"peft {where}": PeftRuntime(network, n_tasks, rank, where) for where, (rank, _) in ranks.items()}
            runtimes = {"shared": shared, "gates": network.runtime, "merged": merged, **peft}
            cases = {name: partial(runtime.features, inputs, names) for name, runtime in runtimes.items()}
            cases["ceiling"] = partial(network.plain.features, inputs)
            difference = float((cases["shared"]() - cases["merged"]()).abs().max())
            timings = interleave(cases, min(rounds, max(10, rounds * LEAST_ROWS // n_rows)))
            row = {"network": network.size, "tasks": n_tasks, "rows": n_rows, "active": fraction,
                   "operators": n_operators / max(n_tasks_of), "rank": ranks["all"][0], "parameters_off": off,
                   "peft_on_mlp_parameters_off": n_ours / max(n_tasks_of) / ranks["mlp"][1] - 1,
                   "difference": difference, "ceiling_ms": 1e3 * timings.median("ceiling")}  # fmt: skip
            for case in runtimes:
                row |= _faster(timings.ratio(case, "ceiling"), case.replace(" ", "_"))
            for peer in ("peft_all", "peft_mlp", "merged"):
                row |= _faster(timings.ratio(peer.replace("_", " "), "shared"), f"faster_than_{peer}")
            rows.append(row)
            del peft, runtimes, cases
            gc.collect()
    return rows


def _faster(ratio: Interval, name: str) -> dict[str, float]:
    return {name: ratio.median, f"{name}_low": ratio.low, f"{name}_high": ratio.high}


def resident_rows(network: Network, rounds: int, n_resident: int) -> Rows:
    """Memory of many tasks, and batches of 16 of them beside batches of the same size of few."""
    rows = []
    _, n_parameters = lora_rank(network, SMALL_FRACTION, "all")
    generator, inputs = np.random.default_rng(0), network.inputs(LEAST_ROWS)

    def batch(runtime: SharedRuntime) -> object:
        some = generator.choice(runtime.tasks, FEW, replace=False)  # as many tasks in a batch of many as of few
        return runtime.features(inputs, [str(some[row % FEW]) for row in range(LEAST_ROWS)])

    for kind in ("private", "gates"):
        delta = Residual(dense=network.values) if kind == "gates" else None
        many, few = (SharedRuntime(network.library, {"base": BASE}, shared=delta) for _ in range(2))
        load_tasks(network, many, kind, n_parameters, range(n_resident))
        load_tasks(network, few, kind, n_parameters, range(FEW))
        timings = interleave({"many": partial(batch, many), "few": partial(batch, few)}, rounds)
        slow, quick = (np.quantile(timings.seconds[case], [0.5, 0.95]) for case in ("many", "few"))
        command = [sys.executable, str(ROOT / "benchmarks" / "runtime_memory.py"), network.size, kind, str(n_resident)]
        grown = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append(
            {
                "network": network.size,
                "kind": kind,
                "tasks": len(many.tasks),
                "memory": grown / network.n_bytes,
                "counted": sum(map(many.n_bytes, many.tasks)) / len(many.tasks) / network.n_bytes,
                "p50_ms": 1e3 * slow[0],
                "p95_ms": 1e3 * slow[1],
                "p50_over_few": slow[0] / quick[0],
                "p95_over_few": slow[1] / quick[1],
            }
        )
    return rows


def compose_and_pass(
    merged: MergedRuntime, spare: Resident, new: dict[str, Recipe], inputs: Inputs, names: list[str]
) -> object:
    """Networks that are not there yet are composed first, into memory that is there already."""
    for recipe in new.values():
        spare.compose(BASE, recipe.residual)
    return merged.features(inputs, names)


def pack_and_pass(shared: SharedRuntime, new: dict[str, Recipe], inputs: Inputs, names: list[str]) -> object:
    """Tasks that are not there yet are packed first."""
    for task, recipe in new.items():
        shared.load(task, recipe)
    return shared.features(inputs, names)


def rule_rows(network: Network, rounds: int, n_loads: int, seconds: float) -> Rows:
    """Random loads: what the rule says, from a profile, and what is faster when both are timed."""
    profile = measure_profile(network.library, DeviceSetting(), how_much(seconds))
    generator, rows = np.random.default_rng(5), []
    shared, merged = SharedRuntime(network.library, {"base": BASE}), MergedRuntime(network.library)
    spare = Resident(network.library)
    with stage("loads", n_loads) as tick:
        for load in range(n_loads):
            n_tasks, each = int(2 ** generator.uniform(0, 5)), int(2 ** generator.uniform(0, 4))
            share, n_composed, n_packed = float(10 ** generator.uniform(-1.7, -0.2)), 0, 0
            if generator.random() < 0.3:  # some tasks are new to the merged runtime, or to both
                n_composed = int(generator.integers(1, n_tasks + 1))
                n_packed = n_composed if generator.random() < 0.5 else 0
            names, loads, recipes = [], [], {}
            for number in range(n_tasks):
                gates = network.gates(int(share * network.n_linear), 1000 * load + number)
                recipes[f"task {number}"] = recipe = network.recipe(gates, number)
                shared.load(f"task {number}", recipe)
                merged.load(f"task {number}", recipe)
                active = {module: sum(own[:-1]) / (len(own) - 1) for module, own in gates.items()}
                loads.append(TaskLoad(each, active, is_packed=number >= n_packed, is_merged=number >= n_composed))
                names += [f"task {number}"] * each
            inputs = network.inputs(len(names))
            composed, packed = (dict(islice(recipes.items(), n)) for n in (n_composed, n_packed))
            cases = {
                "shared": partial(pack_and_pass, shared, packed, inputs, names),
                "merged": partial(compose_and_pass, merged, spare, composed, inputs, names),
            }
            timings = interleave(cases, max(rounds, min(5 * rounds, ROWS_TIMED // len(names))))
            choice, ratio = choose_runtime(profile, loads), timings.ratio("merged", "shared").median
            rows.append(
                {"network": network.size, "tasks": n_tasks, "rows_each": each, "active": share,
                 "to_compose": n_composed, "to_pack": n_packed, "says": choice.runtime,
                 "predicted_merged_over_shared": choice.merged / choice.shared, "merged_over_shared": ratio,
                 "is_right": bool((ratio >= 1) == (choice.runtime == "shared")),
                 "lost": max(0.0, ratio - 1 if choice.runtime == "merged" else 1 / ratio - 1)}
            )  # fmt: skip
            tick()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="timings of each case")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    options = parser.parse_args()
    quick, begin = options.quick, time.perf_counter()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    keep_freed_memory()
    figures: dict[str, float] = {}
    rows: Rows = []
    resident: Rows = []
    rule: Rows = []
    for size in SIZES if not quick else ("vit",):
        network = Network(size)
        rounds = 3 if quick else options.rounds
        found = timed_rows(network, rounds, TASKS[:3] if quick else TASKS, FRACTIONS[1:2] if quick else FRACTIONS)
        rows += found
        main_row = next(row for row in found if row["tasks"] == MAIN_TASKS and row["active"] == MAIN_FRACTION)
        figures[f"speedup_vs_peft_{size}"] = main_row["faster_than_peft_all"]
        figures[f"speedup_vs_peft_on_mlp_{size}"] = main_row["faster_than_peft_mlp"]
        figures[f"speedup_vs_merged_{size}"] = main_row["faster_than_merged"]
        figures[f"share_of_ceiling_{size}"] = 1 / main_row["shared"]
        resident += resident_rows(network, 10 if quick else 100, 50 if quick else N_RESIDENT)
        rule += rule_rows(network, 3 if quick else 7, 6 if quick else N_LOADS, 5 if quick else MeasureSettings.seconds)
        del network
        gc.collect()
    for name in ("speedup_vs_merged", "share_of_ceiling"):
        figures[name] = min(value for key, value in figures.items() if key.startswith(f"{name}_"))
    figures["resident_tasks"] = min(row["tasks"] for row in resident)
    for kind, name in (("gates", "memory_per_shared_task"), ("private", "memory_per_private_task")):
        figures[name] = max(row["memory"] for row in resident if row["kind"] == kind)
    figures["p50_with_1000_over_10"] = max(row["p50_over_few"] for row in resident if row["kind"] == "private")
    figures["p95_with_1000_over_10"] = max(row["p95_over_few"] for row in resident if row["kind"] == "private")
    figures["largest_difference"] = max(row["difference"] for row in rows)
    figures["rule_is_right"] = sum(row["is_right"] for row in rule) / len(rule)
    figures["rule_is_right_or_within_3_percent"] = sum(row["lost"] <= 0.03 for row in rule) / len(rule)
    n_shared = sum(row["merged_over_shared"] >= 1 for row in rule)
    figures["rule_always_the_commoner_is_right"] = max(n_shared, len(rule) - n_shared) / len(rule)
    figures["rule_lost"] = sum(row["lost"] for row in rule) / len(rule)
    show("time as a multiple of the base alone, and how many times faster the shared runtime is", rows)
    show("tasks in memory", resident)
    show("which runtime", rule)
    tables = {"batches": rows, "resident": resident, "rule": rule}
    packages = ("torch", "transformers", "peft", "numpy")
    write_result(NAME, figures, tables, machine(packages, 1), time.perf_counter() - begin, quick)
    print({name: round(value, 4) for name, value in figures.items()})


if __name__ == "__main__":
    main()
