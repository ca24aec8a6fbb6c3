"""One merged network for each task: any mixture and residual, at the price of composing it and of its memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from smatter.backbones.network import Inputs
from smatter.compose.recipe import Recipe
from smatter.errors import NotFound
from smatter.library.library import Library
from smatter.library.recipes import read_recipe
from smatter.live.mixture import Resident
from smatter.live.predictions import Prediction
from smatter.runtime.batches import find_task, put_back, rows_of_tasks, take
from smatter.runtime.heads import Key, TaskHead, check_one_network, name_rows, spread


@dataclass(frozen=True)
class _Network:
    """One network of a task.

    Args:
        resident: the network.
        head: how it scores classes.
        weight: of its scores.
    """

    resident: Resident
    head: TaskHead
    weight: float


@dataclass
class _Entry:
    """A task's networks, and who uses them.

    Args:
        networks: its own, and its members.
        n_batches: under way with them.
        is_gone: whether the task was unloaded or replaced.
    """

    networks: tuple[_Network, ...]
    n_batches: int = 0
    is_gone: bool = False


class MergedRuntime:
    """Tasks as networks of their own. Safe to use from several threads.

    One network whose task was unloaded is kept and used again once no batch is under way with it: composing into
    memory that is there already is several times faster than into new.

    Args:
        library: where recipes are composed from.
        dtype: of weights and computing.
    """

    def __init__(self, library: Library, dtype: str = "F32") -> None:
        self.library, self.dtype = library, dtype
        self._tasks: dict[str, _Entry] = {}
        self._spare: Resident | None = None
        self._lock = threading.Lock()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that are loaded."""
        with self._lock:
            return tuple(self._tasks)

    def load(self, task: str, recipe: Recipe | str | Path) -> None:
        """Compose a task's network, then serve it; one of that name is replaced at once.

        Args:
            task: its name.
            recipe: the task, or its file.
        """
        recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
        weights = (recipe.own_weight, *(member.weight for member in recipe.members))
        with self._lock:
            spare, self._spare = self._spare, None
        networks = []
        for one, weight in zip(self.library.networks(recipe), weights, strict=True):
            if spare is None:
                resident = Resident(self.library, self.dtype, one)
            else:
                resident, spare = spare, None
                resident.compose(one)
            networks.append(_Network(resident, TaskHead(one.head, resident.network), weight))
        entry = _Entry(tuple(networks))
        with self._lock:
            old = self._tasks.get(task)
            self._tasks[task] = entry
            if old:
                self._retire(old)

    def unload(self, task: str) -> None:
        """Forget a task; batches under way still have it."""
        with self._lock:
            self._retire(find_task(self._tasks, task))
            del self._tasks[task]

    def n_bytes(self, task: str) -> int:
        """Memory of the task's networks and heads."""
        with self._lock:
            networks = find_task(self._tasks, task).networks
            return sum(each.resident.n_bytes + each.head.n_bytes for each in networks)

    def prepare(self, examples: Sequence[Any] | Tensor) -> Inputs:
        """Pictures (or their paths), texts, or a prepared tensor as inputs; once a task is loaded."""
        with self._lock:
            entry = next(iter(self._tasks.values()), None)
        if entry is None:
            raise NotFound("no task is loaded, so there is no network to prepare for: load one first")
        return entry.networks[0].resident.prepare(examples)

    def features(self, inputs: Inputs, tasks: Sequence[str]) -> Tensor:
        """Features of rows, (n, d), in the order given: one forward pass for each task."""
        rows = rows_of_tasks(tasks, inputs)
        with self._in_use(rows) as entries:
            for task, networks in entries.items():
                check_one_network(task, networks)
            return _features(inputs, {(task, 0): each for task, each in rows.items()}, entries)

    def predict(self, inputs: Inputs, tasks: Sequence[str]) -> list[Prediction]:
        """The class of each row by the head of its own task, in the order given: a pass for each of its networks."""
        rows = rows_of_tasks(tasks, inputs)
        with self._in_use(rows) as entries:
            for task, networks in entries.items():
                networks[0].head.check(task)
            repeated, places = spread(rows, entries)
            return name_rows(_features(take(inputs, repeated), places, entries), rows, places, entries)

    @contextmanager
    def _in_use(self, names: Iterable[str]) -> Iterator[dict[str, tuple[_Network, ...]]]:
        """The networks of tasks as they are now; they stay as they are meanwhile."""
        with self._lock:
            entries = {task: find_task(self._tasks, task) for task in names}
            for entry in entries.values():
                entry.n_batches += 1
        try:
            yield {task: entry.networks for task, entry in entries.items()}
        finally:
            with self._lock:
                for entry in entries.values():
                    entry.n_batches -= 1
                    self._recycle(entry)

    def _retire(self, entry: _Entry) -> None:
        entry.is_gone = True
        self._recycle(entry)

    def _recycle(self, entry: _Entry) -> None:
        if entry.is_gone and not entry.n_batches:
            self._spare = entry.networks[0].resident


def _features(inputs: Inputs, places: Mapping[Key, Tensor], tasks: Mapping[str, tuple[_Network, ...]]) -> Tensor:
    """Features of all rows, (n, d), in their order, by the rows of each network."""
    parts = (
        (rows, tasks[task][number].resident.features(take(inputs, rows))) for (task, number), rows in places.items()
    )
    return put_back(parts, sum(map(len, places.values())))
