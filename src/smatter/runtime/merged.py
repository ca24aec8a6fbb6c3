"""One merged network for each task: any mixture and residual, at the price of composing it and of its memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
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
from smatter.live.ensemble import Ensemble
from smatter.live.mixture import Resident
from smatter.live.predictions import Prediction
from smatter.runtime.batches import find_task, put_back, rows_of_tasks, take
from smatter.runtime.heads import TaskHead, check_one_network, predictions


@dataclass
class _Entry:
    """A task's networks, and who uses them.

    Args:
        networks: its own, and its members.
        heads: of each.
        n_batches: under way with them.
        is_gone: whether the task was unloaded or replaced.
    """

    networks: Ensemble
    heads: tuple[TaskHead, ...]
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
        own, *_ = each = self.library.networks(recipe)
        with self._lock:
            resident, self._spare = self._spare, None
        if resident is None:
            resident = Resident(self.library, self.dtype, own)
        else:
            resident.compose(own)
        heads = tuple(TaskHead(one.head, resident.network) for one in each)
        entry = _Entry(Ensemble(resident, recipe), heads)
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
            entry = find_task(self._tasks, task)
            return entry.networks.n_bytes + sum(head.n_bytes for head in entry.heads)

    def prepare(self, examples: Any) -> Inputs:
        """Pictures (images, arrays or paths), texts, or a prepared tensor as inputs, once a task is loaded."""
        with self._lock:
            entry = next(iter(self._tasks.values()), None)
        if entry is None:
            raise NotFound("no task is loaded, so there is no network to prepare for: load one first")
        return entry.networks.resident.prepare(examples)

    def features(self, inputs: Inputs, tasks: Sequence[str]) -> Tensor:
        """Features of rows, (n, d), in the order given: one forward pass for each task."""
        rows = rows_of_tasks(tasks, inputs)
        with self._in_use(rows) as entries:
            for task, entry in entries.items():
                check_one_network(task, len(entry.heads))
            parts = (
                (rows[task], entry.networks.features(take(inputs, rows[task]))[0]) for task, entry in entries.items()
            )
            return put_back(parts, len(tasks))

    def predict(self, inputs: Inputs, tasks: Sequence[str]) -> list[Prediction]:
        """The class of each row by the head of its own task, in the order given: a pass for each of its networks."""
        rows, found = rows_of_tasks(tasks, inputs), dict[int, Prediction]()
        with self._in_use(rows) as entries:
            for task, entry in entries.items():
                entry.heads[0].check(task)
            for task, entry in entries.items():
                features = entry.networks.features(take(inputs, rows[task]))
                named = predictions(entry.heads, features, entry.networks.weights)
                found |= zip(rows[task].tolist(), named, strict=True)
        return [found[row] for row in range(len(tasks))]

    @contextmanager
    def _in_use(self, names: Iterable[str]) -> Iterator[dict[str, _Entry]]:
        """Tasks as they are now; their networks stay as they are meanwhile."""
        with self._lock:
            entries = {task: find_task(self._tasks, task) for task in names}
            for entry in entries.values():
                entry.n_batches += 1
        try:
            yield entries
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
            self._spare = entry.networks.resident
