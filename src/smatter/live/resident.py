"""A library's network in memory, ready to compute features, with whatever weights were last composed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smatter.backbones.images import Preprocessing
from smatter.backbones.network import Inputs, Network, chunks
from smatter.backbones.texts import Tokenizer, prepared_tokens
from smatter.compose.arena import Arena
from smatter.compose.mixture import Mixture
from smatter.compose.plan import make_plan
from smatter.compose.residual import Residual
from smatter.errors import InvalidSettings, UnsafeFile
from smatter.files.reading import read_small_json, safe_path
from smatter.library.library import Library
from smatter.records import TensorSpec

_MAKING = threading.Lock()
"""Networks are made one at a time: what their checkpoint does not fill is drawn from torch's own generator."""

PREPROCESSOR = "preprocessor_config.json"
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


class Resident:
    """One network and the memory of its weights.

    Args:
        library: where mixtures are composed from.
        dtype: of the weights and of all computing, "F32" or "BF16".
        mixture: the first weights; the base's by default.
        residual: their correction, if any.
    """

    def __init__(
        self, library: Library, dtype: str = "F32", mixture: Mixture | None = None, residual: Residual | None = None
    ) -> None:
        if dtype not in DTYPES:
            raise InvalidSettings(f"unknown dtype {dtype!r}: use {' or '.join(DTYPES)}")
        library.verify()
        self.library, self.dtype = library, dtype
        self.specs = {
            name: TensorSpec(dtype, spec.shape) if spec.is_floating else spec for name, spec in library.specs.items()
        }
        self.arena = Arena(self.specs)
        with _MAKING:
            self.network = Network(library.base.config)
        self.compose(mixture or Mixture.of({library.manifest.base: 1.0}), residual)
        self.network.use(self.arena.tensors())
        for parameter in self.network.model.parameters():  # frequencies and the like stay as exact as they are
            parameter.requires_grad_(False)
            parameter.data = parameter.data.to(DTYPES[dtype])

    @property
    def n_bytes(self) -> int:
        """Memory of the weights."""
        return sum(spec.n_bytes for spec in self.specs.values())

    def compose(self, mixture: Mixture, residual: Residual | None = None) -> None:
        """Give the network these weights; the memory stays the same."""
        library = self.library
        plan = make_plan(mixture, self.specs, library.partition, library.manifest.digests, residual)
        self.arena.fill(plan, library)

    def features(self, inputs: Inputs) -> Tensor:
        """Features of all rows, (n, d), in bounded memory."""
        return torch.cat([self.pass_through(part) for part in chunks(inputs)])

    def pass_through(self, inputs: Inputs) -> Tensor:
        """Features of all rows at once."""
        dtype = DTYPES[self.dtype]
        given = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
        with torch.inference_mode():
            return self.network.features(given)

    def prepare(self, examples: Sequence[Any] | Tensor) -> Inputs:
        """Pictures (or their paths), texts, or a prepared tensor as arguments of the forward pass."""
        if isinstance(examples, Tensor):
            if not self.network.takes_images:
                return prepared_tokens(examples, self.network.config)
            self.preprocessing.check(examples)
            return {"pixel_values": examples.float()}
        if self.network.takes_images:
            opened = [Path(each) if isinstance(each, str) else each for each in examples]
            return {"pixel_values": self.preprocessing.pixels(opened)}
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
