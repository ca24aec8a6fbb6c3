"""Storage forms: how a source other than the base can lie on disk in less space than its own checkpoint.

A form turns one tensor into named parts and back. Parts of tensor T lie in one safetensors file as `T:part`;
a tensor without parts equals the base's. Every decoder works element by element with fixed rounding, so what
it gives does not depend on where a block begins or on the machine.
"""

from collections.abc import Callable
from typing import Protocol

from smatter.files.reading import Array
from smatter.records import TensorSpec

Parts = dict[str, tuple[TensorSpec, Array]]


class PartReader(Protocol):
    """The stored parts of one tensor."""

    def has(self, part: str) -> bool:
        """Whether the part exists."""
        ...

    def part(self, part: str, dtype: str, shape: tuple[int, ...] | None = None) -> Array:
        """A part in its shape, a view; refuses one that is missing or not as it must be."""
        ...

    def refuse(self, what: str) -> Exception:
        """An error that names the file and tensor."""
        ...


class Form(Protocol):
    """One way to store a tensor."""

    exact: bool

    def encode(self, spec: TensorSpec, source: Array, base: Array) -> Parts:
        """Parts of a floating tensor that differs from the base; flat arrays of equal dtype come in."""
        ...

    def decode(self, spec: TensorSpec, parts: PartReader, base: Callable[[], Array], start: int, stop: int) -> Array:
        """Elements start..stop, flat; `base()` gives the base's same elements."""
        ...
