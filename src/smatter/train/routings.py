"""A trained router and a suite to a posterior over routings: tables of tasks, what is learnt from them, a temperature.

Only tables cost passes of networks, and they are kept: learning again with other settings takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from smatter.algebra.tail import tail_risk
from smatter.library.library import Library
from smatter.posterior.amortised import PosteriorSettings
from smatter.posterior.catalogue import Catalogue, usual_catalogue
from smatter.posterior.categorical import Categorical
from smatter.posterior.learnt import LearntPosterior
from smatter.posterior.prior import cost_prior, fit_beta, uniform_prior
from smatter.posterior.task_table import TaskTable
from smatter.records import Progress, silent
from smatter.route.store import TrainedRouter
from smatter.settings import check_at_least
from smatter.settings.posteriors import PosteriorTraining, Prior
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.suite import Suite
from smatter.train.curriculum import make_curriculum
from smatter.train.posterior import Exercise, task_risk, train_posterior
from smatter.train.tables import TABLES_SEED, TableMaker, held_out_jobs, make_tables, training_jobs

COLDEST, HOTTEST = 0.05, 20.0
"""Between these the temperature of a posterior is looked for."""


@dataclass(frozen=True)
class Learning:
    """What a posterior is learnt from, and how.

    Args:
        training: the objective.
        settings: the family, and what the posterior looks at.
        prior: what it pays to leave.
        n_tables: tasks that are learnt from.
        n_held_out: tasks of each kind that the temperature is fitted on.
    """

    training: PosteriorTraining = field(default_factory=PosteriorTraining)
    settings: PosteriorSettings = field(default_factory=PosteriorSettings)
    prior: Prior = field(default_factory=Prior)
    n_tables: int = 200
    n_held_out: int = 4

    def __post_init__(self) -> None:
        check_at_least(1, n_tables=self.n_tables, n_held_out=self.n_held_out)


def learn_posterior(
    library: Library,
    suite: Suite,
    trained: TrainedRouter,
    how: Learning | None = None,
    *,
    catalogue: Catalogue | None = None,
    shifts: Sequence[Shift] = (),
    variants: Sequence[Shift] = (),
    work: Path | None = None,
    workers: int = 1,
    progress: Progress = silent,
) -> TrainedRouter:
    """The same router with a posterior over the routings of a catalogue; no calibration of an earlier one is kept.

    Args:
        library: the sources.
        suite: whose router tasks are learnt from; its validation tasks set the temperature.
        trained: the router.
        how: the defaults without.
        catalogue: the routings; the usual ones by default.
        shifts: what is done to every task.
        variants: what else is done, one at a time, to a share of the tasks, as when the router was trained.
        work: a folder where tables are kept, for another training too; none is without it.
        workers: processes that make tables.
        progress: told shares of the tables.
    """
    how, seed = how or Learning(), how.training.seed if how else 0
    catalogue = catalogue or usual_catalogue(library.names, trained.expert_names)
    curriculum = make_curriculum(suite, shifts, variants, how.n_held_out, seed=TABLES_SEED + seed)
    jobs, judged = training_jobs(curriculum, how.n_tables, seed), held_out_jobs(curriculum)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) if work is None else work
        maker = TableMaker(library, trained, catalogue, folder=folder, jobs=[*jobs, *judged])
        tables = make_tables(maker, workers, lambda n, *_: progress(n / len(maker.jobs)))
    learning, held_out = tables[: len(jobs)], tables[len(jobs) :]
    costs = row_costs(learning)
    log_prior = prior_of(how.prior, costs)
    network = train_posterior(learning, log_prior, how.training, how.settings)
    posterior = LearntPosterior(
        network,
        catalogue,
        log_prior=log_prior,
        sources={name: library.manifest.digests[name] for name in library.names},
    )
    exercises = [Exercise.of(table, how.settings.queries) for table in held_out]
    posterior = replace(posterior, temperature=routing_temperature([posterior(table) for table in held_out], exercises))
    record: dict[str, Any] = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "tables": len(learning),
        "settings": asdict(how.training) | asdict(how.settings) | {"prior": str(how.prior)},
        "prior_cost": float(log_prior.exp() @ costs),
        "held_out": held_out_figures(posterior, exercises, how.training),
    }
    return replace(trained, posterior=replace(posterior, record=record))


def held_out_figures(
    posterior: LearntPosterior, exercises: Sequence[Exercise], training: PosteriorTraining
) -> dict[str, float]:
    """What a posterior does on tasks that were not learnt from, by its own objective, beside the router alone.

    Args:
        posterior: with its temperature, which may be fitted on these tasks: one number of many tasks.
        exercises: the tasks.
        training: the objective.
    """
    own = torch.stack([each.losses[0] for each in exercises]).double()
    ours = torch.stack([task_risk(posterior(each.table), each, training) for each in exercises]).double()
    return {
        "tasks": len(exercises),
        "loss": float(ours.mean()),
        "loss_of_router": float(own.mean()),
        "tail": float(tail_risk(ours, training.cvar)),
        "tail_of_router": float(tail_risk(own, training.cvar)),
    }


def row_costs(tables: Sequence[TaskTable]) -> Tensor:
    """Networks that are read to compose each routing, sources and open experts, mean over tasks; (n_routings,)."""
    return torch.stack([(table.points[:, :-1] > 0).sum(dim=1) for table in tables]).double().mean(dim=0)


def prior_of(prior: Prior, costs: Tensor) -> Tensor:
    """Log p of the rows, (n_routings,).

    Args:
        prior: which.
        costs: of the rows, (n_routings,).
    """
    if prior.kind == "uniform":
        return uniform_prior(len(costs))
    return cost_prior(costs, prior.value if prior.kind == "cost" else fit_beta(costs, prior.value))


def routing_temperature(posteriors: Sequence[Categorical], exercises: Sequence[Exercise]) -> float:
    """The temperature T at which the queries of tasks are likeliest, if one routing, drawn from q, names all of a task.

    It minimises the mean of -log sum_A q_T(A) exp(-n loss_A) / n over the tasks, n their queries: routings that are
    alike on the queries share what is said of them, so luck among them does not make q look overconfident.

    Args:
        posteriors: at temperature 1, of tasks that were not learnt from.
        exercises: the same tasks.
    """

    def surprise(log_temperature: float) -> float:
        values = []
        for posterior, each in zip(posteriors, exercises, strict=True):
            n_queries = int((each.table.truth >= 0).sum())
            own = (posterior.log_probs.double() / math.exp(log_temperature)).log_softmax(dim=0)
            values.append(-float((own - n_queries * each.losses.double()).logsumexp(dim=0)) / n_queries)
        return sum(values) / len(values)

    found = minimize_scalar(surprise, bounds=(math.log(COLDEST), math.log(HOTTEST)), method="bounded")
    return float(math.exp(found.x))
