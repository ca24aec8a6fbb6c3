"""A bank of experts: one delta that all tasks share, and for each expert a mask over its units.

    D = sum_m alpha_m (z_m * delta)

It is one safetensors file, known by the sha256 of its bytes: tensors `values` (float16, those of units that some expert
opens) and `masks` (uint8, experts x units), and in the metadata, under `smatter_experts`, what they are of. Whoever
expands it does so in one order of float32 operations, so that the same recipe gives the same bits everywhere.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smatter.compose.experts import MAX_EXPERTS, ExpertMix
from smatter.errors import InvalidRecipe, InvalidRouter, NotFound
from smatter.files.fields import Digest, TensorName, first_mistake
from smatter.files.reading import header_of, parse_json, regular_file_size
from smatter.files.writing import encode_header, write_file
from smatter.records import Partition, TensorSpec
from smatter.settings.training import UnitKind
from smatter.units.numbering import Numbering, find_matrices

KEY = "smatter_experts"
BANK = "experts.safetensors"
"""Its name in a router's folder."""
Values = NDArray[np.float32]


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = Field(alias="schema")
    units: UnitKind
    rank: int = Field(ge=1, le=100_000)
    base: Digest
    partition: Digest
    tensors: tuple[TensorName, ...]


@dataclass(frozen=True)
class Bank:
    """A shared delta and the masks of its experts.

    Args:
        values: those of the delta in units that some expert opens, in order, float16; (n,).
        masks: whether an expert opens a unit, (n_experts, n_units).
        units: what a unit is.
        rank: components of each matrix, where these are the units.
        base: content digest of the library's base.
        partition: digest of its modules.
        tensors: the tensors that take part, by name on disk.
        digest: of its file.
    """

    values: NDArray[np.float16]
    masks: NDArray[np.bool_]
    units: UnitKind
    rank: int
    base: str
    partition: str
    tensors: tuple[str, ...]
    digest: str = ""

    def __post_init__(self) -> None:
        if self.masks.ndim != 2 or not 1 <= len(self.masks) <= MAX_EXPERTS or self.values.ndim != 1:
            raise InvalidRouter(f"masks {list(self.masks.shape)} and values {list(self.values.shape)} are no experts")
        if not np.isfinite(self.values).all():
            raise InvalidRouter("the experts' values are NaN, Inf or beyond float16: train with a lower rate")
        if not self.digest:
            object.__setattr__(self, "digest", hashlib.sha256(b"".join(self.encoded)).hexdigest())

    @property
    def encoded(self) -> tuple[bytes, bytes, bytes]:
        """The bytes of its file: header, values, masks."""
        header = {
            "schema": 1,
            "units": self.units,
            "rank": self.rank,
            "base": self.base,
            "partition": self.partition,
            "tensors": self.tensors,
        }
        specs = [("values", TensorSpec("F16", self.values.shape)), ("masks", TensorSpec("U8", self.masks.shape))]
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
        return encode_header(specs, {KEY: text}), self.values.tobytes(), self.masks.astype(np.uint8).tobytes()

    def write(self, path: Path) -> None:
        """Save it; an existing file is replaced in one step."""
        write_file(path, *self.encoded)

    def gates(self, mix: ExpertMix) -> Values:
        """How far each unit is open for a task, (n_units,)."""
        n_experts, n_units = self.masks.shape
        if len(mix.alpha) != n_experts:
            raise InvalidRecipe(f"weights of {len(mix.alpha)} experts, and the bank has {n_experts}: make them anew")
        result = np.zeros(n_units, np.float32)
        if mix.opened is None:
            for weight, mask in zip(mix.alpha, self.masks, strict=True):
                result += np.float32(weight) * mask
            return result
        units = mix.opened.indices
        if units.size and int(units[-1]) >= n_units:
            raise InvalidRecipe(f"unit {units[-1]} is open and the bank has {n_units}: make the recipe again")
        result[units] = mix.opened.values
        return result


@dataclass(frozen=True)
class PlacedBank:
    """A bank and the network that it is for.

    Args:
        bank: the experts.
        numbering: the parameters of the network.
    """

    bank: Bank
    numbering: Numbering

    @classmethod
    def of(
        cls, bank: Bank, specs: Mapping[str, TensorSpec], config: Mapping[str, Any], partition: Partition
    ) -> "PlacedBank":
        """Put a bank in its place; refuses one that is for another network.

        Args:
            bank: the experts.
            specs: tensors of the network, by name on disk.
            config: the content of config.json.
            partition: its modules.
        """
        if bank.partition != partition.digest or not set(bank.tensors) <= set(specs):
            raise InvalidRecipe("the experts are of a network with other modules: use the library they were trained on")
        placed = cls(bank, Numbering.of(specs, config, partition, bank.tensors))
        if tuple(placed.numbering.tensors) != bank.tensors:
            raise InvalidRecipe("the experts are of a library whose modules have another order: restore library.json")
        n_units = int(placed.unit_of.max(initial=-1)) + 1
        if n_units != bank.masks.shape[1] or int(placed.is_open.sum()) != len(bank.values):
            raise InvalidRecipe(f"the experts are of a network with other units than these {n_units}: train them anew")
        return placed

    @cached_property
    def unit_of(self) -> NDArray[np.int32]:
        """The unit of each value of the delta, (n_values,)."""
        numbering, rank = self.numbering, self.bank.rank
        if self.bank.units == "groups":
            return numbering.unit_of
        if self.bank.units == "elements":
            return np.arange(numbering.n_parameters, dtype=np.int32)
        parts = [np.zeros(0, np.int32)]
        for number, matrix in enumerate(find_matrices(numbering, rank)):
            own = np.arange(number * rank, (number + 1) * rank, dtype=np.int32)
            parts += [own.repeat(matrix.n_rows), own.repeat(matrix.n_columns)]
        return np.concatenate(parts)

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """Whether some expert opens the unit of each value, (n_values,)."""
        is_used: NDArray[np.bool_] = self.bank.masks.sum(axis=0) > 0
        return is_used[self.unit_of]

    @cached_property
    def values(self) -> Values:
        """The values of the delta, (n_values,); zero where no expert uses them."""
        result = np.zeros(len(self.unit_of), np.float32)
        result[self.is_open] = self.bank.values
        return result

    @cached_property
    def factors(self) -> dict[str, tuple[Values, Values]]:
        """Of rank components: columns of B, (rank, n_rows), and rows of A, (rank, n_columns), by tensor."""
        found, position, rank = {}, 0, self.bank.rank
        for matrix in find_matrices(self.numbering, rank):
            middle = position + rank * matrix.n_rows
            end = middle + rank * matrix.n_columns
            left, right = self.values[position:middle], self.values[middle:end]
            found[matrix.tensor], position = (left.reshape(rank, -1), right.reshape(rank, -1)), end
        return found

    def vector(self, gates: Values) -> Values:
        """D for how far each unit is open, as a vector of the network's parameters, (n_parameters,)."""
        if self.bank.units != "components":
            return self.values * gates[self.unit_of]
        result, first = np.zeros(self.numbering.n_parameters, np.float32), 0
        for tensor, (left, right) in self.factors.items():
            own = result[self.numbering.tensors[tensor]].reshape(left.shape[1], right.shape[1])
            for column, row, gate in zip(left, right, gates[first : first + len(left)], strict=True):
                # One rounding for each product and sum, as a fused multiply-add has.
                own[:] = own + np.multiply.outer((column * gate).astype(np.float64), row.astype(np.float64))
            first += len(left)
        return result

    @property
    def shares(self) -> list[float]:
        """Share of the delta's values that each expert uses, then all together; (n_experts + 1)."""
        sizes = np.bincount(self.unit_of)
        masks = [*self.bank.masks, self.bank.masks.any(axis=0)]
        return [float(sizes[mask].sum() / sizes.sum()) for mask in masks]

    @property
    def overlaps(self) -> list[list[float]]:
        """What each two experts have in common, as a share of the values that either uses; (n_experts, n_experts)."""
        sizes = np.bincount(self.unit_of)
        masks = self.bank.masks
        common = (masks * sizes) @ masks.T
        own = common.diagonal()
        shares: list[list[float]] = (common / (own[:, None] + own - common).clip(min=1)).tolist()
        return shares


def read_bank(path: Path, digest: str | None = None) -> Bank:
    """Open a bank.

    Args:
        path: its file.
        digest: the sha256 that the file must have; any by default.
    """
    regular_file_size(path)
    return parse_bank(path.read_bytes(), path, digest)


def parse_bank(data: bytes, path: Path, digest: str | None = None) -> Bank:
    """The bank in the bytes of a file, which are those that its digest is of; see `read_bank`."""
    found = hashlib.sha256(data).hexdigest()
    if digest is not None and found != digest:
        raise InvalidRouter(f"{path} is not the bank of experts that it was: restore it, or train the router again")
    file = header_of(BytesIO(data), len(data), path)
    dtypes = {name: placed.spec.dtype for name, placed in file.tensors.items()}
    if KEY not in file.metadata or dtypes != {"values": "F16", "masks": "U8"}:
        raise InvalidRouter(f"{path} is not a bank of experts: give one that `smatter train` wrote")
    try:
        header = _Header.model_validate(parse_json(file.metadata[KEY].encode(), path))
    except ValidationError as error:
        raise InvalidRouter(f"{path} is not a bank of experts ({first_mistake(error)}): train again") from None
    half, byte = file.tensors["values"], file.tensors["masks"]
    values = np.frombuffer(data, np.float16, half.spec.n_elements, half.offset).reshape(half.spec.shape)
    masks = np.frombuffer(data, np.uint8, byte.spec.n_elements, byte.offset).reshape(byte.spec.shape)
    if masks.max(initial=0) > 1:
        raise InvalidRouter(f"{path} has masks that are not zeros and ones: train the router again")
    told = {name: getattr(header, name) for name in ("units", "rank", "base", "partition", "tensors")}
    return Bank(values, masks.astype(np.bool_), **told, digest=found)


def router_bank(folder: str | Path) -> Bank:
    """The bank of a router, from its folder."""
    return read_bank(bank_of(folder))


def bank_of(folder: str | Path) -> Path:
    """Where the bank of a router is."""
    path = Path(folder) / BANK
    if not path.is_file():
        raise NotFound(f"{folder} has no {BANK}: give the folder of a router that `smatter train` wrote with --experts")
    return path
