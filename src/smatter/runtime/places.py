"""Where a task can differ from the base it shares: modules of the network whose outputs a hook can correct.

linear    y = W x + b
leaf      a norm or a convolution: linear in its parameters, so what they differ by is one more such module
scale     y = gamma * x, right after a linear operator
added     y = x + parameters, the same for every row
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from smatter.runtime.resident import Resident

Kind = Literal["linear", "leaf", "scale", "added"]

SCALES = {"layer_scale_parameter": "pwconv2"}
"""Parameters that a module multiplies the outputs of one of its operators by, and nothing else."""

ADDED = ("cls_token", "position_embeddings")
"""Parameters that a module of embeddings adds to its outputs, the first to the first token only."""


@dataclass(frozen=True, eq=False)
class Place:
    """A module that tasks may correct.

    Args:
        kind: what it does with its parameters.
        module: whose outputs are corrected.
        tensors: names on disk of its parameters, by their names there.
        is_transposed: whether a linear operator's weight is stored with inputs first.
    """

    kind: Kind
    module: nn.Module
    tensors: Mapping[str, str] = field(default_factory=dict)
    is_transposed: bool = False

    @property
    def key(self) -> str:
        """A name of its own: that of its first tensor on disk."""
        return next(iter(self.tensors.values()))


def find_places(resident: Resident) -> dict[str, Place]:
    """The place of each tensor that tasks may correct, by name on disk; linear operators come first."""
    from transformers.pytorch_utils import Conv1D

    owners: dict[nn.Module, dict[str, str]] = {}
    for disk, (module, name) in resident.leaves.items():
        owners.setdefault(module, {})[name] = disk
    linear, others = [], []
    for module, names in owners.items():
        if isinstance(module, nn.Linear | Conv1D):
            ordered = dict(sorted(names.items(), reverse=True))  # the weight, then the bias
            linear.append(Place("linear", module, ordered, isinstance(module, Conv1D)))
        elif not list(module.children()):
            if _is_linear_in_its_parameters(module):
                others.append(Place("leaf", module, names))
        else:
            others += [
                Place("scale", getattr(module, SCALES[name]), {name: disk})
                for name, disk in names.items()
                if name in SCALES
            ]
            if added := {name: names[name] for name in ADDED if name in names}:
                others.append(Place("added", module, added))
    return {disk: place for place in (*linear, *others) for disk in place.tensors.values()}


def with_parameters(module: nn.Module, parameters: Mapping[str, Tensor]) -> nn.Module:
    """The same function with other parameters; those that are not given are zero."""
    other = copy.copy(module)
    other._parameters = {
        name: None if own is None else nn.Parameter(parameters.get(name, torch.zeros_like(own)), requires_grad=False)
        for name, own in module._parameters.items()
    }
    other._forward_hooks = type(module._forward_hooks)()
    return other


def _is_linear_in_its_parameters(module: nn.Module) -> bool:
    """Whether a module without children is a convolution, or a norm that gives zero where its parameters are zero."""
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.LayerNorm):
        return True
    own = list(module.parameters(recurse=False))
    if not own or any(parameter.shape != own[0].shape or parameter.ndim != 1 for parameter in own):
        return False
    with torch.no_grad():
        inputs = torch.arange(1.0, len(own[0]) + 1, dtype=own[0].dtype)[None]
        return bool((with_parameters(module, {})(inputs) == 0).all())
