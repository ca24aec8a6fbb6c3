"""The delta of a bank of experts on a base: made once, and opened by every task that uses the bank.

    sum_m alpha_m (z_m * delta) = sum over units u of gate_u * delta_u

Groups are gates where the runtime can correct all that they have values in, rank components where their matrix is a
linear operator. Other units (single elements, tensors of a network that no place has) are left to the task's own delta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smatter.compose.experts import ExpertMix
from smatter.compose.residual import Elements
from smatter.errors import InvalidResidual
from smatter.library.banks import PlacedBank
from smatter.records import Partition
from smatter.runtime.gates import OpenUnits, SharedDelta
from smatter.runtime.places import Place
from smatter.runtime.units import RankComponents, UnitPart, Units, group_units, rank_units
from smatter.units.numbering import Numbering


@dataclass(frozen=True)
class GatedBank:
    """A bank's delta on a base.

    Args:
        placed: the bank.
        delta: its units, as far as they can be gates.
        units: their numbers in the bank, by module or by operator.
        is_gate: whether a unit can be one, (n_units,).
    """

    placed: PlacedBank
    delta: SharedDelta
    units: Mapping[str, slice]
    is_gate: NDArray[np.bool_]

    def opened(self, mix: ExpertMix) -> OpenUnits:
        """What a task opens of the delta."""
        gates = np.where(self.is_gate, self.placed.bank.gates(mix), np.float32(0))
        return self.delta.opened({name: gates[own].tolist() for name, own in self.units.items()})

    def others(self, mix: ExpertMix) -> ExpertMix:
        """The same task with only those units open that cannot be gates."""
        gates = np.where(self.is_gate, np.float32(0), self.placed.bank.gates(mix))
        units = np.flatnonzero(gates)
        return replace(mix, opened=Elements(units.astype(np.int64), gates[units]))


def gate_bank(
    placed: PlacedBank, places: Mapping[str, Place], partition: Partition, base: Mapping[str, Tensor]
) -> GatedBank:
    """Make a bank's delta for the tasks that share a base.

    Args:
        placed: the bank.
        places: of the network, by names of tensors on disk.
        partition: the network's modules.
        base: the tensors that tasks share.
    """
    if placed.bank.units == "groups":
        return _gate_groups(placed, places, partition, base)
    is_gate = np.zeros(placed.bank.masks.shape[1], bool)
    if placed.bank.units == "elements":
        return GatedBank(placed, SharedDelta(Units({}, {})), {}, is_gate)
    factors, units, rank = {}, {}, placed.bank.rank
    for number, (name, (left, right)) in enumerate(placed.factors.items()):
        place = places.get(name)
        if place is not None and place.kind == "linear" and place.key == name:
            computed, read = (right, left) if place.is_transposed else (left, right)
            factors[name] = torch.from_numpy(computed).T, torch.from_numpy(read)
            units[name] = slice(number * rank, (number + 1) * rank)
            is_gate[units[name]] = True
    delta = rank_units(RankComponents(factors), places, base) if factors else Units({}, {})
    return GatedBank(placed, SharedDelta(delta), units, is_gate)


def _gate_groups(
    placed: PlacedBank, places: Mapping[str, Place], partition: Partition, base: Mapping[str, Tensor]
) -> GatedBank:
    numbering, values = placed.numbering, placed.values
    names_at: dict[Place | None, list[str]] = {}
    for name, where in numbering.tensors.items():
        if values[where].any():
            names_at.setdefault(places.get(name), []).append(name)
    at: dict[str, dict[str, Sequence[UnitPart]]] = {module: {} for module in numbering.units}
    is_gate = np.ones(numbering.n_units, bool)
    for place, names in names_at.items():
        units = None
        if place is not None and numbering.tensors.keys() >= set(place.tensors.values()):
            parts = {name: torch.from_numpy(values[numbering.tensors[name]]) for name in names}
            wholes = {name: part.view(numbering.specs[name].shape) for name, part in parts.items()}
            units = _units_of(wholes, places, numbering, partition=partition, base=base)
        if units is None:
            for where in (numbering.tensors[name] for name in names):
                is_gate[placed.unit_of[where][values[where] != 0]] = False
            continue
        for module, own in units.at.items():
            at[module].update(own)
    n_units = {module: own.n_units for module, own in numbering.units.items()}
    numbers = {module: slice(own.first, own.first + own.n_units) for module, own in numbering.units.items()}
    return GatedBank(placed, SharedDelta(Units(n_units, at)), numbers, is_gate)


def _units_of(
    values: Mapping[str, Tensor],
    places: Mapping[str, Place],
    numbering: Numbering,
    partition: Partition,
    base: Mapping[str, Tensor],
) -> Units | None:
    """What groups do at one place; None where it cannot be opened group by group."""
    try:
        return group_units(values, places, numbering, partition, base)
    except InvalidResidual:
        return None
