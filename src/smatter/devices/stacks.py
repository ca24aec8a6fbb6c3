"""Whole stacks to time: a network on this device, with random units of its modules active."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from smatter.backbones.network import Inputs
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.devices.fingerprint import Fingerprint, fingerprint
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.runtime.deltas import Deltas
from smatter.runtime.gates import SharedDelta
from smatter.runtime.shared import SharedRuntime
from smatter.runtime.units import RankComponents, Units, group_units, rank_units
from smatter.settings.devices import DeviceSetting
from smatter.units.numbering import REST

DELTA_SIZE = 1e-3
"""Of the numbers in a delta that is only timed: small, so that nothing overflows, and not zero."""

Stack = Mapping[str, float]
"""Active fraction of each module that has any active group, and one for each rest that is active."""


class Bench:
    """A network with a delta in all units, ready to be timed.

    Args:
        library: whose base is timed.
        setting: how.
    """

    def __init__(self, library: Library, setting: DeviceSetting) -> None:
        self.library, self.setting = library, setting
        self.runtime = SharedRuntime(library, {"base": Mixture.of({library.manifest.base: 1.0})}, setting.dtype)
        self.base = self.runtime.bases["base"]
        self.n_groups: dict[str, int] = {}
        self.delta = SharedDelta(self._units())
        if not self.n_groups:
            raise InvalidSettings(f"no groups are known in a {library.manifest.architecture}: use the merged runtime")
        self.inputs = self._inputs()
        self.length = next(iter(self.inputs.values())).shape[-1]

    def _units(self) -> Units:
        in_groups = set()
        for module, units in self.runtime.numbering.units.items():
            tensors = {part.tensor for group in units.groups for part in group.slices}
            if any(self.base.places[tensor].kind == "linear" for tensor in tensors & self.base.places.keys()):
                self.n_groups[module] = len(units.groups)
                in_groups |= tensors
        generator = torch.Generator().manual_seed(0)
        values = {
            disk: DELTA_SIZE * torch.randn(self.runtime.specs[disk].shape, generator=generator)
            for disk, place in self.base.places.items()
            # A scale is zero in some networks; a norm that is cut by groups cannot be opened by them.
            if place.kind != "scale" and (place.kind == "linear" or disk not in in_groups)
        }
        partition = self.library.partition
        return group_units(values, self.base.places, self.runtime.numbering, partition, self.base.tensors)

    def _inputs(self) -> Inputs:
        setting, network = self.setting, self.base.resident.network
        try:
            inputs = network.random_inputs(setting.batch, setting.length)
            self.base.features({name: tensor[:1] for name, tensor in inputs.items()}, [])
        except Exception as error:
            reason = " ".join(str(error).split())[:150]
            raise InvalidSettings(
                f"the network takes no inputs of length {setting.length} ({reason}): give another --length"
            ) from None
        return inputs

    @property
    def fingerprint(self) -> Fingerprint:
        """Of this device, setting and network."""
        setting = self.setting
        return fingerprint(
            self.library, setting.threads, setting.batch, dtype=setting.dtype, length=self.length, rank=setting.rank
        )

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Of each module and rest: those with tensors of the same shapes are of one kind."""
        specs, kinds = self.runtime.specs, {}
        for module, tensors in self.library.partition.modules.items():
            if any(tensor in self.base.places for tensor in tensors):
                kind = "; ".join(str(specs[tensor].shape) for tensor in sorted(tensors))
                if module in self.n_groups:
                    kinds[module] = kind
                kinds[module + REST] = kind + REST
        return kinds

    @property
    def rests(self) -> frozenset[str]:
        """Names of what is either off or on."""
        return frozenset(name for name in self.kinds if name.endswith(REST))

    def plain(self) -> Callable[[], object]:
        """A forward pass without any delta."""
        return lambda: self.base.features(self.inputs, [])

    def case(self, stack: Stack, seed: int) -> Callable[[], object]:
        """A forward pass of one task in which random groups are active, as many as the stack says."""
        segments = [(0, self.setting.batch, self.deltas(stack, seed))]
        return lambda: self.base.features(self.inputs, segments)

    def split_case(self, stack: Stack) -> Callable[[], object]:
        """The same with a task for each row, each with random groups of its own."""
        segments = [(row, row + 1, self.deltas(stack, row)) for row in range(self.setting.batch)]
        return lambda: self.base.features(self.inputs, segments)

    def deltas(self, stack: Stack, seed: int) -> Deltas:
        """What such a task adds."""
        generator, opened = np.random.default_rng(seed), {}
        for module, n_units in self.delta.n_units.items():
            gates, n_groups = np.zeros(n_units), self.n_groups.get(module, 0)
            gates[generator.permutation(n_groups)[: round(stack.get(module, 0.0) * n_groups)]] = 1.0
            if n_units > n_groups:
                gates[-1] = float(stack.get(module + REST, 0.0) > 0)
            if gates.any():
                opened[module] = gates.tolist()
        return self.delta.packed(opened)

    def residual(self, stack: Stack, seed: int) -> Residual:
        """A task as a residual with such groups."""
        generator, specs = np.random.default_rng(seed), self.runtime.specs
        dense: dict[str, NDArray[np.float32]] = {}
        for module, n_groups in self.n_groups.items():
            for number in generator.permutation(n_groups)[: round(stack.get(module, 0.0) * n_groups)]:
                for part in self.runtime.numbering.units[module].groups[number].slices:
                    if part.tensor in self.base.places:
                        values = dense.setdefault(part.tensor, np.zeros(specs[part.tensor].shape, np.float32))
                        values[part.index] = DELTA_SIZE * generator.standard_normal(values[part.index].shape)
        return Residual(dense=dense)

    def random_stack(self, generator: np.random.Generator) -> Stack:
        """Some modules on, in a share that varies, each with a random number of groups; rests likewise."""
        is_on, reach, is_rest_on = generator.random(3)
        stack: dict[str, float] = {}
        for name in self.kinds:
            if name.endswith(REST):
                if generator.random() < is_rest_on:
                    stack[name] = 1.0
            elif generator.random() < is_on:
                most = max(1, round(reach * self.n_groups[name]))
                stack[name] = int(generator.integers(1, most + 1)) / self.n_groups[name]
        return stack


class RankBench(Bench):
    """The same with rank components of operators instead of groups of modules."""

    def _units(self) -> Units:
        rank, generator, factors = self.setting.rank, torch.Generator().manual_seed(0), {}
        assert rank is not None
        for disk, place in self.base.places.items():
            if place.kind == "linear" and disk == place.key:
                shape = self.base.tensors[disk].shape
                n_out, n_in = shape[::-1] if place.is_transposed else shape
                left, right = (torch.randn(side, generator=generator) for side in ((n_out, rank), (rank, n_in)))
                factors[disk] = DELTA_SIZE * left, right
                self.n_groups[disk] = rank
        return rank_units(RankComponents(factors), self.base.places, self.base.tensors)

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Of each operator: those of the same shape are of one kind."""
        return {disk: str(self.runtime.specs[disk].shape) for disk in self.n_groups}

    def residual(self, stack: Stack, seed: int) -> Residual:
        """A task as a residual, with changes of such ranks."""
        generator, dense = np.random.default_rng(seed), {}
        for disk, rank in self.n_groups.items():
            n_active, (n_rows, n_columns) = round(stack.get(disk, 0.0) * rank), self.runtime.specs[disk].shape
            if n_active:
                left, right = (generator.standard_normal(side) for side in ((n_rows, n_active), (n_active, n_columns)))
                dense[disk] = (DELTA_SIZE * left @ right).astype(np.float32)
        return Residual(dense=dense)


def make_bench(library: Library, setting: DeviceSetting) -> Bench:
    """The bench for the units that a setting says."""
    return Bench(library, setting) if setting.rank is None else RankBench(library, setting)
