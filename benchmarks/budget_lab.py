"""Experiments on allocation: exact, greedy and relaxed; supported points; what nesting and few losses cost."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import torch
from common import Rows, stage

from smatter.budget.approximate import greedy, relax
from smatter.budget.fit import fit_budget, within
from smatter.budget.knapsack import Allocation, allocate
from smatter.budget.policy import CalibratedPolicy
from smatter.budget.ranked import Ranked, RankedModule

Outcome = tuple[dict[str, float], dict[str, Rows]]
BUDGETS = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Shares of what everything costs, as in the issue of budgets."""


def full_cost(ranked: Ranked) -> float:
    return float(sum(module.level_costs[0, -1] for module in ranked.modules.values()))


def mean_row(name: str, values: list[float]) -> dict[str, float]:
    """A mean with its 95 % interval over instances, by the bootstrap."""
    sample = np.asarray(values)
    draws = np.random.default_rng(0).integers(sample.size, size=(2000, sample.size))
    low, high = np.quantile(sample[draws].mean(axis=1), [0.025, 0.975])
    return {name: float(sample.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}


def network(generator: np.random.Generator, n_modules: int = 40, n_units: int = 178, on: float = 0.5) -> Ranked:
    """Units like those of a network: values fall within a module, modules differ, being on costs half a unit or so."""
    sizes = generator.multinomial(n_units - n_modules, np.full(n_modules, 1 / n_modules)) + 1
    modules = {}
    for index, size in enumerate(sizes.tolist()):
        cost, worth = generator.lognormal(0, 0.5), generator.lognormal(0, 1.5)
        values = worth * np.sort(generator.exponential(size=size))[::-1]
        modules[str(index)] = RankedModule(tuple(range(size)), values, np.full(size, cost), on * cost)
    return Ranked(modules)


def alike(generator: np.random.Generator) -> Ranked:
    """Values in proportion to costs but for a tenth: the hard kind."""
    costs = generator.uniform(1, 2, 60)
    values = costs * generator.uniform(0.95, 1.05, 60)
    return Ranked(
        {str(i): RankedModule((0,), [v], [c], 0.0) for i, (v, c) in enumerate(zip(values, costs, strict=True))}
    )


def subset_sum(generator: np.random.Generator, n_items: int, digits: int) -> Ranked:
    """Values equal to costs, whole numbers of so many digits."""
    costs = generator.integers(10 ** (digits - 1), 10**digits, n_items).astype(float)
    return Ranked({str(i): RankedModule((0,), [cost], [cost], 0.0) for i, cost in enumerate(costs.tolist())})


def methods(n_instances: int) -> Outcome:
    """Values of each method as a share of a bound that none can exceed, and processor time."""
    solvers: dict[str, Callable[[Ranked, float], Allocation]] = {
        "exact, 2,000 cells": allocate,
        "exact, 20,000 cells": lambda ranked, budget: allocate(ranked, budget, 20_000),
        "greedy": greedy,
        "relaxed, rounded": lambda ranked, budget: relax(ranked, budget).rounded,
    }
    kinds: dict[str, Callable[[np.random.Generator], Ranked]] = {"network": network, "values like costs": alike}
    rows: Rows = []
    figures = {}
    with stage("methods", len(kinds) * 4) as tick:
        for kind, make in kinds.items():
            for share in BUDGETS[:4]:
                shares: dict[str, list[float]] = {name: [] for name in (*solvers, "relaxation")}
                seconds: dict[str, list[float]] = {name: [] for name in solvers}
                for seed in range(n_instances):
                    ranked = make(np.random.default_rng(seed))
                    budget = share * full_cost(ranked)
                    found = {}
                    for name, solver in solvers.items():
                        begin = time.process_time()
                        found[name] = solver(ranked, budget)
                        seconds[name].append(time.process_time() - begin)
                    relaxation = relax(ranked, budget).value
                    bound = min(found["exact, 20,000 cells"].bound, relaxation)
                    for name, allocation in found.items():
                        shares[name].append(allocation.value / bound)
                    shares["relaxation"].append(relaxation / bound)
                for name, values in shares.items():
                    rows.append(
                        {"kind": kind, "budget": share, "method": name, **mean_row("of_bound", values),
                         "least": min(values), "ms": 1e3 * float(np.median(seconds.get(name, [0.0])))}
                    )  # fmt: skip
                tick()
    of = {(row["kind"], row["budget"], row["method"]): row for row in rows}
    for name in solvers:
        short = name.replace(",", "").replace(" ", "_")
        figures[f"{short}_of_bound"] = float(np.mean([of["network", share, name]["of_bound"] for share in BUDGETS[:4]]))
        figures[f"{short}_worst"] = min(row["least"] for row in rows if row["method"] == name)
        figures[f"{short}_ms"] = of["network", 0.25, name]["ms"]
    gaps = [of["network", share, "relaxation"]["of_bound"] - 1 for share in BUDGETS[:4]]
    figures["integrality_gap_largest"] = max(gaps)
    return figures, {"methods": rows}


def grids(n_instances: int) -> Outcome:
    """Subset sums of whole numbers: exact with as many cells as the budget has units, nearly so with fewer.

    A sum that meets the budget exactly is lost wherever cells do not divide it: every cost is rounded up.
    """
    rows: Rows = []
    cases = [(digits, n_cells) for digits in (2, 3, 4, 5) for n_cells in (200, 2_000, 20_000, None)]
    with stage("subset sums", len(cases)) as tick:
        for digits, n_cells in cases:
            lost, seconds = [], []
            for seed in range(n_instances if n_cells or digits < 5 else 3):
                ranked = subset_sum(np.random.default_rng(seed), 24, digits)
                budget = float(np.floor(full_cost(ranked) / 3))
                begin = time.process_time()
                found = allocate(ranked, budget, n_cells or int(budget))
                seconds.append(time.process_time() - begin)
                lost.append(1 - found.value / _reachable(ranked, int(budget)))
            rows.append(
                {"digits": digits, "cells": str(n_cells or "as the budget"), "solved": lost.count(0.0) / len(lost),
                 "lost": float(np.mean(lost)), "most_lost": max(lost), "ms": 1e3 * float(np.median(seconds))}
            )  # fmt: skip
            tick()
    whole = [row for row in rows if row["cells"] == "as the budget"]
    figures = {
        "subset_sum_most_lost_2000_cells": max(row["most_lost"] for row in rows if row["cells"] == "2000"),
        "subset_sum_solved_with_as_many_cells": min(row["solved"] for row in whole),
        "subset_sum_ms_5_over_2_digits": whole[-1]["ms"] / whole[0]["ms"],
    }
    return figures, {"subset_sums": rows}


def _reachable(ranked: Ranked, budget: int) -> int:
    """The largest sum within the budget, by a set of bits."""
    sums = 1
    for module in ranked.modules.values():
        sums |= sums << int(module.costs[0, 0])
    return (sums & ((1 << (budget + 1)) - 1)).bit_length() - 1


def frontier(ranked: Ranked) -> tuple[np.ndarray, np.ndarray]:
    """Costs and values of all allocations that no other dominates, by cost."""
    costs, values = np.zeros(1), np.zeros(1)
    for module in ranked.modules.values():
        costs = (costs[:, None] + module.level_costs[0]).ravel()
        values = (values[:, None] + module.level_values).ravel()
    order = np.lexsort((-values, costs))
    costs, values = costs[order], values[order]
    keep = np.concatenate([[True], values[1:] > np.maximum.accumulate(values)[:-1] + 1e-12])
    return costs[keep], values[keep]


def priced_sweep(ranked: Ranked, prices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Costs and values of the best levels at each price: value - mu cost, module by module."""
    costs, values = np.zeros(len(prices)), np.zeros(len(prices))
    for module in ranked.modules.values():
        best = (module.level_values - prices[:, None] * module.level_costs[0]).argmax(axis=1)
        costs, values = costs + module.level_costs[0][best], values + module.level_values[best]
    return costs, values


def supported(n_instances: int) -> Outcome:
    """Undominated points that a sweep of prices finds, and that a sweep of budgets finds."""
    rows: Rows = []
    losses: list[float] = []
    with stage("frontiers", n_instances) as tick:
        for seed in range(n_instances):
            generator = np.random.default_rng(seed)
            ranked = network(generator, 6, 18)
            costs, values = frontier(ranked)
            at_price = priced_sweep(ranked, np.geomspace(1e-4, 1e3, 4000))
            by_price = {round(float(cost), 9) for cost in at_price[0]}
            room = 1 + 7 / 20_000  # what rounding six modules up may take
            by_budget = {round(allocate(ranked, room * float(cost), 20_000).value, 9) for cost in costs}
            for budget in np.geomspace(0.05, 0.9, 12) * full_cost(ranked):
                within_budget = at_price[1][at_price[0] <= budget * (1 + 1e-9)]
                best = values[costs <= budget].max()
                if best > 0:
                    losses.append(1 - float(within_budget.max(initial=0.0)) / float(best))
            rows.append(
                {"undominated": len(costs), "by_price": sum(round(float(cost), 9) in by_price for cost in costs),
                 "by_budget": sum(round(float(value), 9) in by_budget for value in values)}
            )  # fmt: skip
            tick()
    total = {key: sum(row[key] for row in rows) for key in rows[0]}
    figures = {
        "share_of_frontier_by_price": total["by_price"] / total["undominated"],
        "share_of_frontier_by_budget": total["by_budget"] / total["undominated"],
        "lost_by_prices_mean": float(np.mean(losses)),
        "lost_by_prices_most": max(losses),
    }
    idle = Ranked({"of use": RankedModule((0,), [1.0], [1.0], 0.1), "idle": RankedModule((0,), [0.0], [1.0], 0.1)})
    free = {name: int(module.level_values[1] >= 0) for name, module in idle.modules.items()}  # a minimiser at mu = 0
    figures["cost_at_price_zero_over_least"] = float(idle.cost(free)[0] / allocate(idle, 9.0).costs[0])
    return figures, {"frontiers": rows}


def nesting(n_instances: int) -> Outcome:
    """What it costs that a larger budget closes nothing, over the budgets of the issue."""
    rows: Rows = []
    with stage("nesting", n_instances * 3) as tick:
        for on in (0.0, 0.5, 2.0):
            lost: dict[str, list[float]] = {"best chain": [], "greedy": [], "calibrated": []}
            not_nested = 0
            for seed in range(n_instances):
                ranked = network(np.random.default_rng(seed), 5, 12, on)
                budgets = [share * full_cost(ranked) for share in BUDGETS]
                free = [allocate(ranked, budget, 8_000) for budget in budgets]
                pairs = pairwise(free)
                not_nested += any(any(b.levels[n] < a.levels[n] for n in a.levels) for a, b in pairs)
                most = np.array([found.value for found in free])
                for name, values in _chains(ranked, budgets, free).items():
                    lost[name].append(1 - float(np.mean(values)) / float(most.mean()))
                tick()
            for name, values in lost.items():
                rows.append({"on": on, "chain": name, "instances_not_nested": not_nested / n_instances,
                             **mean_row("lost", values), "most_lost": max(values)})  # fmt: skip
    figures = {f"price_of_nesting_on_{row['on']:g}": row["lost"] for row in rows if row["chain"] == "best chain"}
    return figures, {"nesting": rows}


def _chains(ranked: Ranked, budgets: list[float], free: list[Allocation]) -> dict[str, list[float]]:
    """Values at each budget of the best nested levels, of greedy ones, and of shares made isotonic."""
    states = np.array(list(product(*(range(len(m.units) + 1) for m in ranked.modules.values()))))
    modules = list(ranked.modules.values())
    values = np.sum([module.level_values[states[:, i]] for i, module in enumerate(modules)], axis=0)
    costs = np.sum([module.level_costs[0][states[:, i]] for i, module in enumerate(modules)], axis=0)
    after, path = np.zeros(len(states)), []
    shape = [len(module.units) + 1 for module in modules]
    for budget in reversed(budgets):
        total = np.where(costs <= budget * (1 + 1e-9), values + after, -np.inf)
        best = total.reshape(shape)
        for axis in range(len(shape)):  # the best of all states that open at least as much
            best = np.flip(np.maximum.accumulate(np.flip(best, axis), axis), axis)
        after = best.ravel()
        path.append(total)
    at, chain = np.zeros(len(modules), int), []
    for total in reversed(path):
        reachable = np.where((states >= at).all(axis=1), total, -np.inf)
        index = int(reachable.argmax())
        at, chain = states[index], [*chain, float(values[index])]
    stacked: dict[str, int] = dict.fromkeys(ranked.modules, 0)
    steps = []
    for budget in budgets:
        rest = {
            name: RankedModule(m.units[k:], m.values[k:], m.costs[:, k:], m.on * (k == 0))
            for (name, m), k in zip(ranked.modules.items(), stacked.values(), strict=True)
            if k < len(m.units)
        }
        if rest:
            left = max(budget - float(ranked.cost(stacked)[0]), 0.0)
            stacked = stacked | {n: stacked[n] + k for n, k in greedy(Ranked(rest), left).levels.items()}
        steps.append(ranked.value(stacked))
    shares = torch.tensor([[found.levels[n] / len(m.units) for n, m in ranked.modules.items()] for found in free])
    policy = CalibratedPolicy(torch.tensor(BUDGETS), shares)
    calibrated = []
    for budget, row in zip(budgets, policy(torch.tensor(BUDGETS).log()).numpy().astype(float), strict=True):
        moved = within(ranked, row, budget)
        calibrated.append(ranked.value(ranked.levels(dict(zip(ranked.modules, moved.tolist(), strict=True)))))
    return {"best chain": chain, "greedy": steps, "calibrated": calibrated}


def corrected(n_instances: int) -> Outcome:
    """What a few support losses give back where the policy's values are wrong.

    Values are wrong by a factor for each module, as the exact solver has it; or for each unit, and the sum of all gains
    saturates, as it does not.
    """
    rows: Rows = []
    solvers = ("exact", "steps")
    cases = [(kind, solver, n) for kind in ("modules", "units") for solver in solvers for n in (1, 2, 3, 5)]
    with stage("few losses", len(cases)) as tick:
        for kind, solver, n in cases:
            gains, possible = zip(*(_regained(kind, solver, n, seed) for seed in range(n_instances)), strict=True)
            draws = np.random.default_rng(0).integers(n_instances, size=(2000, n_instances))
            ratios = np.array(gains)[draws].sum(axis=1) / np.array(possible)[draws].sum(axis=1)
            low, high = np.quantile(ratios, [0.025, 0.975])
            rows.append(
                {"wrong": kind, "solver": solver, "losses": n, "regained": sum(gains) / sum(possible),
                 "regained_low": float(low), "regained_high": float(high)}
            )  # fmt: skip
            tick()
    of = {(row["wrong"], row["solver"], row["losses"]): row["regained"] for row in rows}
    figures = {f"regained_{kind}_{solver}": of[kind, solver, 5] for kind in ("modules", "units") for solver in solvers}
    return figures, {"few_losses": rows}


def _regained(kind: str, solver: str, n_evaluations: int, seed: int) -> tuple[float, float]:
    """What a fit gains over the policy's own choice, and what could be gained."""
    generator = np.random.default_rng(seed)
    ranked = network(generator, 8, 24)
    scale = sum(float(module.values.sum()) for module in ranked.modules.values())
    promised = {name: replace(module, values=module.values / scale) for name, module in ranked.modules.items()}
    true = {
        name: replace(
            module, values=module.values * (1 + generator.normal(size=1 if kind == "modules" else len(module.units)))
        )
        for name, module in promised.items()
    }
    policy, truth = Ranked(promised), Ranked(true)
    budget = 0.25 * full_cost(ranked)

    def gain(levels: Mapping[str, int]) -> float:
        total = truth.value(levels)
        return total if kind == "modules" else 0.5 * float(np.tanh(2 * total))

    fit = fit_budget(
        policy,
        budget,
        lambda shares: -gain(policy.levels(shares)),
        solver=solver,
        closed=0.0,
        n_evaluations=n_evaluations,
    )
    own, best = gain(allocate(policy, budget).levels), gain(allocate(truth, budget).levels)
    return gain(fit.levels) - own, best - own


def inflation(n_instances: int) -> Outcome:
    """A proxy that is too high or too low by a factor, where true costs of modules differ from it by 15 % at most."""
    rows: Rows = []
    with stage("inflation", 7) as tick:
        for factor in (0.8, 0.9, 1.0, 1.1, 1.15, 1.25, 1.5):
            kept, values = [], []
            for seed in range(n_instances):
                generator = np.random.default_rng(seed)
                ranked = network(generator)
                budget = 0.25 * full_cost(ranked)
                found, most = allocate(ranked, budget / factor), allocate(ranked, budget)
                off = generator.uniform(0.85, 1.15) * generator.uniform(0.98, 1.02, len(ranked.modules))
                each = [float(ranked.cost({name: level})[0]) for name, level in found.levels.items()]
                kept.append(float(off @ each) <= budget)
                values.append(found.value / most.value)
            rows.append({"kappa": factor, "kept": float(np.mean(kept)), **mean_row("value", values)})
            tick()
    of = {row["kappa"]: row["kept"] for row in rows}
    return {"kept_at_kappa_0.8": of[0.8], "kept_at_kappa_1": of[1.0], "kept_at_kappa_1.25": of[1.25]}, {
        "inflation": rows
    }
