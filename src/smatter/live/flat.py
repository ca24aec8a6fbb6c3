"""All parameters of a live network as one vector, module after module: where a residual and its gradient live."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidSettings
from smatter.live.mixture import LiveMixture
from smatter.route.router import Units
from smatter.units.groups import find_groups
from smatter.units.layouts import Layout, LowRank, Masked, Matrix


class FlatView:
    """The tensors that the backbone uses, side by side in a vector.

    Args:
        live: the network.
    """

    def __init__(self, live: LiveMixture) -> None:
        self.live = live
        self.slices: dict[str, slice] = {}
        self.modules: dict[str, slice] = {}
        position = 0
        for module, names in live.library.partition.modules.items():
            begin = position
            for name in names:
                if name in live.parameters:
                    self.slices[name] = slice(position, position + live.specs[name].n_elements)
                    position = self.slices[name].stop
            if position > begin:
                self.modules[module] = slice(begin, position)
        self.n_parameters = position

    def residual(self, vector: Tensor) -> Residual:
        """A vector as a dense residual of the tensors where it is not zero; views, not copies."""
        parts = {name: vector[where].reshape(self.live.specs[name].shape) for name, where in self.slices.items()}
        return Residual(dense={name: part.numpy() for name, part in parts.items() if bool(part.any())})

    def compact(self, vector: Tensor) -> Residual | None:
        """A vector as a recipe holds it: single elements where they take less room than the tensor; None if zero."""
        elements, dense = {}, {}
        for name, values in self.residual(vector).dense.items():
            indices = np.flatnonzero(values)
            if 3 * indices.size < values.size:  # an index takes as much as two values
                elements[name] = Elements(indices.astype(np.int64), values.reshape(-1)[indices].copy())
            else:
                dense[name] = values.copy()
        return Residual(elements, dense) if elements or dense else None

    def gradient(self) -> Tensor:
        """The gradient of the last backward pass, (n_parameters,); zero where there is none."""
        result = torch.zeros(self.n_parameters)
        for name, where in self.slices.items():
            part = self.live.gradient(name)
            if part is not None:
                result[where] = part
        return result

    def layout(self, units: Units, rank: int) -> Layout:
        """What one gate of the experts switches: see `RouterSettings`."""
        if units == "elements":
            return Masked(torch.arange(self.n_parameters))
        if units == "groups":
            return Masked(self._groups())
        matrices = []
        for name, where in self.slices.items():
            spec = self.live.specs[name]
            n_columns = spec.n_elements // spec.shape[0] if spec.shape else 1
            if min(spec.n_elements // n_columns, n_columns) > rank:
                matrices.append(Matrix(where.start, spec.shape[0], n_columns))
        if not matrices:
            raise InvalidSettings(f"no matrix of the network has a rank above {rank}: give a smaller --rank")
        return LowRank(self.n_parameters, matrices, rank)

    def _groups(self) -> Tensor:
        """The unit of each parameter, (n_parameters,): groups of each module, and the rest of it as one unit more."""
        library = self.live.library
        groups = find_groups(self.live.specs, library.base.config, library.partition)
        unit_of = torch.full((self.n_parameters,), -1)
        n_units = 0
        for module, where in self.modules.items():
            for group in groups.get(module, ()):
                for part in group.slices:
                    if part.tensor in self.slices:
                        own = unit_of[self.slices[part.tensor]].view(self.live.specs[part.tensor].shape)
                        own[part.index] = n_units
                n_units += 1
            rest = unit_of[where]
            if bool((rest < 0).any()):
                rest[rest < 0] = n_units
                n_units += 1
        return unit_of
