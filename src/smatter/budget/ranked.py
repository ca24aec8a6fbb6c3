"""Units of modules in the order in which a budget opens them: what each adds, and what it costs.

A module's level n has its first n units open. Levels are nested, so one order serves every budget:

    value_l(n) = sum over k <= n of values_k,      cost_l(n) = on_l [n > 0] + sum over k <= n of costs_k

Anything that comes in nested steps can be such a module: groups of a delta, members of an average, later branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smatter.errors import InvalidProfile, InvalidSettings

if TYPE_CHECKING:
    from smatter.budget.latency import ModuleCost

Floats = NDArray[np.float64]

NEARLY = 1e-4
"""A share that is this little below a whole number of units, in units, counts as that number: shares are float32."""


@dataclass(frozen=True, eq=False)
class RankedModule:
    """One module's units, best first.

    Args:
        units: their numbers within the module.
        values: what each adds to those before it, such as nats of loss; it may be negative; (n_units,).
        costs: what each adds in each resource, none negative; (n_resources, n_units), or (n_units,) for one.
        on: what the module costs as soon as any unit is open; (n_resources,), or a number for one.
        cap: the largest share of the units that may be open.
    """

    units: tuple[int, ...]
    values: Floats
    costs: Floats
    on: Floats
    cap: float = 1.0

    def __post_init__(self) -> None:
        values, costs = np.asarray(self.values, np.float64), np.atleast_2d(np.asarray(self.costs, np.float64))
        on, n_units = np.atleast_1d(np.asarray(self.on, np.float64)), len(self.units)
        if not n_units or len(set(self.units)) < n_units:
            raise InvalidSettings("a module needs units, each of them once: rank them again")
        if values.shape != (n_units,) or costs.shape != (len(on), n_units) or on.ndim != 1:
            raise InvalidSettings(f"{n_units} units need as many values, and as many costs in each resource")
        if not np.isfinite(values).all():
            raise InvalidSettings("a unit's value is not a finite number: rank the units again")
        if not (np.isfinite(costs).all() and np.isfinite(on).all() and costs.min() >= 0 and on.min() >= 0):
            raise InvalidProfile("costs must be finite numbers, none negative: profile the network again")
        if not (on + costs[:, 0]).any():
            raise InvalidProfile("a module that costs nothing fits every budget: profile the network again")
        if not 0 <= self.cap <= 1:  # also rejects NaN
            raise InvalidSettings(f"a cap of {self.cap} is no share: give a number between 0 and 1")
        for name, value in (("values", values), ("costs", costs), ("on", on)):
            object.__setattr__(self, name, value)

    @property
    def n_open(self) -> int:
        """Units that may be open."""
        return int(self.cap * len(self.units) + NEARLY)

    @cached_property
    def level_values(self) -> Floats:
        """What each level is worth, from none open to as many as may be; (n_open + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.values[: self.n_open])])

    @cached_property
    def level_costs(self) -> Floats:
        """What each level costs; (n_resources, n_open + 1)."""
        rising = self.on[:, None] + np.cumsum(self.costs[:, : self.n_open], axis=1)
        return np.concatenate([np.zeros((len(self.on), 1)), rising], axis=1)


@dataclass(frozen=True, eq=False)
class Ranked:
    """All modules.

    Args:
        modules: by name.
        resources: the units that costs and budgets are in; "base" is a multiple of the base's own cost.
        fixed: what is paid whatever is open, (n_resources,); nothing by default.
    """

    modules: Mapping[str, RankedModule]
    resources: tuple[str, ...] = ("base",)
    fixed: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        fixed = self.fixed or (0.0,) * len(self.resources)
        if not self.modules or not self.resources:
            raise InvalidSettings("there is nothing to allocate: give at least one module and one resource")
        if any(len(module.on) != len(self.resources) for module in self.modules.values()):
            raise InvalidSettings(f"every module needs costs in {', '.join(self.resources)}")
        if len(fixed) != len(self.resources) or not all(0 <= each < np.inf for each in fixed):
            raise InvalidProfile("what is paid whatever is open must be a finite number for each resource")
        object.__setattr__(self, "fixed", tuple(map(float, fixed)))

    def cost(self, levels: Mapping[str, int]) -> Floats:
        """What a choice of levels costs, with what is fixed; modules that are not named are off; (n_resources,)."""
        parts = [self._module(name).level_costs[:, level] for name, level in levels.items()]
        return np.asarray(np.sum([np.array(self.fixed), *parts], axis=0))

    def value(self, levels: Mapping[str, int]) -> float:
        """What a choice of levels is worth, if modules do not interact."""
        return float(sum(self._module(name).level_values[level] for name, level in levels.items()))

    def levels(self, shares: Mapping[str, float]) -> dict[str, int]:
        """Open units of modules of which at most a share may be open: floor(b_l K_l), and no more than the cap."""
        for name, share in shares.items():
            if not 0 <= share <= 1 + NEARLY:  # also rejects NaN
                raise InvalidSettings(f"a share of {share} of {name[:100]!r} is not between 0 and 1")
        modules = {name: self._module(name) for name in shares}
        return {
            name: min(int(share * len(modules[name].units) + NEARLY), modules[name].n_open)
            for name, share in shares.items()
        }

    def shares(self, levels: Mapping[str, int]) -> dict[str, float]:
        """The share of each module's units that is open."""
        return {name: level / len(self._module(name).units) for name, level in levels.items()}

    def open_units(self, levels: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The numbers of the units that are open, by module."""
        return {name: tuple(self._module(name).units[:level]) for name, level in levels.items()}

    def _module(self, name: str) -> RankedModule:
        if name not in self.modules:
            raise InvalidSettings(f"there is no ranked module {name[:100]!r}: rank the units of this network")
        return self.modules[name]


def unit_costs(cost: ModuleCost, n_units: int, least: float = 0.0) -> tuple[float, Floats]:
    """What a module costs as soon as it is on, and what each of its units adds, (n_units,): as a profile has it.

    Args:
        cost: of active fractions.
        n_units: of the module.
        least: what it costs to be on at the least. Fitted costs may be zero where noise drowns them; a launch is not.
    """
    totals = cost(np.arange(1, n_units + 1) / n_units) - cost.on
    return max(cost.on, least), np.maximum(np.diff(totals, prepend=0.0), 0.0)
