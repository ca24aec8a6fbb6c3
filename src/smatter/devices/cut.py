"""The experts of a task, cut to what its budgets allow: the units that lower the support loss most for their cost.

What a unit is worth is minus the gradient of the support loss in its gate times the gate: what opening it would gain if
the loss were linear. It is not, so gradients are taken at several masks and averaged: with nothing open, then with the
units open that the values so far allow. Levels are then allocated exactly and corrected by a few losses (`fit_budget`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from smatter.budget.fit import MOST_EVALUATIONS, fit_budget
from smatter.budget.knapsack import allocate
from smatter.budget.ranked import Floats, Ranked
from smatter.compose.experts import ExpertMix
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Elements
from smatter.devices.budgets import Budgets
from smatter.library.banks import PlacedBank, Values
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Objective
from smatter.live.problems import GateLoss, ResidualLoss
from smatter.records import Progress, silent
from smatter.units.layouts import make_layout

N_GRADIENTS = 3
"""Masks at which gradients are taken; the passes that are left of `MOST_EVALUATIONS` measure losses."""


def cut_experts(
    live: LiveMixture,
    objective: Objective,
    mixture: Mixture,
    experts: ExpertMix,
    budgets: Budgets,
    progress: Progress = silent,
) -> ExpertMix:
    """Close units until all budgets are kept; where everything fits, nothing is closed and nothing is passed.

    Args:
        live: the library's network.
        objective: what the task asks of it.
        mixture: that the experts are added to.
        experts: what the task would open.
        budgets: what it may cost.
        progress: told shares of the work.
    """
    bank = live.library.bank(experts.bank)
    budgets.check_fits(live.library, bank)
    gates, allowed = bank.bank.gates(experts), budgets.allowances
    if not gates.any():
        return experts
    everything = budgets.ranked(bank, gates, np.ones(len(gates)))
    if (everything.cost({name: len(each.units) for name, each in everything.modules.items()}) <= allowed).all():
        return experts
    loss = _SupportLoss(live, objective, mixture, bank, gates)
    values, ranked, units = np.zeros(len(gates)), everything, _NOTHING
    for number in range(N_GRADIENTS):
        values += (loss.gains(units) - values) / (number + 1)
        ranked = budgets.ranked(bank, gates, values)
        units = _units(ranked, allocate(ranked, allowed).levels)
        progress(1 / MOST_EVALUATIONS)

    def measured(shares: Mapping[str, float]) -> float:
        progress(1 / MOST_EVALUATIONS)
        return loss.value(_units(ranked, ranked.levels(shares)))

    n_left = MOST_EVALUATIONS - N_GRADIENTS
    fit = fit_budget(ranked, allowed, measured, closed=loss.closed, n_evaluations=n_left)
    kept = np.sort(_units(ranked, fit.levels))
    return replace(experts, opened=Elements(kept, gates[kept]))


_NOTHING = np.zeros(0, np.int64)


def _units(ranked: Ranked, levels: Mapping[str, int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Numbers in the bank of the units that levels open."""
    opened = ranked.open_units(levels).values()
    return np.array([unit for units in opened for unit in units], np.int64)


class _SupportLoss:
    """The loss of a task's examples by which of its units are open.

    Args:
        live, objective, mixture: see `cut_experts`.
        bank: whose units they are.
        gates: how far each is open where it is, (n_units,).
    """

    def __init__(
        self, live: LiveMixture, objective: Objective, mixture: Mixture, bank: PlacedBank, gates: Values
    ) -> None:
        layout = make_layout(live.numbering, bank.bank.units, bank.bank.rank)
        self.problem = GateLoss(ResidualLoss(live, objective, mixture), layout, torch.from_numpy(bank.values))
        self.gates, self.closed = gates, np.inf

    def gains(self, units: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
        """What opening each unit would gain, to first order where these are open, (n_units,): one pass both ways."""
        found = self.problem.evaluate(self._point(units))
        if not units.size:
            self.closed = float(found.value[0])
        return np.asarray(-found.gradient[0].numpy() * self.gates, np.float64)

    def value(self, units: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        """The loss with these open: one pass."""
        return float(self.problem.value(self._point(units))[0])

    def _point(self, units: np.ndarray[tuple[int], np.dtype[np.int64]]) -> torch.Tensor:
        point = np.zeros_like(self.gates)
        point[units] = self.gates[units]
        return torch.from_numpy(point)[None]
