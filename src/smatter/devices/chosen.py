"""Networks as budgets leave them: units that an allocation chose, of random values.

Choosing looks for what seems cheap, so a network that was chosen costs more beside its prediction than a random one
does. What a bound promises of networks that are chosen has to be calibrated on such.
"""

from __future__ import annotations

import numpy as np

from smatter.budget.knapsack import allocate
from smatter.budget.latency import LatencyModel
from smatter.budget.ranked import Ranked, RankedModule, unit_costs
from smatter.devices.budgets import LEAST
from smatter.devices.stacks import Bench, Stack

SMALLEST = 0.05
"""The smallest budget, as a share of what everything costs; they are log-uniform up to that."""


def chosen_stack(bench: Bench, model: LatencyModel, generator: np.random.Generator) -> Stack:
    """The best allocation of random values within a random budget, by fitted costs.

    Values of units are exponential, times a log-normal factor of their module, so that some modules matter more.

    Args:
        bench: whose units they are.
        model: that prices them.
        generator: of values and budget.
    """
    modules = {}
    for name in bench.kinds:
        n_units = bench.n_groups.get(name, 1)
        values = np.sort(generator.exponential(generator.lognormal(), size=n_units))[::-1]
        on, costs = unit_costs(model.costs[name], n_units, LEAST)
        modules[name] = RankedModule(tuple(range(n_units)), values, costs[None], np.array([on]))
    ranked = Ranked(modules)
    everything = float(ranked.cost({name: len(each.units) for name, each in modules.items()})[0])
    share = np.exp(generator.uniform(np.log(SMALLEST), 0.0))
    shares = ranked.shares(allocate(ranked, share * everything).levels)
    return {name: share for name, share in shares.items() if share}
