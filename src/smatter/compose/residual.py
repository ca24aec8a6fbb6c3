"""The sparse correction D of a task (multi-source paper, equations 1 and 3)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smatter.errors import InvalidResidual
from smatter.records import Partition, TensorSpec


@dataclass(frozen=True)
class Elements:
    """Single elements of one tensor: flat positions, strictly increasing, and their values; both (n_nonzero,)."""

    indices: NDArray[np.int64]
    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.indices.dtype != np.int64 or self.values.dtype != np.float32:
            raise InvalidResidual(
                f"indices must be int64 and values float32, not {self.indices.dtype}, {self.values.dtype}"
            )
        if self.indices.ndim != 1 or self.indices.shape != self.values.shape:
            raise InvalidResidual(f"{self.indices.shape} indices for {self.values.shape} values")
        if self.indices.size and (self.indices[0] < 0 or bool((self.indices[1:] <= self.indices[:-1]).any())):
            raise InvalidResidual("indices must not be negative and must increase strictly: sort them, drop repeats")
        if not np.isfinite(self.values).all():
            raise InvalidResidual("values have NaN or Inf: the solver that made them diverged")


@dataclass(frozen=True)
class Residual:
    """A correction on top of the mixture: scattered elements of some tensors, all elements of others.

    Args:
        elements: element-sparse corrections, by tensor name on disk.
        dense: full corrections of the tensors of active modules, by tensor name; float32, the tensor's shape.
    """

    elements: Mapping[str, Elements] = field(default_factory=dict)
    dense: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        both = sorted(set(self.elements) & set(self.dense))
        if both:
            raise InvalidResidual(f"tensor {both[0]!r} has both an element-wise and a dense correction: keep one")
        for name, values in self.dense.items():
            if values.dtype != np.float32:
                raise InvalidResidual(f"the correction of {name!r} must be float32, not {values.dtype}")
            if not np.isfinite(values).all():
                raise InvalidResidual(f"the correction of {name!r} has NaN or Inf: the solver that made it diverged")

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors it touches."""
        return (*self.elements, *self.dense)

    @property
    def n_nonzero(self) -> int:
        """Number of corrected parameters."""
        scattered = sum(entry.indices.size for entry in self.elements.values())
        return scattered + sum(int(np.count_nonzero(values)) for values in self.dense.values())

    def in_full(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The correction of one tensor, zeros included; a dense one is not copied."""
        if name in self.dense:
            return self.dense[name]
        result = np.zeros(shape, np.float32)
        result.reshape(-1)[self.elements[name].indices] = self.elements[name].values
        return result

    def active_modules(self, partition: Partition) -> tuple[str, ...]:
        """The modules it touches: the block support of equation 3."""
        touched = {partition.module_of(name) for name in self.tensors}
        return tuple(module for module in partition.modules if module in touched)

    def check_fits(self, specs: Mapping[str, TensorSpec]) -> None:
        """Refuse a correction of tensors the network does not have, or outside their range."""
        for name in self.tensors:
            if name not in specs:
                raise InvalidResidual(f"the residual corrects {name!r}, not in this library: make the recipe again")
            if not specs[name].is_floating:
                raise InvalidResidual(f"the residual corrects {name!r}, of {specs[name].dtype}: make the recipe again")
        for name, entry in self.elements.items():
            if entry.indices.size and int(entry.indices[-1]) >= specs[name].n_elements:
                raise InvalidResidual(
                    f"index {entry.indices[-1]} of {name!r} is beyond its {specs[name].n_elements} elements: "
                    "make the recipe again"
                )
        for name, values in self.dense.items():
            if values.shape != specs[name].shape:
                raise InvalidResidual(
                    f"the correction of {name!r} is {list(values.shape)}, not {specs[name]}: make the recipe again"
                )
