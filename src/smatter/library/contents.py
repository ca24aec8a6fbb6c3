"""The digest of a source's contents: names, dtypes, shapes and values, however they are stored.

It is the same whole or sharded, and in every exact storage form: recipes use it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from smatter.compose.execute import Arena, ranges
from smatter.errors import UnsafeFile
from smatter.files.reading import Array, MappedFile, all_finite
from smatter.records import Progress, TensorSpec, silent


class Blocks(Protocol):
    """Anything that gives blocks of named tensors."""

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """Dtype and shape of each, by name on disk."""
        ...

    def read(self, name: str, start: int, stop: int) -> Array:
        """Elements start..stop of a tensor, flat."""
        ...


class Tensors(Blocks, Protocol):
    """Tensors that are in files."""

    @property
    def weight_files(self) -> Mapping[str, MappedFile]:
        """The files, by name."""
        ...


@dataclass(frozen=True)
class Composed:
    """What was composed in memory.

    Args:
        arena: its tensors.
    """

    arena: Arena

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """See `Blocks`."""
        return self.arena.specs

    def read(self, name: str, start: int, stop: int) -> Array:
        """See `Blocks`."""
        return self.arena.array(name)[start:stop]


def content_digest(source: Blocks, names: Mapping[str, TensorSpec], what: str, progress: Progress = silent) -> str:
    """The sha256 of the named tensors, each by name, dtype, shape and values; refuses NaN and Inf on the way.

    Args:
        source: where the values come from.
        names: the tensors to cover; others are left out.
        what: the source, for messages.
        progress: told the bytes read.
    """
    leaves = []
    for name in sorted(names):
        if name not in source.tensors:
            raise UnsafeFile(f"{what} lacks {name!r}; remove the source and add it again")
        spec = source.tensors[name]
        digest = hashlib.sha256()
        for start, stop in ranges(spec.n_elements):
            block = source.read(name, start, stop)
            if not all_finite(block, spec.dtype):
                raise UnsafeFile(f"{what}: tensor {name!r} has NaN or Inf; it would spoil every mixture: leave it out")
            digest.update(block.data.cast("B"))
            progress(block.nbytes)
        leaves.append([name, spec.dtype, list(spec.shape), digest.hexdigest()])
    return hashlib.sha256(json.dumps(leaves, separators=(",", ":")).encode()).hexdigest()
