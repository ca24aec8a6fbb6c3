"""Which mixtures to keep in memory, so that many tasks share few networks: medoids by the loss of their queries.

A task opens experts of its own on whichever it is given, so a mixture is judged with those that the router opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from smatter.library.library import Library
from smatter.posterior.catalogue import BestMember, choose_members, usual_catalogue
from smatter.posterior.task_table import TaskTable
from smatter.records import Progress, silent
from smatter.route.kept import KeptCatalogue
from smatter.route.store import TrainedRouter
from smatter.route.table import WITH_EXPERTS, row_names
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.suite import Suite
from smatter.train.curriculum import make_curriculum
from smatter.train.posterior import Exercise
from smatter.train.tables import TABLES_SEED, TableMaker, held_out_jobs, make_tables, training_jobs


def choose_residents(
    library: Library,
    suite: Suite,
    trained: TrainedRouter,
    size: int,
    *,
    cost: float | None = None,
    n_tables: int = 200,
    shifts: Sequence[Shift] = (),
    variants: Sequence[Shift] = (),
    seed: int = 0,
    work: Path | None = None,
    workers: int = 1,
    progress: Progress = silent,
) -> KeptCatalogue:
    """The mixtures of the usual catalogue that together serve tasks best, each task by the best for it.

    Args:
        library: the sources.
        suite: whose router tasks they are chosen on; its validation tasks tell the price.
        trained: the router, which opens the experts.
        size: the most mixtures.
        cost: the most networks that are read to compose them all, each source of a mixture being one.
        n_tables: tasks that they are chosen on.
        shifts: what is done to every task.
        variants: what else is done, one at a time, to a share of the tasks.
        seed: of the tasks.
        work: a folder where tables are kept; none is without it.
        workers: processes that make tables.
        progress: told shares of the tables.
    """
    usual = usual_catalogue(library.names, trained.expert_names, pairs=True)
    candidates = [row for row, experts in enumerate(usual.experts) if float(experts[-1]) == 1]
    mixtures = usual.subset(candidates)
    costs = (mixtures.weights > 0).sum(dim=1).float()
    curriculum = make_curriculum(suite, shifts, variants, seed=TABLES_SEED + seed)
    jobs, judged = training_jobs(curriculum, n_tables, seed), held_out_jobs(curriculum)
    names = row_names(usual)
    rows = [names.index(f"{name}{WITH_EXPERTS}") for name in mixtures.names]
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) if work is None else work
        maker = TableMaker(library, trained, usual, folder=folder, jobs=[*jobs, *judged])
        tables = make_tables(maker, workers, lambda n, *_: progress(n / len(maker.jobs)))
    losses = query_losses(tables[: len(jobs)])[:, rows]
    found = choose_members(BestMember(losses), costs, size, builder="medoids", limit=cost)
    kept = [rows[member] for member in found.members]
    held_out = tables[len(jobs) :]
    by_query = query_losses(held_out)
    chosen = [kept[int(table.losses[kept].mean(dim=1).argmin())] for table in held_out]
    record = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "tables": len(jobs),
        "held_out": {
            "tasks": len(held_out),
            "loss": float(by_query[torch.arange(len(held_out)), chosen].mean()),
            "loss_of_router": float(by_query[:, 0].mean()),
        },
    }
    return KeptCatalogue.of(replace(mixtures, costs=costs).subset(found.members), library, trained, record)


def query_losses(tables: Sequence[TaskTable]) -> Tensor:
    """Mean loss of the queries of each task by each row, (n_tasks, n_routings)."""
    return torch.stack([Exercise.of(table, queries=False).losses for table in tables]).double()
