"""Frozen records that cross layers; they check themselves. Nothing here needs torch or numpy."""

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from smatter.errors import UnknownModule, UnsafeFile

ITEM_SIZES: dict[str, int] = {
    "F64": 8, "F32": 4, "BF16": 2, "F16": 2,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""Bytes per element of every dtype Smatter reads, by its name in a safetensors header."""

FLOATING = frozenset({"F64", "F32", "BF16", "F16"})
"""The dtypes that can be mixed; all others must agree between sources and are copied."""


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor is, apart from its values."""

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_SIZES:
            raise UnsafeFile(f"dtype {self.dtype!r} cannot be mixed; known: {', '.join(ITEM_SIZES)}")
        if any(size < 0 for size in self.shape):
            raise UnsafeFile(f"shape {list(self.shape)} has a negative side")

    @cached_property
    def n_elements(self) -> int:
        """Number of elements; one for a scalar."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """Size of the values."""
        return self.n_elements * ITEM_SIZES[self.dtype]

    @property
    def is_floating(self) -> bool:
        """Whether values of this dtype can be mixed."""
        return self.dtype in FLOATING

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Partition:
    """The modules of a network: every tensor, by its name on disk, belongs to exactly one."""

    modules: Mapping[str, tuple[str, ...]]
    _owner: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        owner: dict[str, str] = {}
        for module, tensors in self.modules.items():
            for tensor in tensors:
                if tensor in owner:
                    raise UnknownModule(f"tensor {tensor!r} is in two modules, {owner[tensor]!r} and {module!r}")
                owner[tensor] = module
        object.__setattr__(self, "_owner", owner)

    def module_of(self, tensor: str) -> str:
        """The module a tensor belongs to."""
        try:
            return self._owner[tensor]
        except KeyError:
            raise UnknownModule(f"tensor {tensor!r} is in no module of this library: restore the base") from None

    @cached_property
    def digest(self) -> str:
        """A sha256 of names and membership, so that a recipe with weights per module knows its modules."""
        canonical = {module: sorted(tensors) for module, tensors in self.modules.items()}
        return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()


def printable(text: str) -> str:
    """A stranger's words on one line that does nothing to a terminal or to the direction of what follows.

    Letters, spaces and the joiners that some scripts are written with stay; all else is told by its number.

    >>> print(printable("red " + chr(27) + "[31m"))
    red \\x1b[31m
    """
    return "".join(letter if letter.isprintable() or _is_harmless(letter) else ascii(letter)[1:-1] for letter in text)


def _is_harmless(letter: str) -> bool:
    return letter in "\u200c\u200d" or unicodedata.category(letter) == "Zs"


def told_names(names: Sequence[str], most: int = 6) -> str:
    """Names for people, of many only the first.

    >>> told_names(["cats", "dogs", "cows"], most=2)
    'cats, dogs and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(printable(name[:40]) for name in names[:most]) + more


def told_shares(shares: Mapping[str, float]) -> str:
    """Weights for people, the largest first.

    >>> told_shares({"law": 0.25, "code": 0.75})
    'code 75.0%, law 25.0%'
    """
    return told_names([f"{name[:30]} {shares[name]:.1%}" for name in sorted(shares, key=lambda name: -shares[name])])


class Progress(Protocol):
    """How every long piece of work says that it moves on: bytes, steps or a share of the whole, and words beside it."""

    def __call__(self, amount: float, words: str = "", /) -> None:
        """Move on by some amount."""


def silent(amount: float, words: str = "", /) -> None:
    """Progress that nobody watches."""


def part(progress: Progress, share: float) -> Progress:
    """Progress of a piece of a longer work, each unit of which is this share of one unit of the whole."""

    def advance(amount: float, words: str = "", /) -> None:
        progress(share * amount, *([words] if words else []))

    return advance
