"""A source in a storage form: written once from a checkpoint and the base, read like a checkpoint."""

import json
import operator
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smatter.compose.execute import as_float32, ranges
from smatter.errors import IncompatibleSource, UnsafeFile
from smatter.files.reading import Array, MappedFile, parse_json
from smatter.files.writing import encode_header
from smatter.library.contents import Tensors
from smatter.library.forms import Form
from smatter.library.forms.bf16_delta import Bf16Delta
from smatter.library.forms.delta import Delta
from smatter.library.forms.int8 import Int8
from smatter.library.forms.low_rank import LowRank
from smatter.library.manifest import StorageLoss
from smatter.records import Progress, TensorSpec, silent

STORED = "stored.safetensors"
FORMS: dict[str, Form] = {"delta": Delta(), "bf16-delta": Bf16Delta(), "low-rank": LowRank(), "int8": Int8()}
"""Storage forms other than whole, by their name in a manifest."""


@dataclass(frozen=True)
class _Parts:
    file: MappedFile
    tensor: str

    def has(self, part: str) -> bool:
        return f"{self.tensor}:{part}" in self.file.header.tensors

    def part(self, part: str, dtype: str, shape: tuple[int, ...] | None = None) -> Array:
        if not self.has(part):
            raise self.refuse(f"lacks its part {part!r}")
        spec = self.file.header.tensors[f"{self.tensor}:{part}"].spec
        if spec.dtype != dtype or shape not in (None, spec.shape):
            raise self.refuse(f"has a part {part!r} of {spec}, not as its form demands")
        return self.file.whole(f"{self.tensor}:{part}")

    def refuse(self, what: str) -> UnsafeFile:
        return UnsafeFile(f"{self.file.path}: tensor {self.tensor!r} {what}; remove the source and add it again")


class StoredSource:
    """Blocks of a stored source, decoded when they are read."""

    def __init__(self, path: Path, form: str, base: Tensors) -> None:
        self._file = MappedFile(path)
        self.weight_files = {STORED: self._file}
        self._form, self._base = FORMS[form], base
        self.tensors = _read_specs(self._file, form)
        self._changed = frozenset(key.rpartition(":")[0] for key in self._file.header.tensors)
        for name in sorted(self._changed):
            if name not in self.tensors or not self.tensors[name].is_floating:
                raise UnsafeFile(f"{path} has parts of {name!r}, which no form stores; remove the source, add it again")
        for name, spec in self.tensors.items():
            if base.tensors.get(name) != spec:
                raise UnsafeFile(
                    f"{path}: tensor {name!r} is {spec}, the base's is not; remove the source, add it again"
                )

    def read(self, name: str, start: int, stop: int) -> Array:
        """Elements start..stop of a tensor, flat."""
        if name not in self._changed:
            return self._base.read(name, start, stop)
        parts = _Parts(self._file, name)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is for `content_digest` to find
            return self._form.decode(self.tensors[name], parts, lambda: self._base.read(name, start, stop), start, stop)


def _read_specs(file: MappedFile, form: str) -> dict[str, TensorSpec]:
    try:
        described = parse_json(file.header.metadata["smatter"].encode(), file.path)
        if described["form"] == form:
            return {
                name: TensorSpec(dtype, tuple(map(operator.index, shape)))
                for name, (dtype, shape) in described["tensors"].items()
            }
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise UnsafeFile(f"{file.path} is not a source stored as {form!r}; remove the source and add it again")


def write_stored(
    folder: Path,
    form: str,
    source: Tensors,
    base: Tensors,
    names: Mapping[str, TensorSpec],
    rank: int | None = None,
    progress: Progress = silent,
) -> None:
    """Write a source in a storage form to `folder`; the folder is published by the caller.

    Args:
        folder: an existing folder.
        form: a key of `FORMS`.
        source: the original.
        base: the library's base.
        names: the tensors to store.
        rank: for the form `low-rank`, how many components of each delta to keep.
        progress: told the bytes finished.
    """
    codec = FORMS[form] if rank is None else LowRank(rank)
    payload, specs = folder / ".payload", {}
    with payload.open("xb") as file:
        for name, spec in names.items():
            for part, (part_spec, array) in _encode(codec, name, spec, source, base).items():
                specs[f"{name}:{part}"] = part_spec
                file.write(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
            progress(spec.n_bytes)
    described: dict[str, Any] = {
        "form": form, "tensors": {name: [spec.dtype, list(spec.shape)] for name, spec in names.items()}
    }  # fmt: skip
    with (folder / STORED).open("xb") as out, payload.open("rb") as file:
        out.write(encode_header(specs.items(), {"smatter": json.dumps(described, separators=(",", ":"))}))
        shutil.copyfileobj(file, out, 4 << 20)
        out.flush()
        os.fsync(out.fileno())
    payload.unlink()


def _encode(
    codec: Form, name: str, spec: TensorSpec, source: Tensors, base: Tensors
) -> dict[str, tuple[TensorSpec, Array]]:
    if base.tensors[name] != spec:
        raise IncompatibleSource(f"tensor {name!r} is {spec}, the base's {base.tensors[name]}: store this source whole")
    values, base_values = source.read(name, 0, spec.n_elements), base.read(name, 0, spec.n_elements)
    if np.array_equal(values.view(np.uint8), base_values.view(np.uint8)):
        return {}
    if not spec.is_floating:
        raise IncompatibleSource(f"tensor {name!r} holds integers that differ from the base's: they cannot be mixed")
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return codec.encode(spec, values, base_values)
    except np.linalg.LinAlgError:
        raise IncompatibleSource(f"tensor {name!r} is too large for this form: store this source whole") from None


def measure_loss(stored: Tensors, source: Tensors, base: Tensors, names: Mapping[str, TensorSpec]) -> StorageLoss:
    """Compare a stored source with its original, over all floating tensors."""
    lost = weight = delta = 0.0
    for name, spec in names.items():
        for start, stop in ranges(spec.n_elements if spec.is_floating else 0):
            original, kept, origin = (
                as_float32(tensors.read(name, start, stop), spec.dtype).astype(np.float64)
                for tensors in (source, stored, base)
            )
            lost += float(np.square(original - kept).sum())
            weight += float(np.square(original).sum())
            delta += float(np.square(original - origin).sum())
    return StorageLoss(
        of_weights=(lost / weight) ** 0.5 if weight else 0.0, of_delta=(lost / delta) ** 0.5 if delta else None
    )
