"""Which groups a residual makes active: what a profile predicts the time of a task from."""

from __future__ import annotations

from smatter.compose.residual import Residual
from smatter.devices.stacks import Stack
from smatter.library.library import Library
from smatter.units.numbering import Numbering


def active_fractions(library: Library, residual: Residual | None) -> Stack:
    """The active fraction of each module that a residual touches, and of each rest.

    Single elements, biases alone and changes of low rank are served as such, so what a profile says of them is too
    high.
    """
    if residual is None:
        return {}
    residual.check_fits(library.specs)
    return Numbering.of(library.specs, library.base.config, library.partition).active(residual)
