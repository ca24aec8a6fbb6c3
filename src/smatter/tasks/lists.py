"""Frozen lists of tasks: a small file that gives the same tasks to everybody, or says that it cannot.

A list holds the settings and the seed that its tasks are drawn by, and a digest of what was drawn. Whoever reads it
draws again and compares, so that neither a changed suite nor a changed sampler goes unnoticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smatter.errors import InvalidSuite, SmatterError
from smatter.files.fields import Digest, Name, first_mistake
from smatter.files.reading import read_small_json
from smatter.files.writing import write_file
from smatter.tasks.episode import Episode
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import Shift, apply, parse_shifts, table_of
from smatter.tasks.suite import Suite, check_suite_name

FINAL = "final"
"""Lists whose name begins so are opened for the full comparison and for nothing else."""

N_SHIFTED = 8
"""Tasks whose labels are compared after the shifts; pixels are not, they may depend on Pillow's version."""

MAX_TASKS = 10_000
MAX_DRAWN = 100_000_000
"""Random numbers that a list may take to draw, so that reading one ends in minutes whatever it says."""
MAX_SHIFTS = 100


class _Table(BaseModel):
    """The contents of a list's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = Field(alias="schema")
    name: Name
    suite: Name
    digest: Digest
    settings: SamplerSettings
    shifts: Annotated[tuple[dict[str, str | bool | int | float], ...], Field(max_length=MAX_SHIFTS)] = ()
    seed: int
    n_tasks: Annotated[int, Field(ge=1, le=MAX_TASKS)]
    draws: Digest


@dataclass(frozen=True)
class TaskList:
    """A series of tasks of a suite.

    Args:
        name: of the list.
        sampler: draws its tasks.
        n_tasks: how many there are.
        shifts: what is done to each task after it is drawn.
    """

    name: str
    sampler: Sampler
    n_tasks: int
    shifts: tuple[Shift, ...] = ()

    def __post_init__(self) -> None:
        check_suite_name(self.name)
        if not 1 <= self.n_tasks <= MAX_TASKS:
            raise InvalidSuite(f"a list of {self.n_tasks} tasks: give from 1 to {MAX_TASKS}")
        if self.n_tasks * self.sampler.most_drawn > MAX_DRAWN:
            most = MAX_DRAWN // self.sampler.most_drawn
            raise InvalidSuite(
                f"a list of {self.n_tasks} tasks of classes so large: give at most {most} tasks, or fewer ways"
            )

    def __len__(self) -> int:
        return self.n_tasks

    def episode(self, index: int) -> Episode:
        """One task, the same every time."""
        if not 0 <= index < self.n_tasks:
            raise InvalidSuite(f"list {self.name!r} has no task {index}: it has 0 to {self.n_tasks - 1}")
        episode = self.sampler.episode(index)
        return apply(self.shifts, episode, self.sampler.generator(index, "shifts")) if self.shifts else episode

    def describe(self, index: int) -> dict[str, Any]:
        """What one task is made of, for people and machines."""
        episode, draw, suite = self.episode(index), self.sampler.draw(index), self.sampler.suite
        labels, truth = episode.support.labels.tolist(), episode.query.truth.tolist()
        return {
            "suite": suite.name,
            "index": index,
            "domains": sorted({suite.domains[number].name for number, _ in draw.classes}),
            "classes": [
                {"name": name, "n_support": labels.count(number), "n_query": truth.count(number)}
                for number, name in enumerate(episode.class_names)
            ],
            "drawn": {"classes": draw.classes, "support": draw.support, "query": draw.query},
        }

    def __iter__(self) -> Iterator[Episode]:
        return (self.episode(index) for index in range(self.n_tasks))

    @cached_property
    def digest(self) -> str:
        """Of the numbers of all that is drawn, and of the labels that the shifts leave of the first tasks."""
        whole = hashlib.sha256()
        for index in range(self.n_tasks):
            draw = self.sampler.draw(index)
            whole.update(json.dumps([draw.classes, draw.support, draw.query]).encode())
        for index in range(min(N_SHIFTED, self.n_tasks) if self.shifts else 0):
            episode = self.episode(index)
            for part in (episode.support, episode.query):
                whole.update(json.dumps([part.labels.tolist(), part.truth.tolist()]).encode())
        return whole.hexdigest()


def write_list(path: str | Path, tasks: TaskList) -> None:
    """Freeze a list."""
    table = {
        "schema": 1,
        "name": tasks.name,
        "suite": tasks.sampler.suite.name,
        "digest": tasks.sampler.suite.digest,
        "settings": asdict(tasks.sampler.settings),
        "shifts": [table_of(shift) for shift in tasks.shifts],
        "seed": tasks.sampler.seed,
        "n_tasks": tasks.n_tasks,
        "draws": tasks.digest,
    }
    write_file(Path(path), (json.dumps(table, indent=1) + "\n").encode())


def is_list(path: Path) -> bool:
    """Whether a file is a frozen list, of whatever suite."""
    try:
        _Table.model_validate(read_small_json(path))
    except (SmatterError, ValidationError):
        return False
    return True


def read_list(path: str | Path, suite: Suite, final: bool = False) -> TaskList:
    """Open a frozen list and check that it still gives the tasks that it was frozen with.

    Args:
        path: its file.
        suite: the suite that it was drawn from.
        final: true where the full comparison is made; lists kept for it stay closed to all else.
    """
    path = Path(path)
    try:
        table = _Table.model_validate(read_small_json(path))
    except ValidationError as error:
        raise InvalidSuite(f"{path} is not a list of tasks ({first_mistake(error)}); freeze it again") from None
    if table.name.startswith(FINAL) and not final:
        raise InvalidSuite(f"{path} is kept for the full comparison; use another list")
    if table.digest != suite.digest:
        raise InvalidSuite(f"{path} was drawn from another version of {table.suite!r}; freeze it again for this one")
    sampler = Sampler(suite, table.settings, table.seed)
    tasks = TaskList(table.name, sampler, table.n_tasks, parse_shifts(table.shifts))
    if tasks.digest != table.draws:
        raise InvalidSuite(
            f"{path} gives other tasks than it was frozen with; the sampler has changed: freeze it again"
        )
    return tasks
