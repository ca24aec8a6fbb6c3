"""Which groups a task makes active: what a profile predicts its time from."""

from __future__ import annotations

from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.devices.stacks import Stack
from smatter.library.library import Library
from smatter.units.numbering import Numbering


def active_fractions(library: Library, what: Recipe | Residual | None) -> Stack:
    """The active fraction of each module that a recipe's experts and residual touch, or a residual, and of each rest.

    Single elements, biases alone and changes of low rank are served as such, so what a profile says of them is too
    high.
    """
    residual = library.correction(what) if isinstance(what, Recipe) else what
    if residual is None:
        return {}
    residual.check_fits(library.specs)
    return Numbering.of(library.specs, library.base.config, library.partition).active(residual)
