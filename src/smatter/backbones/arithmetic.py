"""Multiply-accumulates of a forward pass, module by module: what a part of a network costs before any clock is read.

Norms, activations and lookups count as nothing, and an operator's time is not in proportion to its products: depthwise
convolutions take longer. Where a profile was measured, its shares are better (`devices.shares`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from smatter.backbones.network import Inputs, Network, names_in_memory
from smatter.errors import IncompatibleSource
from smatter.records import Partition


def multiply_accumulates(network: Network, partition: Partition, inputs: Inputs | None = None) -> dict[str, int]:
    """Multiply-accumulates of one pass in each module, in the order in which the pass first reaches them.

    Modules that it never reaches, such as a task's old head, come last. Products outside of all modules (a pooler that
    no checkpoint has) count for the module before them, and attention counts as if nothing were masked.

    Args:
        network: live.
        partition: its modules, by names on disk.
        inputs: what passes, one random row by default; products of attention grow with the square of a text's length.
    """
    watch = _Watch(network.model, partition)
    given = network.random_inputs(1) if inputs is None else inputs
    handles: list[Any] = []
    # Of the forms of attention, torch counts the products of the plain one on every device.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), watch.counter:
        try:
            for module in network.model.modules():
                handles.append(module.register_forward_pre_hook(watch.enter))
                handles.append(module.register_forward_hook(watch.leave))
            network.features(given)
        finally:
            for handle in handles:
                handle.remove()
    reached = {module: n_operations // 2 for module, n_operations in watch.counts.items()}
    return reached | {module: 0 for module in partition.modules if module not in reached}


def module_shares(network: Network, partition: Partition, inputs: Inputs | None = None) -> dict[str, float]:
    """Share of one pass's `multiply_accumulates` in each module, in the same order; they sum to 1."""
    counts = multiply_accumulates(network, partition, inputs)
    total = sum(counts.values())
    if not total:
        raise IncompatibleSource("a pass through this network multiplies nothing: give the modules shares of your own")
    return {module: count / total for module, count in counts.items()}


class _Watch:
    """Charges what is computed to the module at work.

    Args:
        model: live.
        partition: its modules, by names on disk.
    """

    def __init__(self, model: nn.Module, partition: Partition) -> None:
        names = [disk for tensors in partition.modules.values() for disk in tensors]
        memory, tensors = names_in_memory(model, names).memory, model.state_dict(keep_vars=True)
        owner = {id(tensors[name]): partition.module_of(disk) for disk, name in memory.items()}
        self._own, self._inside = (
            {
                part: list(dict.fromkeys(owner[id(each)] for each in part.parameters(recurse) if id(each) in owner))
                for part in model.modules()
            }
            for recurse in (False, True)
        )
        self.counter = FlopCounterMode(display=False)
        self.counts: dict[str, int] = {}
        self._n_charged, self._last = 0, ""
        self._at_work: list[str] = []

    def enter(self, part: nn.Module, _: Any) -> None:
        """A part of the network begins."""
        self._charge()
        for module in self._own[part]:
            self.counts.setdefault(module, 0)
        inside = self._inside[part]
        self._last = inside[0] if len(inside) == 1 else self._last
        self._at_work.append(inside[0] if len(inside) == 1 else "")

    def leave(self, *_: Any) -> None:
        """A part of the network ends."""
        self._charge()
        self._at_work.pop()

    def _charge(self) -> None:
        """Charge what is new to the part at work, or to the last before it where its tensors are of several modules."""
        n_operations, module = self.counter.get_total_flops(), (self._at_work or [""])[-1] or self._last
        if module and n_operations > self._n_charged:
            self.counts[module] = self.counts.get(module, 0) + n_operations - self._n_charged
            self._n_charged = n_operations
