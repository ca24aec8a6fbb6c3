"""One network in memory whose weights are whatever mixture was last asked for, with gradients.

Sources stay on disk, mapped; what is kept here is one network in float32 and, for a moment, one gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smatter.backbones.network import CHUNK, Inputs, chunks
from smatter.compose.execute import ranges
from smatter.compose.kernel import as_float32
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.errors import InvalidSupport
from smatter.files.arrays import as_torch
from smatter.library.library import Library
from smatter.live.objectives import Objective
from smatter.live.resident import Resident
from smatter.records import TensorSpec
from smatter.settings import UnitKind
from smatter.tasks.support import Kind
from smatter.units.layouts import Layout, make_layout
from smatter.units.numbering import Numbering

DOT_BLOCK = 1 << 18
"""Elements per inner product in float32; the sum over blocks is in float64."""


class LiveMixture:
    """A library's network in memory.

    Mixtures are composed in float32 whatever the sources' dtype, so that a loss is smooth in the weights; an export
    of the same recipe is rounded to the base's dtype once more.

    Args:
        library: its sources are checked against their digests first.

    `n_forwards` and `n_backwards` count how often rows were passed one way and both ways.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.n_forwards, self.n_backwards = 0, 0
        self._resident = Resident(library)
        self.network, self.specs = self._resident.network, self._resident.specs
        self.parameters: dict[str, torch.nn.Parameter] = {
            disk: getattr(module, name).requires_grad_() for disk, (module, name) in self._resident.leaves.items()
        }
        self._layouts: dict[tuple[UnitKind, int], Layout] = {}

    @cached_property
    def live_modules(self) -> frozenset[str]:
        """Modules that the backbone uses; a task's old head is none."""
        return frozenset(self.library.partition.module_of(name) for name in self.parameters)

    @cached_property
    def numbering(self) -> Numbering:
        """The parameters that the backbone uses as one vector, and their units."""
        library = self.library
        return Numbering.of(self.specs, library.base.config, library.partition, self.parameters)

    def layout(self, units: UnitKind, rank: int) -> Layout:
        """What one gate of a correction switches; made once."""
        key = units, rank if units == "components" else 0
        if key not in self._layouts:
            self._layouts[key] = make_layout(self.numbering, units, rank)
        return self._layouts[key]

    def compose(self, mixture: Mixture, residual: Residual | None = None) -> None:
        """Give the network these weights."""
        self._resident.compose(mixture, residual)

    def prepare(self, inputs: Sequence[Any] | Tensor, kind: Kind) -> Inputs:
        """Pictures, texts or prepared tensors as arguments of the forward pass."""
        if (kind == "images") != self.network.takes_images:
            takes = "images" if self.network.takes_images else "texts"
            raise InvalidSupport(f"the library's network takes {takes}, not {kind}: use a library made for {kind}")
        return self._resident.prepare(inputs)

    def pictures(self, values: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
        """Pictures of one size, (n, height, width, 3), as prepared pixels."""
        return self._resident.preprocessing.scaled(values)

    def examples(self, values: Sequence[str] | np.ndarray[Any, np.dtype[np.uint8]]) -> Inputs:
        """Examples of a suite, texts or pictures of one size, as arguments of the forward pass."""
        if isinstance(values, np.ndarray):
            return {"pixel_values": self.pictures(values)}
        return self.prepare(values, "texts")

    def features(self, inputs: Inputs) -> Tensor:
        """Features of all rows, (n, d), in bounded memory and without gradient."""
        self.n_forwards += 1
        with torch.no_grad():
            return torch.cat([self.network.features(part) for part in chunks(inputs)])

    def read(self, objective: Objective, inputs: Inputs | None = None) -> Tensor:
        """What an objective needs of all its rows, or of others, in bounded memory and without gradient."""
        self.n_forwards += 1
        with torch.no_grad():
            parts = chunks(objective.inputs if inputs is None else inputs)
            return torch.cat([objective.read(self.network, part) for part in parts])

    def loss(self, objective: Objective) -> float:
        """The mean loss at the present weights."""
        return float(objective.losses(self.read(objective)).mean())

    def backward(self, objective: Objective) -> float:
        """The mean loss, and its gradient in `parameters`: one backward pass over all rows.

        More rows than one pass holds are passed forward twice: first for the readings, which the losses need of all
        rows, then part by part with the gradient of the readings given.
        """
        self.forget()
        self.n_backwards += 1
        parts = list(chunks(objective.inputs))
        with torch.enable_grad():
            if len(parts) == 1:
                loss = objective.losses(objective.read(self.network, parts[0])).mean()
                loss.backward()
                return float(loss.detach())
            read = self.read(objective).requires_grad_()
            loss = objective.losses(read).mean()
            (slopes,) = torch.autograd.grad(loss, read)
            for part, slope in zip(parts, slopes.split(CHUNK), strict=True):
                objective.read(self.network, part).backward(slope)
        return float(loss.detach())

    def forget(self) -> None:
        """Free the gradient."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def gradient(self, name: str) -> Tensor | None:
        """The gradient in a tensor, flat; None where the backbone does not use it."""
        parameter = self.parameters.get(name)
        return None if parameter is None or parameter.grad is None else parameter.grad.reshape(-1)

    def gradient_vector(self) -> Tensor:
        """The gradient of the last backward pass, (n_parameters,), as `numbering` has it; zero where there is none."""
        result = self.numbering.zeros()
        for name, where in self.numbering.tensors.items():
            part = self.gradient(name)
            if part is not None:
                result[where] = part
        return result

    def inner_products(self, sources: Sequence[str]) -> Tensor:
        """<gradient, source> per module, (n_modules, n_sources), in float64; sources are read where they lie."""
        modules = self.library.partition.modules
        result = torch.zeros(len(modules), len(sources), dtype=torch.float64)
        for row, names in enumerate(modules.values()):
            for name in names:
                gradient = self.gradient(name)
                if gradient is None:
                    continue
                for column, source in enumerate(sources):
                    result[row, column] += self._inner_product(gradient, source, name)
        return result

    def _inner_product(self, gradient: Tensor, source: str, name: str) -> float:
        dtype, total = self.library.spec(source, name).dtype, 0.0
        for start, stop in ranges(gradient.numel(), DOT_BLOCK):
            block = as_float32(self.library.read(source, name, start, stop), dtype)
            values = as_torch(block, TensorSpec("F32", block.shape))
            total += float(torch.dot(gradient[start:stop], values))
        return total
