"""One mixture in memory that tasks share: every operator is applied once, then each task adds to its own rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from smatter.backbones.network import Inputs, chunks
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidResidual
from smatter.live.mixture import Resident
from smatter.runtime.deltas import Add, Deltas
from smatter.runtime.gates import adds_together
from smatter.runtime.places import Place, find_places


class _Batch(threading.local):
    """What the batch of this thread adds at each place."""

    at: Mapping[str, Sequence[tuple[int, int, Add]]] = MappingProxyType({})
    n_rows = 0


class Base:
    """One mixture in memory that tasks share.

    Args:
        resident: the network, with the weights of the mixture.
        mixture: that one.
    """

    def __init__(self, resident: Resident, mixture: Mixture) -> None:
        self.resident, self.mixture = resident, ordered(mixture)
        self.tensors = resident.arena.tensors()
        self.places = find_places(resident)
        self._batch = _Batch()
        by_module: dict[nn.Module, list[Place]] = {}
        for place in dict.fromkeys(self.places.values()):
            by_module.setdefault(place.module, []).append(place)
        for module, places in by_module.items():  # torch takes longer to call a module with hooks
            module.forward = partial(self._forward, module.forward, places)

    def features(self, inputs: Inputs, segments: Sequence[tuple[int, int, Deltas]]) -> Tensor:
        """Features of rows, (n, d), of which some segments belong to tasks; in bounded memory."""
        parts, begin = [], 0
        for part in chunks(inputs):
            n_rows = len(next(iter(part.values())))
            inside = [(max(start - begin, 0), min(stop - begin, n_rows), task) for start, stop, task in segments]
            parts.append(self._features(part, [each for each in inside if each[0] < each[1]]))
            begin += n_rows
        return torch.cat(parts)

    def _features(self, inputs: Inputs, segments: Sequence[tuple[int, int, Deltas]]) -> Tensor:
        at: dict[str, list[tuple[int, int, Add]]] = {}
        for key, start, stop, add in adds_together(segments):
            at.setdefault(key, []).append((start, stop, add))
        self._batch.at, self._batch.n_rows = at, len(next(iter(inputs.values())))
        try:
            return self.resident.pass_through(inputs)
        finally:
            del self._batch.at

    def _forward(
        self, forward: Callable[..., Tensor], places: Sequence[Place], *inputs: Tensor, **options: Any
    ) -> Tensor:
        """What a module computes, with what tasks add to it."""
        output = forward(*inputs, **options)
        if self._batch.at:
            for place in places:
                if segments := self._batch.at.get(place.key):
                    self._add(place, segments, inputs[0], output)
        return output

    def _add(self, place: Place, segments: Sequence[tuple[int, int, Add]], given: Tensor, output: Tensor) -> None:
        if len(output) != self._batch.n_rows:
            raise InvalidResidual(f"{place.key!r} mixes the rows of such a batch: use the merged runtime")
        if place.row is not None and given.shape[1:] != place.row:
            raise InvalidResidual(f"{place.key!r} is stretched for inputs of another size: use the merged runtime")
        n_each = 1
        if place.kind == "linear":  # tokens, or pixels, side by side
            n_each = output[0].numel() // output.shape[-1]
            given, output = given.flatten(0, -2), output.view(-1, output.shape[-1])
        if place.kind == "scale":
            rows = sorted((start, stop) for start, stop, _ in segments)
            has_two = any(stop > start for (_, stop), (start, _) in pairwise(rows))  # gates, and a delta of its own
            given = output.clone() if has_two else output
        for start, stop, add in segments:
            begin, length = start * n_each, (stop - start) * n_each
            add(given.narrow(0, begin, length), output.narrow(0, begin, length))


def ordered(mixture: Mixture) -> Mixture:
    """The same mixture, without sources of no weight, the others in order of their names."""
    mixture = mixture.without_idle()
    names = sorted(mixture.sources)
    columns = [mixture.sources.index(name) for name in names]
    rows = tuple(tuple(row[column] for column in columns) for row in mixture.rows)
    return Mixture(tuple(names), rows, mixture.modules, mixture.rule)
