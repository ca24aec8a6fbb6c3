"""Memory of what parts of a network gave back, so that they need not compute it again.

A part in evaluation mode is a function of its tensors and its arguments. While its tensors stay as they are, it gives
back what it gave before, provided that the arguments are equal and that neither they nor the result were written to
since: tensors count that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = (type(None), bool, int, float, str, torch.dtype, torch.device)
"""Arguments that are compared by value and that nobody can write to."""


class Memory:
    """What the parts of a trunk were given and gave back, for one batch."""

    def __init__(self) -> None:
        self._calls: dict[nn.Module, list[_Call]] = {}
        self._is_open, self._is_inside = True, False

    def common(self, part: nn.Module, forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """A part of the trunk is called; the largest ones are remembered, which spares the memory of those inside."""
        given = arguments, options
        for call in self._calls.get(part, ()):
            if call.answers(given):
                return call.output
        if self._is_inside or not self._is_open:
            return forward(*arguments, **options)
        seen = _Snapshot(given)
        self._is_inside = True
        try:
            output = forward(*arguments, **options)
        finally:
            self._is_inside = False
        call = _Call(seen, output, _Snapshot(output))
        if call.answers(given):  # not so if the part wrote to its inputs
            self._calls.setdefault(part, []).append(call)
        return output

    def branching(self, has_common: bool, forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """A part with a changed tensor is called: what follows may depend on it, so remembering that would be idle.

        Where common parts are inside of it, they may come before that tensor is used.
        """
        self._is_open &= has_common
        try:
            return forward(*arguments, **options)
        finally:
            self._is_open = False


class _Snapshot:
    """Arguments or results as they are now: tensors by reference, with the count of what was written to them."""

    def __init__(self, value: Any) -> None:
        # A parameter may get other data under the same name; detached, it is what it was.
        self._leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in _leaves(value)]
        self._versions = [_version(leaf) for leaf in self._leaves]

    def is_still(self, value: Any) -> bool:
        """Whether a value equals what was seen, and nothing was written to that; False for what cannot be told."""
        leaves = list(_leaves(value))
        return (
            len(leaves) == len(self._leaves)
            and all(_version(leaf) == version for leaf, version in zip(self._leaves, self._versions, strict=True))
            and all(map(_is_same, leaves, self._leaves))
        )


@dataclass(frozen=True)
class _Call:
    """A call of a part.

    Args:
        given: its arguments.
        output: what it gave back.
        returned: the same as it was then.
    """

    given: _Snapshot
    output: Any
    returned: _Snapshot

    def answers(self, given: Any) -> bool:
        """Whether the output is what the part would compute for these arguments."""
        return self.given.is_still(given) and self.returned.is_still(self.output)


def _leaves(value: Any) -> Iterator[Any]:
    """All that nested tuples, lists, mappings and dataclasses hold, each of these announced by its type and keys."""
    if isinstance(value, Mapping):
        yield _Holder(type(value), tuple(value))
        inside: Sequence[Any] = tuple(value.values())
    elif isinstance(value, tuple | list):
        yield _Holder(type(value), (len(value),))
        inside = value
    elif is_dataclass(value) and not isinstance(value, type):
        yield _Holder(type(value), ())
        inside = [getattr(value, each.name) for each in fields(value)]
    else:
        yield value
        return
    for each in inside:
        yield from _leaves(each)


@dataclass(frozen=True)
class _Holder:
    """A type that holds others, and under which keys."""

    kind: type
    keys: tuple[Any, ...]


def _is_same(one: Any, other: Any) -> bool:
    """Whether two leaves are equal; what might have a state of its own, such as a cache, never is."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.layout is not torch.strided or _form(one) != _form(other):
            return False
        return one.data_ptr() == other.data_ptr() or torch.equal(one, other)
    return type(one) is type(other) and isinstance(one, (*PLAIN, _Holder)) and one == other


def _form(tensor: Tensor) -> tuple[Any, ...]:
    """What a tensor is, apart from the values in its memory; kernels are chosen by it."""
    meaning = tensor.is_conj(), tensor.is_neg()
    return tensor.dtype, tensor.device, tensor.layout, tensor.shape, tensor.stride(), meaning


def _version(leaf: Any) -> int:
    """How often a tensor was written to; one made in inference mode cannot be outside of it."""
    return leaf._version if isinstance(leaf, Tensor) and not leaf.is_inference() else 0
