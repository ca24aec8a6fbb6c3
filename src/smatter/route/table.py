"""The table of routings: what every candidate routing makes of a task, computed once (Bayes-routed paper, section 4).

Rules, scores and bounds over routings are arithmetic on it. A row is a routing: those of a catalogue, the router's own
point, and the catalogue's mixtures with the experts that the point opens, since a rendering that asks for an expert
asks for it whatever the mixture.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from smatter.backbones.heads import class_sums, prototype_logits
from smatter.backbones.network import Inputs
from smatter.errors import SmatterError
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import LeaveOneOut
from smatter.live.task import Task
from smatter.posterior.catalogue import Catalogue
from smatter.posterior.task_table import N_OWN, TaskTable, read_task_table, write_task_table
from smatter.route.encode import as_mixture
from smatter.route.opening import Routed, route_task
from smatter.route.store import TrainedRouter
from smatter.tasks.episode import Episode
from smatter.tasks.lists import TaskList

FORMAT = 1
"""Raised when rows of earlier versions must not be found any more."""

POINT, BARE = "point", "point without experts"
WITH_EXPERTS = " with the point's experts"
"""What follows the name of a routing of the catalogue whose experts are those of the point."""


def row_names(catalogue: Catalogue) -> tuple[str, ...]:
    """Names of the rows of every table of a catalogue, (n_routings)."""
    plain = (name for name, row in zip(catalogue.names, catalogue.experts, strict=True) if float(row[-1]) == 1)
    return (POINT, BARE, *catalogue.names, *(f"{name}{WITH_EXPERTS}" for name in plain))


def rows_of(catalogue: Catalogue, point: Tensor) -> Tensor:
    """The rows of a task's table, (n_routings, d), in the order of `row_names`.

    Args:
        catalogue: the routings that are the same for every task.
        point: the router's own, (d,).
    """
    n_sources = catalogue.weights.shape[1]
    alpha = point[n_sources:]
    null = torch.zeros_like(alpha)
    null[-1] = 1.0
    plain = catalogue.weights[catalogue.experts[:, -1] == 1].to(point)
    with_experts = torch.cat([plain, alpha.expand(len(plain), -1)], dim=1)
    bare = torch.cat([point[:n_sources], null])
    return torch.cat([point[None], bare[None], catalogue.points.to(point), with_experts])


def base_row(catalogue: Catalogue, number: int) -> int | None:
    """The row of a source alone and without experts; none where the catalogue has it not.

    Args:
        catalogue: see `rows_of`.
        number: of the source.
    """
    alone = (catalogue.weights[:, number] == 1) & (catalogue.experts[:, -1] == 1)
    return N_OWN + int(alone.to(torch.uint8).argmax()) if bool(alone.any()) else None


def make_table(live: LiveMixture, trained: TrainedRouter, catalogue: Catalogue, episode: Episode) -> TaskTable:
    """Pass a task's examples and queries through every routing, each network once.

    Args:
        live: the library's network.
        trained: the router.
        catalogue: see `rows_of`; its sources are the library's, its experts the router's.
        episode: the task.
    """
    task = Task.of(live, prepared_support(live, episode))
    assert isinstance(task.objective, LeaveOneOut)
    routed = route_task(live, task.objective, trained)
    row_of = {int(name): row for row, name in enumerate(task.class_names)}  # `Task.of` numbers classes by contents
    truth = torch.tensor([row_of.get(int(label), -1) for label in episode.query.truth])
    table = pass_routings(live, task.objective, routed, catalogue, live.examples(episode.query.inputs))
    return replace(table, truth=truth)


def pass_routings(
    live: LiveMixture, objective: LeaveOneOut, routed: Routed, catalogue: Catalogue, queries: Inputs | None = None
) -> TaskTable:
    """The table of a task whose queries, if there are any, have no labels.

    Args:
        live: the library's network.
        objective: what the task asks of it.
        routed: what a router says of the task.
        catalogue: see `rows_of`.
        queries: inputs without labels; none by default.
    """
    names, trained = live.library.names, routed.ask.trained
    points = rows_of(catalogue, routed.point)
    known: dict[bytes, tuple[Tensor, Tensor]] = {}
    for place in points:
        key = place.numpy().tobytes()
        if key in known:
            continue
        mixture = as_mixture(live, place[None, : len(names)], names).without_idle()
        live.compose(live.library.recipe(mixture, experts=trained.mix(live, place[len(names) : -1].float())))
        read = live.features(objective.inputs)
        scores = read.new_zeros(0, objective.n_classes)
        if queries is not None:
            prototypes = class_sums(read[objective.unchanged], objective.classes, objective.n_classes)
            scores = prototype_logits(live.features(queries), prototypes)
        known[key] = objective.scores(read), scores
    found = [known[place.numpy().tobytes()] for place in points]
    scores = torch.stack([each for _, each in found])
    return TaskTable(
        points=points.float(),
        held_out=torch.stack([each for each, _ in found]),
        labels=objective.labels,
        examples=objective.examples,
        scores=scores,
        truth=torch.full(scores.shape[1:2], -1),
        prior=routed.prior.float(),
    )


@dataclass(frozen=True)
class Tables:
    """Tables of tasks in a folder, one file each, made when they are first asked for; the folder may be deleted.

    Args:
        folder: where they are kept.
        live: the library's network.
        trained: the router.
        catalogue: the routings.
    """

    folder: Path
    live: LiveMixture
    trained: TrainedRouter
    catalogue: Catalogue

    @cached_property
    def _key(self) -> list[object]:
        manifest, trained = self.live.library.manifest, self.trained
        tensors = [self.catalogue.points, *trained.router.state_dict().values(), *trained.descriptors.values()]
        whole = hashlib.sha256()  # of what routes, not of the router's files: a posterior that is added changes nothing
        for tensor in tensors:
            whole.update(tensor.detach().double().contiguous().numpy().tobytes())
        bank = trained.bank.digest if trained.bank else ""
        return [FORMAT, manifest.digests, manifest.base, bank, whole.hexdigest()]

    def path(self, tasks: TaskList, index: int) -> Path:
        """The file of one task of a list."""
        shifts = [repr(shift) for shift in tasks.shifts]
        told = [*self._key, tasks.sampler.suite.digest, repr(tasks.sampler.settings), tasks.sampler.seed, shifts, index]
        return self.folder / f"{hashlib.sha256(json.dumps(told).encode()).hexdigest()}.safetensors"

    def __call__(self, tasks: TaskList, index: int) -> TaskTable:
        """One task's table, found or made; a damaged file is made again."""
        path = self.path(tasks, index)
        if path.exists():
            with suppress(SmatterError, TypeError):
                return read_task_table(path)
        table = make_table(self.live, self.trained, self.catalogue, tasks.episode(index))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_task_table(path, table)
        return table
