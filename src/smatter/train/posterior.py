"""Learning a posterior over routings from tables: no network is run, so it takes seconds.

    min  CVaR_rho over tasks of  loss(q(. | S), queries)  +  lambda KL(q(. | S) || p)

The loss is that of the average prediction, which is what is deployed where several networks are run, or the Gibbs loss,
that of one random routing (Bayes-routed paper, equations 5 to 11). Averages of predictions are not Gibbs predictors:
a posterior for one need not be good for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from smatter.algebra.simplex import straight_through_top
from smatter.algebra.tail import TailWindow, tail_risk
from smatter.backbones.heads import prototype_temperature
from smatter.errors import InvalidSettings
from smatter.posterior.amortised import Amortised, PosteriorSettings, facts_of
from smatter.posterior.categorical import Categorical
from smatter.posterior.concrete import Concrete, annealed_temperature
from smatter.posterior.families import Density, divergence, row_families
from smatter.posterior.task_table import TaskTable
from smatter.records import Progress, silent
from smatter.settings.posteriors import PosteriorTraining

HOTTEST, COLDEST = 1.0, 0.3
"""Temperatures of relaxed samples at the start of a training and at its end."""


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
        if not bool(known.any()):
            raise InvalidSettings("a task has no query of its own classes: leave it out")
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
    for step in range(how.n_steps):
        chosen = torch.randint(len(exercises), (how.n_tasks,), generator=generator).tolist()
        tasks = Batch.of([exercises[number] for number in chosen])
        found = posterior.densities(tasks.facts, log_prior, tasks.families, tasks.n_families)
        if isinstance(found, Categorical) and settings.family != "concrete":
            losses = tasks.risks(found, how)
        else:
            losses = tasks.sampled_risks(found, how, step / how.n_steps, generator)
        if window:
            window = window.seen(losses)
        risk = window.risk(losses) if window else tail_risk(losses, how.cvar)
        left = divergence(found, posterior.prior(log_prior, len(losses))).mean()
        optimizer.zero_grad()
        (risk + how.kl * left).backward()
        for group in optimizer.param_groups:
            group["lr"] = how.rate * (1 - step / how.n_steps)
        optimizer.step()
        progress(1 / how.n_steps)
    return posterior


@dataclass(frozen=True)
class Batch:
    """Tasks of one step, padded to one size.

    Args:
        facts: of the rows, (n_tasks, n_routings, n_facts).
        families: of the rows, (n_tasks, n_routings); see `row_families`.
        n_families: how many there may be.
        losses: of the queries by each row, (n_tasks, n_routings).
        scores: of the queries by each row, at the temperature of several networks, -inf for classes that a task does
            not have, (n_tasks, n_routings, n_queries, n_classes).
        truth: class of each query, (n_tasks, n_queries); -1 for one of no class, or of no task.
        is_beside: whether a row can run beside the point, (n_tasks, n_routings).
    """

    facts: Tensor
    families: Tensor
    n_families: int
    losses: Tensor
    scores: Tensor
    truth: Tensor
    is_beside: Tensor

    @classmethod
    def of(cls, exercises: Sequence[Exercise]) -> Batch:
        """From tasks with the same rows."""
        tables = [each.table for each in exercises]
        n_queries, n_classes = (max(table.scores.shape[axis] for table in tables) for axis in (1, 2))
        n_sources = len(tables[0].prior)
        scores = torch.zeros(len(tables), len(tables[0].points), n_queries, n_classes)
        truth = torch.full((len(tables), n_queries), -1)
        for row, table in enumerate(tables):
            _, n, n_known = table.scores.shape
            scores[row, :, :n, :n_known] = table.scores / prototype_temperature(table.n_shot, 2)
            scores[row, :, :, n_known:] = -torch.inf
            truth[row, :n] = table.truth
        return cls(
            facts=torch.stack([each.facts for each in exercises]),
            families=torch.stack([row_families(table.points, n_sources) for table in tables]),
            n_families=n_sources + 1,
            losses=torch.stack([each.losses for each in exercises]),
            scores=scores,
            truth=truth,
            is_beside=torch.stack([table.is_beside for table in tables]),
        )

    def average_losses(self, weights: Tensor) -> Tensor:
        """Loss of the queries of each task by averaged scores, (n_tasks,).

        Args:
            weights: of the rows' scores, (n_tasks, n_routings).
        """
        is_class = self.scores.isfinite().all(dim=(1, 2))
        finite = self.scores.masked_fill(~is_class[:, None, None], 0.0)
        scores = torch.einsum("tr,trqc->tqc", weights.to(finite), finite).masked_fill(~is_class[:, None], -torch.inf)
        losses = cross_entropy(scores.flatten(0, 1), self.truth.flatten(), ignore_index=-1, reduction="none")
        return losses.reshape(self.truth.shape).sum(dim=1) / (self.truth >= 0).sum(dim=1)

    def risks(self, posterior: Categorical, how: PosteriorTraining) -> Tensor:
        """What a posterior costs on each task, in nats, (n_tasks,); see `task_risk`."""
        if how.target == "gibbs":
            return (posterior.probs * self.losses).sum(dim=-1)
        return self.average_losses(_half(posterior.log_probs, self.is_beside, how.members))

    def sampled_risks(
        self, density: Density, how: PosteriorTraining, done: float, generator: torch.Generator
    ) -> Tensor:
        """What random routings of a posterior cost on each task, in nats, (n_tasks,).

        Args:
            density: the posterior. Samples of a categorical one are relaxed (straight-through); those of a density are
                weights of all rows.
            how: what is trained for, and how many samples are drawn.
            done: share of the training that is done.
            generator: of the draws.
        """
        if isinstance(density, Categorical):
            logits = density.log_probs
            if how.target == "average":
                logits = logits.masked_fill(~self.is_beside, -torch.inf)
            drawn = Concrete(logits, annealed_temperature(done, HOTTEST, COLDEST)).hard_sample(how.members, generator)
            if how.target == "average":
                return self.average_losses(_beside_point(drawn.mean(dim=0)))
        else:
            drawn = density.sample(how.members, generator)
        if how.target == "gibbs":
            return (drawn * self.losses).sum(dim=-1).mean(dim=0)
        logs = drawn.clamp(min=torch.finfo(drawn.dtype).tiny).log()
        return torch.stack([self.average_losses(_half(each, self.is_beside, how.members)) for each in logs]).mean(dim=0)


def task_risk(posterior: Categorical, exercise: Exercise, how: PosteriorTraining) -> Tensor:
    """What a posterior costs on a task, in nats."""
    if how.target == "gibbs":
        return posterior.probs @ exercise.losses
    return average_loss(exercise.table, half_weights(posterior, exercise.table, how.members))


def half_weights(posterior: Categorical, table: TaskTable, n_members: int) -> Tensor:
    """Weights of the rows' scores, (n_routings,): half for the point, the rest for the likeliest beside it.

    The first row is the point. Forward only the likeliest count; the gradient is that of the average of all, so that
    others can become one of them.
    """
    return _half(posterior.log_probs, table.is_beside, n_members)


def _half(log_shares: Tensor, is_beside: Tensor, n_members: int) -> Tensor:
    rows = log_shares.masked_fill(~is_beside, -torch.inf).softmax(dim=-1)
    return _beside_point(straight_through_top(rows.reshape(-1, rows.shape[-1]), n_members).reshape(rows.shape))


def _beside_point(shares: Tensor) -> Tensor:
    return shares / 2 + one_hot(torch.tensor(0), shares.shape[-1]) / 2


def average_loss(table: TaskTable, weights: Tensor) -> Tensor:
    """Loss of the queries by averaged scores of the rows.

    Args:
        table: what the routings make of a task.
        weights: of the rows' scores, (n_routings,), on the simplex.
    """
    known = table.truth >= 0
    scores = torch.tensordot(weights.to(table.scores), table.scores[:, known], 1)
    return cross_entropy(scores / prototype_temperature(table.n_shot, 2), table.truth[known])
