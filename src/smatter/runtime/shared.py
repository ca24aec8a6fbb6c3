"""Many tasks on one base: a batch of several tasks' rows in one forward pass.

Rows are sorted by task. Every operator is applied once to all rows with the base's weights; then each task adds what
its active groups do otherwise to its own rows. In the end rows are put back in their order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from smatter.backbones.network import CHUNK, Inputs, chunks
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.errors import InvalidRecipe, InvalidResidual
from smatter.library.library import Library
from smatter.live.mixture import Resident
from smatter.runtime.batches import find_task, put_back, rows_of_tasks, take
from smatter.runtime.deltas import Add, Deltas
from smatter.runtime.gates import SharedDelta
from smatter.runtime.packing import dense_values, pack
from smatter.runtime.places import Place, find_places
from smatter.runtime.units import RankComponents, group_units, rank_units
from smatter.units.numbering import Numbering


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
        self.resident, self.mixture = resident, _ordered(mixture)
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
        parts = []
        for number, part in enumerate(chunks(inputs)):
            begin = number * CHUNK
            inside = [(max(start - begin, 0), min(stop - begin, CHUNK), task) for start, stop, task in segments]
            parts.append(self._features(part, [each for each in inside if each[0] < each[1]]))
        return torch.cat(parts)

    def _features(self, inputs: Inputs, segments: Sequence[tuple[int, int, Deltas]]) -> Tensor:
        at: dict[str, list[tuple[int, int, Add]]] = {}
        for start, stop, task in segments:
            for key, add in task.adds():
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
        for start, stop, add in segments:
            begin, length = start * n_each, (stop - start) * n_each
            add(given.narrow(0, begin, length), output.narrow(0, begin, length))


def _ordered(mixture: Mixture) -> Mixture:
    """The same mixture, without sources of no weight, the others in order of their names."""
    mixture = mixture.without_idle()
    names = sorted(mixture.sources)
    columns = [mixture.sources.index(name) for name in names]
    rows = tuple(tuple(row[column] for column in columns) for row in mixture.rows)
    return Mixture(tuple(names), rows, mixture.modules, mixture.rule)


class SharedRuntime:
    """Tasks as deltas on one or a few resident mixtures. Safe to use from several threads.

    Args:
        library: where the mixtures come from.
        catalogue: the mixtures, by name; tasks must be on one of them.
        dtype: of weights and computing.
        shared: a delta of which tasks may open units, if any: groups of a residual, or rank components; see `open`.
    """

    def __init__(
        self,
        library: Library,
        catalogue: Mapping[str, Mixture],
        dtype: str = "F32",
        shared: Residual | RankComponents | None = None,
    ) -> None:
        if not catalogue:
            raise InvalidRecipe("a catalogue needs at least one mixture: give one")
        self.library, self.dtype = library, dtype
        self.bases = {name: Base(Resident(library, dtype, mixture), mixture) for name, mixture in catalogue.items()}
        first = next(iter(self.bases.values()))
        self.specs = first.resident.specs
        used = first.resident.leaves
        self.numbering = Numbering.of(self.specs, library.base.config, library.partition, used)
        self.shared: dict[str, SharedDelta] = {}
        if isinstance(shared, RankComponents):
            for name, base in self.bases.items():
                self.shared[name] = SharedDelta(rank_units(shared, base.places, base.tensors))
        elif shared:
            values = dense_values(shared, first.places, self.specs)
            for name, base in self.bases.items():
                units = group_units(values, base.places, self.numbering, library.partition, base.tensors)
                self.shared[name] = SharedDelta(units)
        self._tasks: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that are loaded."""
        return tuple(self._tasks)

    def load(self, task: str, recipe: Recipe) -> None:
        """Serve a task from now on; one of that name is replaced at once, and batches under way keep the old one."""
        mixture = _ordered(recipe.mixture_in(self.library.manifest.digests))
        base = next((base for base in self.bases.values() if base.mixture == mixture), None)
        if base is None:
            raise InvalidRecipe("the recipe's mixture is not in the catalogue: add it there, or use the merged runtime")
        values = dense_values(recipe.residual or Residual(), base.places, self.specs)
        self._put(task, _Entry(base, pack(values, base.places, base.tensors)))

    def open(self, task: str, gates: Mapping[str, Sequence[float]], base: str | None = None) -> None:
        """Serve a task that opens units of the shared delta.

        Args:
            task: its name.
            gates: how far each unit of some modules is open: their groups, then the rest of the module; or how far each
                rank component of some operators is.
            base: a mixture of the catalogue, the first by default.
        """
        name = base or next(iter(self.bases))
        if name not in self.bases:
            raise InvalidRecipe(f"the catalogue has no {name[:100]!r}: it has {', '.join(self.bases)}")
        if name not in self.shared:
            raise InvalidRecipe("there is no shared delta to open: make the runtime with one")
        self._put(task, _Entry(self.bases[name], self.shared[name].opened(gates)))

    def unload(self, task: str) -> None:
        """Forget a task; batches under way still have it."""
        with self._lock:
            find_task(self._tasks, task)
            self._tasks = {name: entry for name, entry in self._tasks.items() if name != task}

    def n_bytes(self, task: str) -> int:
        """Memory of a task beside the bases and the shared delta."""
        return find_task(self._tasks, task).deltas.n_bytes

    def prepare(self, examples: Sequence[Any] | Tensor) -> Inputs:
        """Pictures (or their paths), texts, or a prepared tensor as inputs."""
        return next(iter(self.bases.values())).resident.prepare(examples)

    def features(self, inputs: Inputs, tasks: Sequence[str]) -> Tensor:
        """Features of rows of any tasks, (n, d), in the order given: forward passes of each base that is used."""
        members, present = rows_of_tasks(tasks, inputs), self._tasks  # what is loaded meanwhile does not matter
        by_base: dict[Base, list[str]] = {}
        for task in members:
            by_base.setdefault(find_task(present, task).base, []).append(task)

        def parts() -> Iterator[tuple[Tensor, Tensor]]:
            for base, own in by_base.items():
                ends = list(accumulate(len(members[task]) for task in own))
                segments = [
                    (end - len(members[task]), end, present[task].deltas) for task, end in zip(own, ends, strict=True)
                ]
                rows = torch.cat([members[task] for task in own])
                yield rows, base.features(take(inputs, rows), segments)

        return put_back(parts(), len(tasks))

    def _put(self, task: str, entry: _Entry) -> None:
        with self._lock:
            self._tasks = {**self._tasks, task: entry}


@dataclass(frozen=True)
class _Entry:
    """A task.

    Args:
        base: the mixture that it is on.
        deltas: what it adds.
    """

    base: Base
    deltas: Deltas
