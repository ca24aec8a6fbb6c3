"""A library's network in memory whose weights are whatever mixture was last asked for.

Sources stay on disk, mapped; what is kept here is one network and, while weights are fitted, for a moment one gradient.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smatter.backbones.arithmetic import module_shares
from smatter.backbones.images import Preprocessing
from smatter.backbones.network import CHUNK, Inputs, Network, chunks, load_tensors, rows_at_once
from smatter.backbones.texts import Tokenizer, prepared_tokens
from smatter.compose.execute import Arena, as_float32, execute, ranges
from smatter.compose.mixture import Mixture
from smatter.compose.plan import make_plan
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.errors import InvalidSettings, InvalidSupport, UnsafeFile
from smatter.files.reading import as_torch, read_small_json, safe_path
from smatter.library.library import Library
from smatter.live.objectives import Objective
from smatter.records import TensorSpec
from smatter.settings.training import RouterSettings, UnitKind
from smatter.tasks.given import Kind, check_inputs, gather, several
from smatter.units.layouts import Layout, make_layout
from smatter.units.numbering import Numbering

_MAKING = threading.Lock()
"""Networks are made one at a time: what their checkpoint does not fill is drawn from torch's own generator."""

PREPROCESSOR = "preprocessor_config.json"
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}

DOT_BLOCK = 1 << 18
"""Elements per inner product in float32; the sum over blocks is in float64."""


class Resident:
    """One network and the memory of its weights.

    Args:
        library: where mixtures are composed from.
        dtype: of the weights and of all computing, "F32" or "BF16".
        what: the first weights, of a mixture or a recipe; the base's by default.
    """

    def __init__(self, library: Library, dtype: str = "F32", what: Mixture | Recipe | None = None) -> None:
        if dtype not in DTYPES:
            raise InvalidSettings(f"unknown dtype {dtype!r}: use {' or '.join(DTYPES)}")
        self.library, self.dtype = library, dtype
        self.specs = {
            name: TensorSpec(dtype, spec.shape) if spec.is_floating else spec for name, spec in library.specs.items()
        }
        self.arena = Arena(self.specs)
        with _MAKING:
            self.network = Network(library.base.config, library.specs)
        self.compose(what or Mixture.of({library.manifest.base: 1.0}))
        load_tensors(self.network.model, self.arena.tensors())
        for parameter in self.network.model.parameters():  # frequencies and the like stay as exact as they are
            parameter.requires_grad_(False)
            parameter.data = parameter.data.to(DTYPES[dtype])

    @property
    def n_bytes(self) -> int:
        """Memory of the weights."""
        return sum(spec.n_bytes for spec in self.specs.values())

    def compose(self, what: Mixture | Recipe, residual: Residual | None = None) -> None:
        """Give the network these weights; the memory stays the same.

        Args:
            what: a mixture, or a recipe with all that it adds.
            residual: a correction of the mixture.
        """
        library = self.library
        if isinstance(what, Recipe):
            plan = library.plan(what, self.specs)
        else:
            plan = make_plan(what, self.specs, library.partition, library.manifest.digests, residual)
        library.verify((*plan.sources, library.manifest.base))  # the base's files say how inputs are prepared
        execute(plan, library, self.arena)

    def features(self, inputs: Inputs) -> Tensor:
        """Features of all rows, (n, d), in bounded memory."""
        return torch.cat([self.pass_through(part) for part in chunks(inputs)])

    def pass_through(self, inputs: Inputs) -> Tensor:
        """Features of all rows at once."""
        dtype = DTYPES[self.dtype]
        given = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
        with torch.inference_mode():
            return self.network.features(given)

    def prepare(self, examples: Any, kind: Kind | None = None) -> Inputs:
        """Inputs as arguments of the forward pass.

        Args:
            examples: pictures (images, arrays or paths), texts, or a prepared tensor; one alone or several.
            kind: what they are, where they are as a support set holds them; refused where the network takes the other.
        """
        if kind is None:
            examples, found = gather(several(examples), self.network.takes_images)
            if len(examples):
                check_inputs(examples, kind := found)
        if kind is not None and (kind == "images") != self.network.takes_images:
            takes = "images" if self.network.takes_images else "texts"
            raise InvalidSupport(f"the library's network takes {takes}, not {kind}: use a library made for {kind}")
        if isinstance(examples, Tensor):
            if not self.network.takes_images:
                return prepared_tokens(examples, self.network.config)
            self.preprocessing.check(examples)
            return {"pixel_values": examples.float()}
        if self.network.takes_images:
            return {"pixel_values": self.preprocessing.pixels(examples)}
        return self._tokenizer.tokens(examples)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """How pictures become pixels that the network takes."""
        folder, preprocessor = self.library.base.folder, {}
        if PREPROCESSOR in self.library.base.files:
            preprocessor = read_small_json(safe_path(folder, PREPROCESSOR))
            if not isinstance(preprocessor, dict):
                raise UnsafeFile(f"{folder / PREPROCESSOR} is not a JSON object; copy it again")
        return Preprocessing.of(self.network.config, preprocessor)

    @property
    def n_at_once(self) -> int:
        """How many inputs to prepare at a time, so that memory stays bounded."""
        if not self.network.takes_images:
            return CHUNK
        return rows_at_once(self.preprocessing.height, self.preprocessing.width)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.of(self.network.config, self.library.base.folder)

    @cached_property
    def leaves(self) -> dict[str, tuple[nn.Module, str]]:
        """By name on disk, the last module that has a tensor as its own parameter, and the parameter's name there."""
        places = {tensor.data_ptr(): name for name, tensor in self.arena.tensors().items() if tensor.numel()}
        found: dict[str, tuple[nn.Module, str]] = {}
        for module in self.network.model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if (disk := places.get(parameter.data_ptr())) is not None:
                    found[disk] = module, name
        return found


class LiveMixture(Resident):
    """A library's network in memory, to fit weights with: it has gradients, and counts what passes.

    Mixtures are composed in float32 whatever the sources' dtype, so that a loss is smooth in the weights; an export
    of the same recipe is rounded to the base's dtype once more.

    Args:
        library: its sources are checked against their digests first.

    `n_forwards` and `n_backwards` count how often rows were passed one way and both ways.
    """

    def __init__(self, library: Library) -> None:
        library.verify()
        super().__init__(library)
        self.n_forwards, self.n_backwards = 0, 0
        self.parameters: dict[str, torch.nn.Parameter] = {
            disk: getattr(module, name).requires_grad_() for disk, (module, name) in self.leaves.items()
        }
        self._layouts: dict[tuple[UnitKind, int], Layout] = {}

    @cached_property
    def live_modules(self) -> frozenset[str]:
        """Modules that the backbone uses; a task's old head is none."""
        return frozenset(self.library.partition.module_of(name) for name in self.parameters)

    @cached_property
    def shares(self) -> dict[str, float]:
        """What each module takes of a pass, in multiply-accumulates, in the order of computing; they sum to one."""
        return module_shares(self.network, self.library.partition)

    @cached_property
    def numbering(self) -> Numbering:
        """The parameters that the backbone uses as one vector, and their units."""
        library = self.library
        return Numbering.of(self.specs, library.base.config, library.partition, self.parameters)

    def layout(self, settings: RouterSettings) -> Layout:
        """What one gate of a router's experts switches; made once."""
        key = settings.units, settings.rank
        if key not in self._layouts:
            self._layouts[key] = make_layout(self.numbering, *key)
        return self._layouts[key]

    def pictures(self, values: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
        """Pictures of one size, (n, height, width, 3), as prepared pixels."""
        return self.preprocessing.scaled(values)

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
            sizes = [len(next(iter(part.values()))) for part in parts]
            for part, slope in zip(parts, slopes.split(sizes), strict=True):
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
        result = torch.zeros(self.numbering.n_parameters)
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
