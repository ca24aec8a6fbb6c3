"""Budgets on profiles: what they allow a task to open of a bank's units, what that costs, and what is promised of it.

A profile prices the units of each module, as soon as any is open and then one by one. A budget leaves a sum of such
costs; see `allowance`. A budget in ms is kept by the profile's bound on whole times. A multiple of the base is kept by
a bound on what deltas add, since the base's own time is the same on both sides:

    ms, mJ, bytes:  kappa base (1 + extra) + epsilon <= budget        x:  1 + extra_factor extra <= budget
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smatter.budget.allowance import allowance
from smatter.budget.ranked import Floats, Ranked, RankedModule, unit_costs
from smatter.budget.wish import BudgetWish, parse_budget
from smatter.compose.records import BudgetRecord
from smatter.devices.fingerprint import fingerprint
from smatter.devices.profile import Profile, read_profile
from smatter.devices.stacks import Stack
from smatter.errors import InvalidProfile, InvalidSettings
from smatter.library.banks import PlacedBank, Values
from smatter.library.library import Library
from smatter.units.numbering import REST

LEAST = 1e-4
"""What a module that is on costs at the least, in shares of the base, where costs were fitted to times: fitted ones are
zero where noise drowns them, and a launch never is."""

TIMED = ("stacks", "micro-benchmarks")


@dataclass(frozen=True)
class Spent:
    """What a task's model costs beside one of its budgets.

    Args:
        wish: the budget.
        profile: that it is kept on.
        predicted: what the model costs by the profile, in its unit.
        promised: what it costs at most; none where the profile promises nothing.
    """

    wish: BudgetWish
    profile: Profile
    predicted: float
    promised: float | None

    @property
    def allowed(self) -> float:
        """The budget in the profile's unit."""
        return self.wish.value * (self.profile.base if self.wish.unit == "x" else 1.0)

    @property
    def record(self) -> BudgetRecord:
        """As a recipe holds it."""
        unit = self.profile.unit if self.profile.unit == "bytes" else f"{self.profile.unit} forward"
        quantile, digest = self.wish.quantile or self.profile.quantile, self.profile.digest
        return BudgetRecord(
            value=self.allowed,
            unit=unit,
            quantile=quantile,
            profile=digest,
            predicted=self.predicted,
            promised=self.promised,
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it, for machines and for the text of a command."""
        profile, place = self.profile, self.profile.fingerprint
        setting = f"{place.device}, threads: {place.threads}, rows: {place.batch}, {place.dtype}"
        told = {"asked": str(self.wish), "setting": setting, "base": profile.base, "method": profile.method}
        return {**self.record.model_dump(), **told, "delta": profile.delta if profile.method == "stacks" else None}


@dataclass(frozen=True, eq=False)
class Budgets:
    """What a task's model may cost; all of it holds.

    Args:
        wishes: the budgets.
        profiles: by which they are kept: each budget on every profile in its unit, a multiple of the base on each.
    """

    wishes: tuple[BudgetWish, ...]
    profiles: tuple[Profile, ...]

    def __post_init__(self) -> None:
        if not self.wishes:
            raise InvalidSettings("a profile alone bounds nothing: say --budget 8ms, or leave out --profile")
        if not self.profiles:
            raise InvalidSettings(
                f"a budget of {self.wishes[0]} needs a profile: give one that `smatter profile` wrote with --profile"
            )
        units = [profile.unit for profile in self.profiles]
        for wish in self.wishes:
            if wish.unit not in (*units, "x"):
                raise InvalidProfile(f"a budget of {wish} needs a profile in {wish.unit}, not in {', '.join(units)}")
        for profile in self.profiles:
            if not self._on(profile):
                raise InvalidSettings(f"no budget is in {profile.unit}: say one, or leave out the profile in it")

    @classmethod
    def of(cls, budget: Any, profile: Any) -> Budgets:
        """Budgets in words or as wishes, on profiles or their files; one of each, or several."""
        wishes = _several(budget, (str, BudgetWish))
        profiles = _several(profile, (str, Path, Profile))
        return cls(
            tuple(each if isinstance(each, BudgetWish) else parse_budget(each) for each in wishes),
            tuple(each if isinstance(each, Profile) else read_profile(each) for each in profiles),
        )

    def check_fits(self, library: Library, bank: PlacedBank) -> None:
        """Refuse profiles of another network or of other units, and units that no profile prices."""
        if bank.bank.units == "elements":
            raise InvalidSettings("single elements have no price in a profile: train experts with --units groups")
        rank = bank.bank.rank if bank.bank.units == "components" else None
        for profile in self.profiles:
            at = profile.fingerprint
            now = fingerprint(library, at.threads, at.batch, dtype=at.dtype, length=at.length, rank=rank)
            profile.check_network(now)

    @property
    def allowances(self) -> list[float]:
        """What modules may cost together on each profile, in shares of its base; refused where the base is dearer."""
        return [
            min(allowance(wish, base=profile.base, bend=profile.bend, unit=profile.unit, quantile=profile.quantile,
                          **_bound(wish, profile)) for wish in self._on(profile))
            for profile in self.profiles
        ]  # fmt: skip

    def ranked(self, bank: PlacedBank, gates: Values, values: Floats) -> Ranked:
        """The units that a task opens, by module, with their costs on each profile; best first.

        Args:
            bank: whose units they are; they are called by their numbers in it.
            gates: how far each is open, (n_units,).
            values: what each adds, (n_units,).
        """
        modules = {}
        for name, numbers in unit_slots(bank).items():
            opened = numbers[gates[numbers] > 0]
            if not opened.size:
                continue
            order = opened[np.argsort(-values[opened], kind="stable")]
            on, costs = zip(*(_costs(profile, name, len(numbers)) for profile in self.profiles), strict=True)
            modules[name] = RankedModule(
                tuple(order.tolist()), values[order], np.stack(costs)[:, : len(order)], np.array(on)
            )
        return Ranked(modules, tuple(f"base on profile {number + 1}" for number in range(len(self.profiles))))

    def spent(self, active: Stack) -> tuple[Spent, ...]:
        """What a model costs beside each budget, by the active fraction of each module."""
        found = []
        for profile in self.profiles:
            predicted = float(profile.predict(active)[0])
            for wish in self._on(profile):
                found.append(Spent(wish, profile, predicted, _promised(wish, profile, predicted)))
        return tuple(found)

    def _on(self, profile: Profile) -> list[BudgetWish]:
        return [wish for wish in self.wishes if wish.unit in (profile.unit, "x")]


@dataclass(frozen=True)
class Reach:
    """What budgets a profile can keep, in its unit and in multiples of its base.

    Args:
        base: a pass with nothing open.
        everything: one with all units of all modules open.
        smallest: the smallest budget, which opens nothing; by the profile's bound, where it has one.
        largest: the smallest budget that everything fits.
        smallest_multiple, largest_multiple: the same as multiples of the base.
    """

    base: float
    everything: float
    smallest: float
    largest: float
    smallest_multiple: float
    largest_multiple: float


def reach(profile: Profile) -> Reach:
    """What a budget buys at the least and at the most."""
    base, everything = profile.base, float(profile.predict(dict.fromkeys(profile.costs, 1.0))[0])
    whole, multiple = BudgetWish(1.0, "ms"), BudgetWish(1.0, "x")
    return Reach(
        base,
        everything,
        smallest=_most(whole, profile, base),
        largest=_most(whole, profile, everything),
        smallest_multiple=_most(multiple, profile, base) / base,
        largest_multiple=_most(multiple, profile, everything) / base,
    )


def unit_slots(bank: PlacedBank) -> dict[str, NDArray[np.int64]]:
    """Numbers in a bank of the units of each module, of each rest, or of each operator, as profiles name these."""
    slots: dict[str, NDArray[np.int64]] = {}
    rank = bank.bank.rank
    if bank.bank.units == "components":
        return {name: np.arange(rank) + number * rank for number, name in enumerate(bank.factors)}
    for module, own in bank.numbering.units.items():
        numbers, n_groups = np.arange(own.first, own.first + own.n_units), len(own.groups)
        slots |= {module: numbers[:n_groups], module + REST: numbers[n_groups:]}
    return {name: numbers for name, numbers in slots.items() if numbers.size}


def open_fractions(bank: PlacedBank, gates: Values) -> Stack:
    """The active fraction of each module that a task opens units of."""
    shares = {name: float((gates[numbers] > 0).mean()) for name, numbers in unit_slots(bank).items()}
    return {name: share for name, share in shares.items() if share}


def _costs(profile: Profile, name: str, n_units: int) -> tuple[float, Floats]:
    if name not in profile.costs:
        raise InvalidProfile(f"the profile knows no module {name[:100]!r}, which experts open: profile this network")
    return unit_costs(profile.model.costs[name], n_units, LEAST if profile.method in TIMED else 0.0)


def _bound(wish: BudgetWish, profile: Profile) -> dict[str, float]:
    """By how much what is measured may exceed what is predicted: of the whole, or of what deltas add."""
    if wish.unit == "x" and np.isfinite(profile.extra_factor):
        return {"extra_factor": profile.extra_factor}
    return {"kappa": profile.kappa, "epsilon": profile.epsilon}


def _promised(wish: BudgetWish, profile: Profile, predicted: float) -> float | None:
    return None if profile.method == "micro-benchmarks" else _most(wish, profile, predicted)


def _most(wish: BudgetWish, profile: Profile, predicted: float) -> float:
    """What is predicted, with all that is added before it is compared with a budget."""
    bound = _bound(wish, profile)
    most = profile.base + bound.get("extra_factor", 1.0) * (predicted - profile.base)
    return bound.get("kappa", 1.0) * most + bound.get("epsilon", 0.0)


def _several(given: Any, kinds: tuple[type, ...]) -> Sequence[Any]:
    """One or several as several."""
    return (given,) if isinstance(given, kinds) else tuple(given or ())
