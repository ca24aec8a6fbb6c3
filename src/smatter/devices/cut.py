"""The experts of a task, cut to what its budgets allow: the units that lower the support loss most for their cost.

What a unit is worth is minus the gradient of the support loss in its gate times the gate: what opening it would gain if
the loss were linear. It is not, so gradients are taken at several masks and averaged: with nothing open, then with the
units open that the values so far allow. Levels are then allocated exactly and corrected by a few losses (`fit_budget`).

A router that was trained for budgets knows what its units are worth to a task, by the experts that the task weighs.
Then these values are allocated, and nothing is passed: a gradient of the examples beside them gained nothing on
validation tasks of Signs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

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

Numbers = NDArray[np.int64]

N_GRADIENTS = 3
"""Masks at which gradients are taken; the passes that are left of `MOST_EVALUATIONS` measure losses."""


def cut_experts(
    live: LiveMixture,
    objective: Objective,
    mixture: Mixture,
    experts: ExpertMix,
    budgets: Budgets,
    unit_values: Floats | None = None,
    progress: Progress = silent,
) -> ExpertMix:
    """Close units until all budgets are kept; where everything fits, nothing is closed and nothing is passed.

    Args:
        live: the library's network.
        objective: what the task asks of it.
        mixture: that the experts are added to.
        experts: what the task would open.
        budgets: what it may cost.
        unit_values: what opening each unit is worth, by the mask that is weighed, where that was learnt;
            (n_masks, n_units).
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
    if unit_values is not None and (values := np.array(experts.alpha) @ unit_values * gates).any():
        ranked = budgets.ranked(bank, gates, values)
        progress(1)
        return with_open(experts, gates, numbers_of(ranked, allocate(ranked, allowed).levels))
    loss = SupportLoss(live, objective, mixture, bank, gates)
    ranked = loss.ranked(budgets, progress)
    return with_open(experts, gates, chosen_units(loss, ranked, allowed, progress))


def chosen_units(loss: SupportLoss, ranked: Ranked, allowed: Sequence[float], progress: Progress = silent) -> Numbers:
    """The units to open, by their values and the few losses that are left to measure.

    Args:
        loss: of the task.
        ranked: its units.
        allowed: what they may cost, (n_profiles,).
        progress: told the share of all passes that each is.
    """

    def measured(shares: Mapping[str, float]) -> float:
        progress(1 / MOST_EVALUATIONS)
        return loss.value(numbers_of(ranked, ranked.levels(shares)))

    n_left = MOST_EVALUATIONS - N_GRADIENTS
    fit = fit_budget(ranked, allowed, measured, closed=loss.closed, n_evaluations=n_left)
    return numbers_of(ranked, fit.levels)


def with_open(experts: ExpertMix, gates: Values, units: Numbers) -> ExpertMix:
    """Experts with only some units open, as far as their gates say, (n_units,)."""
    kept = np.sort(units)
    return replace(experts, opened=Elements(kept, gates[kept]))


def numbers_of(ranked: Ranked, levels: Mapping[str, int]) -> Numbers:
    """Numbers in the bank of the units that levels open."""
    opened = ranked.open_units(levels).values()
    return np.array([unit for units in opened for unit in units], np.int64)


class SupportLoss:
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
        self.bank, self.gates, self.closed = bank, gates, np.inf

    def ranked(self, budgets: Budgets, progress: Progress = silent, n_gradients: int = N_GRADIENTS) -> Ranked:
        """The units with their values, from gradients with none open and at masks within the budgets.

        Args:
            budgets: what the task may cost.
            progress: told the share of all passes that each is.
            n_gradients: passes both ways, one at least.
        """
        values, units, allowed = np.zeros(len(self.gates)), np.zeros(0, np.int64), budgets.allowances
        for number in range(n_gradients):
            values += (self.gains(units) - values) / (number + 1)
            ranked = budgets.ranked(self.bank, self.gates, values)
            units = numbers_of(ranked, allocate(ranked, allowed).levels)
            progress(1 / MOST_EVALUATIONS)
        return ranked

    def gains(self, units: Numbers) -> Floats:
        """What opening each unit would gain, to first order where these are open, (n_units,): one pass both ways."""
        found = self.problem.evaluate(self._point(units))
        if not units.size:
            self.closed = float(found.value[0])
        return np.asarray(-found.gradient[0].numpy() * self.gates, np.float64)

    def value(self, units: Numbers) -> float:
        """The loss with these open: one pass."""
        return float(self.problem.value(self._point(units))[0])

    def _point(self, units: Numbers) -> torch.Tensor:
        point = np.zeros_like(self.gates)
        point[units] = self.gates[units]
        return torch.from_numpy(point)[None]
