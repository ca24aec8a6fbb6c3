"""Learning a posterior over routings from tables: no network is run, so it takes seconds.

    min  CVaR_rho over tasks of  loss(q(. | S), queries)  +  lambda KL(q(. | S) || p)

The loss is that of the average prediction, which is what is deployed where several networks are run, or the Gibbs loss,
that of one random routing (Bayes-routed paper, equations 5 to 11). Averages of predictions are not Gibbs predictors:
a posterior for one need not be good for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from smatter.algebra.simplex import straight_through_top
from smatter.algebra.tail import TailWindow, tail_risk
from smatter.backbones.heads import prototype_temperature
from smatter.errors import InvalidSettings
from smatter.records import Progress, silent
from smatter.route.amortised import Amortised, PosteriorSettings, facts_of
from smatter.route.posteriors.categorical import Categorical
from smatter.route.task_table import TaskTable
from smatter.settings import check_at_least, check_choices, check_positive

Target = Literal["average", "gibbs"]


@dataclass(frozen=True)
class PosteriorTraining:
    """How a posterior is trained.

    Args:
        target: the loss of the average prediction of the likeliest routings, or of one random routing.
        members: routings that are averaged, beside the point, which has half of the weight; for `average`.
        cvar: rho, the worst share of the tasks that counts; all of them by default.
        kl: lambda, price of leaving the prior.
        window: tasks whose losses set the threshold of the worst share; none by default.
        n_steps: of the optimizer.
        n_tasks: tasks of a step.
        rate: of learning.
        seed: of the first weights and of the order of tasks.
    """

    target: Target = "average"
    members: int = 3
    cvar: float = 1.0
    kl: float = 0.01
    window: int = 0
    n_steps: int = 300
    n_tasks: int = 32
    rate: float = 1e-2
    seed: int = 0

    def __post_init__(self) -> None:
        check_choices(self, target=Target)
        check_at_least(1, members=self.members, n_steps=self.n_steps, n_tasks=self.n_tasks)
        check_at_least(0, kl=self.kl, window=self.window)
        check_positive(rate=self.rate)
        if not 0 < self.cvar <= 1:
            raise InvalidSettings(f"the worst share of tasks is {self.cvar}: give --cvar above 0 and up to 1")
        if self.cvar * self.n_tasks < 1 and not self.window:
            raise InvalidSettings(
                f"the worst {self.cvar:g} of {self.n_tasks} tasks is less than one of them: give more tasks a step, or "
                "a window"
            )


@dataclass(frozen=True)
class Exercise:
    """A task to learn from.

    Args:
        table: what the routings make of it.
        facts: as the posterior sees them, (n_routings, n_facts).
        losses: of the queries by each routing, (n_routings,).
    """

    table: TaskTable
    facts: Tensor
    losses: Tensor

    @classmethod
    def of(cls, table: TaskTable, queries: bool) -> Exercise:
        """From a table whose queries are labelled; those of no class of the task are left out."""
        if not bool(table.scores.isfinite().all() & table.held_out.isfinite().all()):
            raise InvalidSettings("a table has NaN or Inf: a routing gives no numbers on a task; leave it out")
        known = table.truth >= 0
        scores = table.scores[:, known] / prototype_temperature(table.n_shot)
        rows = [cross_entropy(each, table.truth[known]) for each in scores]
        return cls(table, facts_of(table, queries), torch.stack(rows))


def train_posterior(
    tables: Sequence[TaskTable],
    log_prior: Tensor,
    how: PosteriorTraining | None = None,
    settings: PosteriorSettings | None = None,
    progress: Progress = silent,
) -> Amortised:
    """Learn a posterior.

    Args:
        tables: of tasks with labelled queries, all with the same rows.
        log_prior: of the rows, (n_routings,); -inf for routings that must not be chosen.
        how: it is trained.
        settings: what it is made of.
        progress: told the share of the steps that is done.
    """
    how, settings = how or PosteriorTraining(), settings or PosteriorSettings()
    exercises = [Exercise.of(table, settings.queries) for table in tables]
    generator = torch.Generator().manual_seed(how.seed)
    posterior = Amortised(settings, generator)
    optimizer = torch.optim.Adam(posterior.parameters(), lr=how.rate)
    window = TailWindow(how.cvar, how.window) if how.window else None
    prior = Categorical(tables[0].points, log_prior)
    for step in range(how.n_steps):
        chosen = torch.randint(len(exercises), (how.n_tasks,), generator=generator).tolist()
        losses, divergences = [], []
        for number in chosen:
            exercise = exercises[number]
            found = posterior(exercise.table, log_prior, exercise.facts)
            losses.append(task_risk(found, exercise, how))
            divergences.append(found.kl(prior))
        batch = torch.stack(losses)
        if window:
            window = window.seen(batch)
        risk = window.risk(batch) if window else tail_risk(batch, how.cvar)
        optimizer.zero_grad()
        (risk + how.kl * torch.stack(divergences).mean()).backward()
        for group in optimizer.param_groups:
            group["lr"] = how.rate * (1 - step / how.n_steps)
        optimizer.step()
        progress(1 / how.n_steps)
    return posterior


def task_risk(posterior: Categorical, exercise: Exercise, how: PosteriorTraining) -> Tensor:
    """What a posterior costs on a task, in nats."""
    if how.target == "gibbs":
        return posterior.probs @ exercise.losses
    return average_loss(exercise.table, half_weights(posterior, how.members))


def half_weights(posterior: Categorical, n_members: int) -> Tensor:
    """Weights of the rows' scores, (n_routings,): half for the point, the rest for the likeliest others.

    The first row is the point. Forward only the likeliest count; the gradient is that of the average of all, so that
    others can become one of them.
    """
    others = posterior.log_probs.clone()
    others[0] = -torch.inf
    shares = straight_through_top(others.softmax(dim=0)[None], n_members)[0]
    return shares / 2 + one_hot(torch.tensor(0), len(shares)) / 2


def average_loss(table: TaskTable, weights: Tensor) -> Tensor:
    """Loss of the queries by averaged scores of the rows.

    Args:
        table: what the routings make of a task.
        weights: of the rows' scores, (n_routings,), on the simplex.
    """
    known = table.truth >= 0
    scores = torch.tensordot(weights.to(table.scores), table.scores[:, known], 1)
    return cross_entropy(scores / prototype_temperature(table.n_shot, 2), table.truth[known])
