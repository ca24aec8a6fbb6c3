"""Experts of a fit, cut to what budgets allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from smatter.devices.budgets import Budgets
from smatter.devices.cut import cut_experts
from smatter.errors import InvalidSettings
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit, Passes
from smatter.records import Progress, silent
from smatter.route.store import TrainedRouter


def budgets_for(settings: Any, budget: Any, profile: Any) -> Budgets | None:
    """What a forward pass may cost; none where nothing is asked. Refuses methods that leave nothing to cut.

    Args:
        settings: of the method.
        budget: as people write it, one or several.
        profile: by which it is kept, or its file.
    """
    if budget is None and profile is None:
        return None
    budgets = Budgets.of(budget, profile)
    check_cuttable(settings)
    return budgets


def check_cuttable(settings: Any) -> None:
    """Refuse a method that opens no experts, or averages several networks: a budget has nothing to cut there."""
    router = getattr(settings, "router", None)
    if router is None or router.bank is None:
        raise InvalidSettings("a budget closes units of experts: give --router of one trained with --experts")
    if getattr(settings, "mix", "weights") != "weights" or getattr(settings, "tune", "") == "modules":
        raise InvalidSettings("a budget is for one network and its experts: leave out --mix, and --set tune=modules")


def cut_to_budgets(
    budgets: Budgets, live: LiveMixture, task: Task, fit: Fit, router: TrainedRouter, progress: Progress = silent
) -> Fit:
    """A fit whose experts are cut to what its budgets allow.

    Args:
        budgets: what a forward pass may cost.
        live: the network.
        task: what was fitted to.
        fit: what a method found.
        router: whose experts these are.
        progress: told shares of the work.
    """
    if fit.members or fit.residual is not None:
        raise InvalidSettings("a budget is for one network and its experts: take a method without members or residual")
    if fit.experts is None:
        return fit
    forwards, backwards = live.n_forwards, live.n_backwards
    values = None if router.unit_values is None else router.unit_values.double().numpy()
    experts = cut_experts(
        live, task.objective, fit.mixture, fit.experts, budgets=budgets, unit_values=values, progress=progress
    )
    more = Passes(live.n_forwards - forwards, live.n_backwards - backwards)
    passes = Passes(fit.passes.forwards + more.forwards, fit.passes.backwards + more.backwards)
    return replace(fit, experts=experts, passes=passes)
