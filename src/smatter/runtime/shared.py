"""Many tasks on one base: a batch of several tasks' rows in one forward pass.

Rows are sorted by task. Every operator is applied once to all rows with the base's weights; then each task adds what
its active groups do otherwise to its own rows. In the end rows are put back in their order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smatter.backbones.network import Inputs
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.errors import InvalidRecipe
from smatter.library.library import Library
from smatter.library.recipes import read_recipe
from smatter.live.mixture import Resident
from smatter.live.predictions import Prediction
from smatter.runtime.base import Base, ordered
from smatter.runtime.batches import find_task, put_back, rows_of_tasks, take
from smatter.runtime.deltas import Deltas, SeveralDeltas
from smatter.runtime.experts import GatedBank, gate_bank
from smatter.runtime.gates import SharedDelta
from smatter.runtime.heads import Key, TaskHead, check_one_network, predictions, repeated_rows
from smatter.runtime.packing import dense_values, pack
from smatter.runtime.units import RankComponents, group_units, rank_units
from smatter.units.numbering import Numbering

LONGEST = 5
"""Sources of a mixture that an error names."""


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
        self._tasks: dict[str, tuple[_Network, ...]] = {}
        self._lock = threading.Lock()
        self._banks: dict[tuple[str, Base], GatedBank] = {}
        self._making = threading.Lock()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that are loaded."""
        return tuple(self._tasks)

    def load(self, task: str, recipe: Recipe | str | Path) -> None:
        """Serve a task from now on; one of that name is replaced at once, and batches under way keep the old one.

        What its experts open becomes gates on one delta, which all tasks of that bank share; the task keeps no more
        than its gates and its head. Units that cannot be gates (single elements, rank components of anything but
        linear operators, groups with values that no place has) and the residual are packed as the task's own delta,
        and refused where the runtime cannot correct their tensors.

        Args:
            task: its name.
            recipe: the task, or its file; the mixtures of its networks must be in the catalogue.
        """
        recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
        self.library.check_pins(recipe)
        weights = recipe.network_weights
        found = []
        for one, weight in zip(self.library.networks(recipe), weights, strict=True):
            base = self._base_of(task, one)
            found.append(_Network(base, self._deltas(one, base), TaskHead(one.head, base.resident.network), weight))
        self._put(task, tuple(found))

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
        on = self.bases[name]
        self._put(task, (_Network(on, self.shared[name].opened(gates), TaskHead(None, on.resident.network)),))

    def unload(self, task: str) -> None:
        """Forget a task; batches under way still have it."""
        with self._lock:
            find_task(self._tasks, task)
            self._tasks = {name: entry for name, entry in self._tasks.items() if name != task}

    def n_bytes(self, task: str) -> int:
        """Memory of a task beside the bases and the shared deltas: its gates, its own delta and its head."""
        return sum(each.deltas.n_bytes + each.head.n_bytes for each in find_task(self._tasks, task))

    def prepare(self, examples: Any) -> Inputs:
        """Pictures (images, arrays or paths), texts, or a prepared tensor as inputs."""
        return next(iter(self.bases.values())).resident.prepare(examples)

    def features(self, inputs: Inputs, tasks: Sequence[str]) -> Tensor:
        """Features of rows of any tasks, (n, d), in the order given: forward passes of each base that is used."""
        rows = rows_of_tasks(tasks, inputs)
        entries = self._entries(rows)
        for task, networks in entries.items():
            check_one_network(task, len(networks))
        return _features(inputs, {(task, 0): each for task, each in rows.items()}, entries)

    def predict(self, inputs: Inputs, tasks: Sequence[str]) -> list[Prediction]:
        """The class of each row by the head of its own task, in the order given; passes of each base that is used."""
        rows = rows_of_tasks(tasks, inputs)
        entries = self._entries(rows)
        for task, networks in entries.items():
            networks[0].head.check(task)
        repeated, places = repeated_rows(rows, {task: len(networks) for task, networks in entries.items()})
        features, found = _features(take(inputs, repeated), places, entries), dict[int, Prediction]()
        for task, networks in entries.items():
            read = [features[places[task, number]] for number in range(len(networks))]
            named = predictions([each.head for each in networks], read, [each.weight for each in networks])
            found |= zip(rows[task].tolist(), named, strict=True)
        return [found[row] for row in range(len(tasks))]

    def _entries(self, names: Iterable[str]) -> dict[str, tuple[_Network, ...]]:
        """Tasks as they are now; what is loaded meanwhile does not matter to a batch."""
        present = self._tasks
        return {task: find_task(present, task) for task in names}

    def _base_of(self, task: str, recipe: Recipe) -> Base:
        """The mixture of the catalogue that a recipe is on."""
        if recipe.mixture.modules and recipe.partition_digest != self.library.partition.digest:
            raise InvalidRecipe(
                f"the weights per module of task {task[:100]!r} are of another partition: make it again here"
            )
        mixture = ordered(recipe.mixture_in(self.library.manifest.digests))
        for base in self.bases.values():
            if base.mixture == mixture:
                return base
        raise InvalidRecipe(
            f"task {task[:100]!r} is on {_words(mixture)}, which is not in the catalogue "
            f"({', '.join(self.bases)[:200]}): add it there, or use the merged runtime"
        )

    def _deltas(self, recipe: Recipe, base: Base) -> Deltas:
        """What a recipe adds to its base: gates of the bank's delta, and the rest as a delta of its own."""
        parts: list[Deltas] = []
        if recipe.experts is not None and not recipe.experts.is_idle:
            bank = self._bank(recipe.experts.bank, base)
            parts.append(bank.opened(recipe.experts))
            recipe = replace(recipe, experts=bank.others(recipe.experts))
        own = self.library.correction(recipe)
        if own is not None:
            parts.append(pack(dense_values(own, base.places, self.specs), base.places, base.tensors))
        return SeveralDeltas(parts)

    def _bank(self, digest: str, base: Base) -> GatedBank:
        """The delta of a bank on a base, made for its first task."""
        with self._making:
            if (digest, base) not in self._banks:
                placed, partition = self.library.bank(digest), self.library.partition
                self._banks[digest, base] = gate_bank(placed, base.places, partition, base.tensors)
            return self._banks[digest, base]

    def _put(self, task: str, entry: tuple[_Network, ...]) -> None:
        with self._lock:
            self._tasks = {**self._tasks, task: entry}


@dataclass(frozen=True)
class _Network:
    """One network of a task.

    Args:
        base: the mixture that it is on.
        deltas: what the task adds.
        head: how it scores classes.
        weight: of its scores.
    """

    base: Base
    deltas: Deltas
    head: TaskHead
    weight: float = 1.0


def _features(inputs: Inputs, places: Mapping[Key, Tensor], tasks: Mapping[str, tuple[_Network, ...]]) -> Tensor:
    """Features of all rows, (n, d), in their order, by the rows of each network."""
    by_base: dict[Base, list[Key]] = {}
    for task, number in places:
        by_base.setdefault(tasks[task][number].base, []).append((task, number))

    def parts() -> Iterator[tuple[Tensor, Tensor]]:
        for base, own in by_base.items():
            ends = list(accumulate(len(places[key]) for key in own))
            segments = [
                (end - len(places[task, number]), end, tasks[task][number].deltas)
                for (task, number), end in zip(own, ends, strict=True)
            ]
            rows = torch.cat([places[key] for key in own])
            yield rows, base.features(take(inputs, rows), segments)

    return put_back(parts(), sum(map(len, places.values())))


def _words(mixture: Mixture) -> str:
    """A mixture in short, the largest weights first."""
    weights = sorted(mixture.mean_weights.items(), key=lambda each: -abs(each[1]))
    named = [f"{weight:.3g} {name[:40]}" for name, weight in weights[:LONGEST]]
    more = f" + {len(weights) - LONGEST} more" if len(weights) > LONGEST else ""
    return f"{' + '.join(named)}{more}{', mean over modules' if mixture.modules else ''}"
