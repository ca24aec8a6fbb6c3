"""Which groups a residual makes active: what a profile predicts the time of a task from."""

from __future__ import annotations

from smatter.compose.residual import Residual
from smatter.devices.stacks import REST, Stack
from smatter.library.library import Library
from smatter.units.groups import find_groups


def active_fractions(library: Library, residual: Residual | None) -> Stack:
    """The active fraction of each module that a residual touches, and of each rest.

    A group or a rest counts as a whole if any number in it is touched. Single elements, biases alone and changes of low
    rank are served as such, so what a profile says of them is too high.
    """
    if residual is None:
        return {}
    specs, partition = library.specs, library.partition
    residual.check_fits(specs)
    touched = {name: residual.in_full(name, specs[name].shape) != 0 for name in residual.tensors}
    groups, found = find_groups(specs, library.base.config, partition), {}
    for module, tensors in partition.modules.items():
        own = groups.get(module, ())
        active = [
            any(bool(touched[part.tensor][part.index].any()) for part in group.slices if part.tensor in touched)
            for group in own
        ]
        if any(active):
            found[module] = sum(active) / len(own)
        for part in (part for group in own for part in group.slices if part.tensor in touched):
            touched[part.tensor][part.index] = False
        if any(bool(touched[tensor].any()) for tensor in tensors if tensor in touched):
            found[module + REST] = 1.0
    return found
