"""Random units of modules for the tests of budgets, and the best levels by trying all."""

from collections.abc import Sequence

import numpy as np

from smatter.budget.ranked import Ranked, RankedModule


def random_ranked(
    generator: np.random.Generator, sizes: Sequence[int], n_resources: int = 1, *, whole: bool = False
) -> Ranked:
    """Units with values of either sign; with whole numbers as costs, ties and exact fits are common."""
    modules = {}
    for index, n_units in enumerate(sizes):
        costs = generator.integers(0, 5, (n_resources, n_units)) if whole else generator.random((n_resources, n_units))
        on = generator.integers(1, 4, n_resources) if whole else 0.5 * generator.random(n_resources)
        values = np.sort(generator.normal(0.5, 1.0, n_units))[::-1]
        modules[f"module {index}"] = RankedModule(tuple(range(n_units)), values, costs.astype(float), on.astype(float))
    return Ranked(modules, tuple(f"resource {index}" for index in range(n_resources)))


def everything(ranked: Ranked) -> dict[str, int]:
    return {name: len(module.units) for name, module in ranked.modules.items()}


def brute_force(ranked: Ranked, budgets: Sequence[float]) -> float:
    """The largest value within all budgets, of all combinations of levels."""
    values, costs = np.zeros(1), np.array(ranked.fixed)[:, None]
    for module in ranked.modules.values():
        values = (values[:, None] + module.level_values).ravel()
        costs = (costs[:, :, None] + module.level_costs[:, None, :]).reshape(len(costs), -1)
    fits = (costs <= np.asarray(budgets)[:, None] * (1 + 1e-9)).all(axis=0)
    return float(values[fits].max())
