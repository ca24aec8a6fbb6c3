"""Does a profile hold? New configurations, each timed hundreds of times beside the base, against what it predicts.

    python benchmarks/latency_model.py [--configurations N] [--forwards N] [--quick]

Settings differ in network, threads, rows and dtype. For each, a profile is made as `smatter profile` makes one; then
random configurations that it has never seen are timed, interleaved, and compared with its prediction and its bound,
both as multiples of the base. For one setting, a second profile bounds the 95th percentile. *Micro* is a profile from
operators timed alone. *Elements* has masks of single elements instead of groups, at the same density, with a model of
its own. *Ranks* has rank components as units, and a quarter of the runs. Finished settings are kept, so a stopped run
goes on. A profile that says the machine was not quiet is measured again, as it advises; those that were rejected so are
in the result too.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial

from common import COMMIT, PLAIN_PROCESS, SCRATCH, Rows, machine, show, stage, write_result

os.environ |= {name: value for name, value in PLAIN_PROCESS.items() if "THREADS" not in name}

import numpy as np
import torch
from runtime_peers import Network, how_much
from scipy.stats import spearmanr
from transformers.utils import logging

from smatter.budget.latency import LatencyModel
from smatter.devices.measure import fit_and_calibrate, measure_profile, quality, time_stacks
from smatter.devices.profile import Profile
from smatter.devices.stacks import Bench, Stack, make_bench
from smatter.devices.timing import Timed, time_cases
from smatter.devices.unmeasured import micro_costs
from smatter.runtime.deltas import OwnDeltas
from smatter.runtime.packing import linear_terms
from smatter.settings.devices import DeviceSetting, MeasureSettings
from smatter.units.numbering import REST

NAME = "latency_model"
RANKS = "vit, 1 thread, 8 rows, rank 16"
SETTINGS = {
    "vit, 1 thread, 8 rows": ("vit", DeviceSetting(1, 8)),
    "vit, 2 threads, 8 rows": ("vit", DeviceSetting(2, 8)),
    "minilm, 1 thread, 2 rows": ("minilm", DeviceSetting(1, 2)),
    "vit, 1 thread, 1 row, bf16": ("vit", DeviceSetting(1, 1, "BF16")),
    RANKS: ("vit", DeviceSetting(1, 8, rank=16)),
}
TAIL, TAIL_QUANTILE = "vit, 1 thread, 8 rows", 0.95
ELEMENTS = "vit", DeviceSetting(1, 2)
MOST_PROFILES = 3


def profiles_until_quiet(
    network: Network, setting: DeviceSetting, seconds: float, quantile: float = 0.5
) -> list[Profile]:
    """Profiles: another, as they advise, where the last says that the machine was not quiet. All are reported."""
    found: list[Profile] = []
    while not found or (not found[-1].is_quiet and len(found) < MOST_PROFILES):
        found.append(measure_profile(network.library, setting, how_much(seconds, quantile)))
    return found


def worth(profile: Profile, stacks: list[Stack], timed: Timed) -> dict[str, object]:
    """What a profile is worth on configurations that it has not seen, in multiples of the base."""
    predicted, bound = profile.predict(stacks) / profile.base, profile.bound(stacks) / profile.base
    found = quality(predicted, timed.quantile(0.5), bound, timed.quantile(profile.quantile))
    own = {"quantile": profile.quantile, "kappa": profile.kappa, "others_in_profile": profile.others}
    return {**own, "rounds_in_profile": profile.record["rounds"], **found.model_dump()}


def held_out(name: str, n_stacks: int, n_rounds: int, seconds: float) -> dict[str, object]:
    """One setting: a profile, then configurations that it has not seen."""
    size, setting = SETTINGS[name]
    network = Network(size)
    profiles = profiles_until_quiet(network, setting, seconds)
    profile, bench = profiles[-1], make_bench(network.library, setting)
    generator = np.random.default_rng(99)
    stacks = [bench.random_stack(generator) for _ in range(n_stacks)]
    torch.set_num_threads(setting.threads)
    with stage(name, n_stacks * n_rounds) as tick:
        timed = time_stacks(bench, stacks, n_rounds, generator, lambda runs: [tick() for _ in range(runs)])
    medians = timed.quantile(0.5)
    base = 1e3 * float(np.median(timed.base_seconds))
    row = {
        "setting": name, "configurations": n_stacks, "forwards": n_rounds, "profiles": len(profiles),
        "epsilon": profile.epsilon / profile.base, "bend": profile.bend, "signal_to_noise": timed.signal_to_noise,
        "others": timed.others, "base_ms": base, "base_ms_in_profile": profile.base, "slowest": float(medians.max()),
        **worth(profile, stacks, timed), "coverage_ms": float((base * medians <= profile.bound(stacks)).mean()),
    }  # fmt: skip
    _, costs = micro_costs(bench)
    alone = LatencyModel(costs).relative(stacks)
    ratio = float(np.median((alone - 1) / (medians - 1)))
    found = quality(alone, medians, alone, medians).model_dump()
    micro = {"setting": name, **found, "predicted_over_measured": ratio}
    whole = {module: profile.model.relative({module: 1.0})[0] for module in bench.kinds}
    careful = profiles_until_quiet(network, setting, seconds, TAIL_QUANTILE) if name == TAIL else []
    tail, again = (
        [{"setting": name, **worth(each, stacks, timed)} for each in some]
        for some in (careful[-1:], [*profiles[:-1], *careful[:-1]])
    )
    return {"row": row, "micro": micro, "tail": tail, "costs": whole, "not_quiet": again}


class ElementBench(Bench):
    """Masks of single elements: each operator of a module has a random share of its elements active.

    They are served in the form that takes the fewest numbers, which above one in eight is a dense matrix.
    """

    def deltas(self, stack: Stack, seed: int) -> OwnDeltas:
        generator = torch.Generator().manual_seed(seed % 2**31)
        terms = {}
        for module, share in stack.items():
            if not module.endswith(REST):
                for disk in self.library.partition.modules[module]:
                    place = self.base.places.get(disk)
                    if place is not None and place.kind == "linear" and place.key == disk:
                        shape = self.runtime.specs[disk].shape
                        mask = torch.rand(shape, generator=generator) < share
                        values = 1e-3 * torch.randn(shape, generator=generator) * mask
                        terms[disk] = linear_terms(values, None, place.is_transposed, torch.float32)
        return OwnDeltas(terms)


def elements(n_stacks: int, n_rounds: int) -> dict[str, object]:
    """Masks of single elements: how good their own model is, and how slow they are beside as many in groups."""
    size, setting = ELEMENTS
    network = Network(size)
    torch.set_num_threads(setting.threads)
    bench, grouped = ElementBench(network.library, setting), Bench(network.library, setting)
    generator = np.random.default_rng(98)
    kinds = {module: kind for module, kind in bench.kinds.items() if not module.endswith(REST)}

    def timed(ready: list[Callable[[], object]], n_rounds: int) -> Timed:
        cases = [partial(lambda work: work, work) for work in ready]  # made before: that takes longer than a pass
        with stage("elements", len(cases) * n_rounds) as tick:
            return time_cases(bench.plain(), cases, n_rounds, generator, lambda runs: [tick() for _ in range(runs)])

    def stacks(n: int) -> list[Stack]:
        found = (bench.random_stack(generator) for _ in range(n))
        return [{module: share for module, share in stack.items() if module in kinds} for stack in found]

    def passes(bench: Bench, stacks: list[Stack]) -> list[Callable[[], object]]:
        return [bench.case(stack, seed) for seed, stack in enumerate(stacks)]

    n_fitted = n_calibrated = max(20, int(0.9 * n_stacks))
    early, tested = stacks(n_fitted + n_calibrated), stacks(n_stacks)
    ratios = timed(passes(bench, early), max(3, n_rounds // 10)).quantile(0.5)
    bounded = fit_and_calibrate(early, ratios, ratios, n_fitted, 0.1, kinds)
    late = timed([*passes(bench, tested), *passes(grouped, tested)], n_rounds)
    medians, in_groups = np.split(late.quantile(0.5), 2)
    found = quality(bounded.model.relative(tested), medians, bounded.bound(tested), medians).model_dump()
    return {
        "configurations": n_stacks, "forwards": n_rounds, "kappa": bounded.kappa, **found,
        "slower_than_groups": float(np.median((medians - 1) / (in_groups - 1))),
        "slowest": float(medians.max()), "signal_to_noise": late.signal_to_noise,
    }  # fmt: skip


def kept(key: str, work: Callable[..., dict[str, object]], quick: bool, *given: object) -> dict[str, object]:
    """What this very commit found before with the same arguments, or what is found now."""
    if quick or " " in COMMIT:  # changed since the commit
        return work(*given)
    path = SCRATCH / "latency_model" / f"{COMMIT}-{key}-{'-'.join(map(str, given))}.json".replace(" ", "-")
    if not path.exists():
        found = work(*given)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return json.loads(path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=100, help="held out, of each setting")
    parser.add_argument("--forwards", type=int, default=200, help="of each configuration")
    parser.add_argument("--seconds", type=float, default=MeasureSettings.seconds, help="to measure a profile")
    parser.add_argument("--quick", action="store_true", help="one setting, few configurations")
    options = parser.parse_args()
    quick, begin = options.quick, time.perf_counter()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    n_stacks, n_rounds, seconds = options.configurations, options.forwards, options.seconds
    if quick:
        n_stacks, n_rounds, seconds = 10, 5, 5
    names = [TAIL] if quick else [name for name in SETTINGS if name != RANKS]
    found = [kept("held out", held_out, quick, name, n_stacks, n_rounds, seconds) for name in names]
    single = kept("elements", elements, quick, n_stacks // 2, n_rounds)
    of_ranks = kept("held out", held_out, quick, RANKS, n_stacks, max(5, n_rounds // 4), seconds)
    components = of_ranks["row"]
    not_quiet: Rows = [row for each in (*found, of_ranks) for row in each["not_quiet"]]
    tails: Rows = [row for each in found for row in each["tail"]]
    rows: Rows = [each["row"] for each in found]
    micro: Rows = [each["micro"] for each in found]
    figures: dict[str, float] = {}
    for prefix, part in (("", rows), ("micro_", micro), ("elements_", [single]), ("ranks_", [components])):
        figures |= {
            f"{prefix}coverage_min": min(row["coverage"] for row in part),
            f"{prefix}within_10_percent_min": min(row["within_10_percent"] for row in part),
            f"{prefix}spearman_min": min(row["spearman"] for row in part),
            f"{prefix}mean_slack": float(np.mean([row["slack"] for row in part])),
        }
    figures |= {"tail_coverage": tails[0]["coverage"], "tail_slack": tails[0]["slack"]}
    figures["coverage_ms_min"] = min(row["coverage_ms"] for row in rows)
    figures["signal_to_noise_min"] = min(row["signal_to_noise"] for row in rows)
    figures["elements_slower_than_groups"] = single["slower_than_groups"]
    alike = []
    for one in range(len(found)):
        for other in range(one):
            costs = [found[which]["costs"] for which in (one, other)]
            common = sorted(costs[0].keys() & costs[1].keys())
            if len(common) > 5:
                agreement = spearmanr(*([each[module] for module in common] for each in costs)).statistic
                alike.append({"one": names[other], "other": names[one], "rank_correlation_of_costs": float(agreement)})
    show("held out", rows)
    show("a high quantile", tails)
    show("from operators alone", micro)
    show("single elements", [single])
    show("rank components", [components])
    if not_quiet:
        show("measured again: the machine was not quiet", not_quiet)
    if alike:
        show("do costs rank alike", alike)
    tables = {
        "held_out": rows,
        "tail": tails,
        "micro": micro,
        "elements": [single],
        "ranks": [components],
        "not_quiet": not_quiet,
        "costs_rank": alike,
    }
    packages = ("torch", "transformers", "numpy", "scipy")
    write_result(
        NAME,
        figures,
        tables,
        machine(packages, max(setting.threads for _, setting in SETTINGS.values())),
        time.perf_counter() - begin,
        quick,
    )
    print({name: round(value, 4) for name, value in figures.items()})


if __name__ == "__main__":
    main()
