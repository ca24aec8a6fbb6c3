"""Where a task can differ from the base it shares: modules of the network whose outputs can be corrected.

linear    y = W x + b
leaf      a norm or a convolution: linear in its parameters, so what they differ by is one more such module
scale     y = gamma * x, right after a linear operator
added     y = x + parameters, the same for every row
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from smatter.backbones.gate import transformers
from smatter.live.mixture import Resident

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
        row: of parameters that are added, the shape of a row of inputs to which they are added as they are.
    """

    kind: Kind
    module: nn.Module
    tensors: Mapping[str, str] = field(default_factory=dict)
    is_transposed: bool = False
    row: tuple[int, ...] | None = None

    @property
    def key(self) -> str:
        """A name of its own: that of its first tensor on disk."""
        return next(iter(self.tensors.values()))


def find_places(resident: Resident) -> dict[str, Place]:
    """The place of each tensor that tasks may correct, by name on disk; linear operators come first.

    A forward pass is watched: a module counts if it is called once, with the rows of the batch side by side.
    """
    transposed = transformers("pytorch_utils").Conv1D
    model = resident.network.model
    n_owners = Counter(p.data_ptr() for each in model.modules() for p in each._parameters.values() if p is not None)
    owners: dict[nn.Module, dict[str, str]] = {}
    for disk, (module, name) in resident.leaves.items():
        if n_owners[getattr(module, name).data_ptr()] == 1:
            owners.setdefault(module, {})[name] = disk
    linear, others = [], []
    for module, names in owners.items():
        if type(module) in (nn.Linear, transposed):  # others may do more with their weights
            ordered = dict(sorted(names.items(), reverse=True))  # the weight, then the bias
            linear.append(Place("linear", module, ordered, isinstance(module, transposed)))
        elif not list(module.children()):
            others.append(Place("leaf", module, names))
        else:
            others += [
                Place("scale", getattr(module, SCALES[name]), {name: disk})
                for name, disk in names.items()
                if name in SCALES
            ]
            if "position_embeddings" in names:
                others.append(Place("added", module, {name: names[name] for name in ADDED if name in names}))
    fit = _fitting(resident, [*linear, *others])
    return {disk: place for place in fit for disk in place.tensors.values()}


def _fitting(resident: Resident, places: Sequence[Place]) -> list[Place]:
    """Those whose outputs have a row for each row of a batch, and as often as they are needed: once."""
    n_rows, calls, rows = 3, dict.fromkeys(places, 0), {}
    tensors = resident.arena.tensors()

    def watch(place: Place, _: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        is_fit = len(inputs) > 0 and all(
            isinstance(each, Tensor) and len(each) == n_rows for each in (inputs[0], output)
        )
        if is_fit and place.kind == "linear":
            is_fit = output.is_contiguous() and output.shape[:-1] == inputs[0].shape[:-1]
        if is_fit and place.kind == "leaf":
            is_fit = _is_linear_in_its_parameters(place.module, inputs[0])
        if is_fit and place.kind == "added":
            is_fit = output.shape[1:] == tensors[place.tensors["position_embeddings"]].shape[1:]
            rows[place] = tuple(inputs[0].shape[1:])
        calls[place] += 1 if is_fit else 2

    handles = [place.module.register_forward_hook(partial(watch, place)) for place in places]
    try:
        resident.features(resident.network.random_inputs(n_rows, 7 if not resident.network.takes_images else None))
    finally:
        for handle in handles:
            handle.remove()
    return [replace(place, row=rows.get(place)) for place, n_calls in calls.items() if n_calls == 1]


def with_parameters(module: nn.Module, parameters: Mapping[str, Tensor]) -> nn.Module:
    """The same function with other parameters; those that are not given are zero."""
    other = copy.copy(module)
    other._parameters = {
        name: None if own is None else nn.Parameter(parameters.get(name, torch.zeros_like(own)), requires_grad=False)
        for name, own in module._parameters.items()
    }
    other.__dict__.pop("forward", None)  # of a module that tasks add to already
    other._forward_hooks = type(module._forward_hooks)()
    return other


def _is_linear_in_its_parameters(module: nn.Module, inputs: Tensor) -> bool:
    """Whether a module, a norm or a convolution say, gives the sum of its outputs for the sum of two sets of them."""
    if not inputs.is_floating_point():
        return False
    generator, own = torch.Generator().manual_seed(0), dict(module.named_parameters(recurse=False))
    one, other = (
        {name: torch.randn(each.shape, generator=generator).to(each.dtype) for name, each in own.items()}
        for _ in range(2)
    )
    both = {name: one[name] + other[name] for name in own}
    try:
        first, second, sum_ = (with_parameters(module, given)(inputs) for given in (one, other, both))
        return float((first + second - sum_).abs().max()) <= 0.02 * float(sum_.abs().max())
    except Exception:  # modules of strangers raise whatever they like
        return False
