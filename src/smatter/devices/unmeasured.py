"""Profiles without whole stacks: from operators timed alone, by counting bytes, or from a user's own table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from smatter.backbones.arithmetic import multiply_accumulates
from smatter.budget.latency import KNOTS, ModuleCost, fit_alone
from smatter.devices.fingerprint import fingerprint
from smatter.devices.profile import Method, Number, Positive, Profile, read_checked
from smatter.devices.stacks import Bench
from smatter.devices.timing import Neighbours, is_quiet, seconds, using_threads
from smatter.errors import InvalidProfile
from smatter.live.mixture import LiveMixture
from smatter.records import Partition
from smatter.runtime.places import Place
from smatter.units.numbering import REST

N_RUNS = 15

LAUNCH = 0.01
"""What an active module costs for being so, in shares of a small network, where only products are counted."""


def micro_profile(bench: Bench, delta: float = 0.1) -> Profile:
    """From operators timed alone; its bound is the prediction itself."""
    watch = Neighbours()
    with using_threads(bench.setting.threads):
        whole, costs = micro_costs(bench)
    others = watch.cores()
    made = _profile(bench, "ms", "micro-benchmarks", 1e3 * whole, costs)
    return made.model_copy(update={"delta": delta, "others": others, "is_quiet": is_quiet(others)})


def counted_profile(bench: Bench) -> Profile:
    """Bytes of weights."""
    return _profile(bench, "bytes", "counted", *counted_costs(bench))


def _profile(bench: Bench, unit: str, method: Method, base: float, costs: Mapping[str, ModuleCost]) -> Profile:
    numbers = {name: cost.numbers for name, cost in costs.items()}
    return Profile(unit=unit, method=method, fingerprint=bench.fingerprint, base=base, costs=numbers)


def micro_costs(bench: Bench) -> tuple[float, dict[str, ModuleCost]]:
    """The base's time in seconds, and costs from each module's deltas timed alone.

    What a module's deltas read and write is taken from a forward pass, then they are applied again and again, while
    everything they need lies in the nearest cache: whole networks take longer.
    """
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def remember(place: Place, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        given = inputs[0]
        if place.kind == "linear":
            given, output = given.flatten(0, -2), output.flatten(0, -2)
        seen[place.key] = given.clone(), output.clone()

    places = dict.fromkeys(bench.base.places.values())
    handles = [place.module.register_forward_hook(partial(remember, place)) for place in places]
    base = bench.plain()
    base()
    for handle in handles:
        handle.remove()
    whole = float(np.median([seconds(base) for _ in range(N_RUNS)]))
    costs = {}
    with torch.inference_mode():
        for name in bench.kinds:
            n_groups = 1 if name.endswith(REST) else bench.n_groups[name]
            fractions = sorted({max(1, round(knot * n_groups)) / n_groups for knot in KNOTS})
            shares = []
            for fraction in fractions:
                adds = [partial(add, *seen[key]) for key, add in bench.deltas({name: fraction}, seed=0).adds()]
                taken = [sum(seconds(add) for add in adds) for _ in range(N_RUNS)]
                shares.append(float(np.median(taken)) / whole)
            costs[name] = fit_alone(np.array(fractions), np.array(shares))
    return whole, costs


def counted_costs(bench: Bench) -> tuple[float, dict[str, ModuleCost]]:
    """Bytes of all weights, and those of each module's active groups, in shares of that."""
    whole = float(bench.base.resident.n_bytes)
    widths = np.diff(KNOTS)
    costs = {}
    for name in bench.kinds:
        share = bench.deltas({name: 1.0}, seed=0).n_bytes / whole
        if name.endswith(REST):
            costs[name] = ModuleCost(share, (0.0,) * len(widths))
        else:
            costs[name] = ModuleCost(0.0, tuple((share * widths).tolist()))
    return whole, costs


def product_profile(live: LiveMixture, on: float = LAUNCH) -> Profile:
    """Multiply-accumulates: what a delta adds is taken for what the base's own operators compute, unit by unit.

    Where nothing was measured, it says which modules are dear. It promises nothing of times.

    Args:
        live: the network.
        on: what each active module costs for being so, in shares of the base.
    """
    library, numbering = live.library, live.numbering
    grouped = {
        part.tensor.rpartition(".")[0]
        for own in numbering.units.values()
        for group in own.groups
        for part in group.slices
    }
    parts: dict[str, list[str]] = {}
    for module, tensors in library.partition.modules.items():
        for tensor in tensors:  # an operator is in groups with all of its tensors: its products are one number
            name = module if tensor.rpartition(".")[0] in grouped else module + REST
            parts.setdefault(name, []).append(tensor)
    counts = multiply_accumulates(live.network, Partition({name: tuple(own) for name, own in parts.items()}))
    total, widths, costs = sum(counts.values()), np.diff(KNOTS), {}
    for module, own in numbering.units.items():
        if own.groups:
            costs[module] = ModuleCost(on, tuple((counts.get(module, 0) / total * widths).tolist()))
        if own.n_units > len(own.groups):
            costs[module + REST] = ModuleCost(on + counts.get(module + REST, 0) / total, (0.0,) * len(widths))
    place = fingerprint(library, torch.get_num_threads(), batch=1, dtype=live.dtype, length=1)
    numbers = {name: cost.numbers for name, cost in costs.items()}
    return Profile(unit="products", method="counted", fingerprint=place, base=float(total), costs=numbers)


class _Table(BaseModel):
    """A user's own costs, in a unit of their own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Annotated[str, Field(min_length=1, max_length=20)]
    base: Positive
    modules: Annotated[dict[str, tuple[Number, ...]], Field(min_length=1, max_length=100_000)]


def table_profile(path: Path, bench: Bench) -> Profile:
    """A profile from a JSON file: unit, the base's cost, and the cost of each module at each knot.

    Args:
        path: {"unit": "mJ", "base": 120, "modules": {NAME: [just on, at 1/8, at 1/4, at 1/2, at 1], ...}}; a rest has
            one number. Modules that are not named cost nothing.
        bench: the network.
    """
    table = read_checked(path, _Table, "table of costs", "write one as docs/runtime.md shows")
    costs = {}
    for name, own in table.modules.items():
        if name not in bench.kinds:
            raise InvalidProfile(f"the network has no module {name[:100]!r}: it has {', '.join(bench.kinds)[:300]}")
        n_numbers = 1 if name.endswith(REST) else len(KNOTS)
        if len(own) != n_numbers or list(own) != sorted(own):
            raise InvalidProfile(
                f"{name!r} needs {n_numbers} numbers that never fall: as soon as it is on, at 1/8, ..."
            )
        rises = np.diff(own).tolist() if n_numbers > 1 else [0.0] * (len(KNOTS) - 1)
        costs[name] = ModuleCost(own[0] / table.base, tuple(rise / table.base for rise in rises))
    nothing = ModuleCost(0.0, (0.0,) * (len(KNOTS) - 1))
    return _profile(bench, table.unit, "table", table.base, dict.fromkeys(bench.kinds, nothing) | costs)
