"""A router's experts while they learn to serve budgets: one step of training (AutoBudget paper, section 4).

One shared change serves every budget. In each step a task is passed with everything open that it opens, at the tightest
budget, and at one between (the sandwich rule of slimmable networks); the first teaches the others by its predictions.
What units are worth to a task is learnt beside that: minus the gradient in their gates, where the budgets have put the
masks, averaged over the tasks that weighed each expert,

    V_m <- (1 - r alpha_m) V_m + r alpha_m v,     v_u = -dL/dz_u,     value of u to a task = sum_m alpha_m V_m,u

and each budget opens the exact best allocation of these values. So no step breaks a budget, and there is nothing for
multipliers to price. The router's weights, and which units an expert may open, stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smatter.budget.knapsack import allocate
from smatter.budget.ranked import Floats
from smatter.compose.mixture import Mixture
from smatter.devices.budgets import Budgets
from smatter.devices.cut import numbers_of
from smatter.errors import InvalidSettings
from smatter.library.banks import Bank, Values
from smatter.live.episodes import episode_queries
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries
from smatter.route.encode import as_mixture
from smatter.route.store import TrainedRouter
from smatter.settings.budgets import BudgetTraining
from smatter.train.curriculum import Series
from smatter.train.lessons import Lesson, Timetable
from smatter.train.rates import rate_at
from smatter.units.layouts import make_layout


@dataclass(frozen=True)
class BudgetStep:
    """What one step saw.

    Args:
        step: counted from one.
        loss: with everything open, mean over its tasks.
        loss_tightest: at the tightest budget.
        loss_between: at the random one.
    """

    step: int
    loss: float
    loss_tightest: float
    loss_between: float


@dataclass(frozen=True)
class BudgetValidation:
    """What the experts are worth on validation tasks.

    Args:
        step: after which.
        loss: of the queries with everything open.
        loss_cut: mean over the tightest budget and the middle one.
        accuracy: share of the queries recognised with everything open.
        accuracy_cut: likewise.
        references: of the experts as they came, the same accuracies.
    """

    step: int
    loss: float
    loss_cut: float
    accuracy: float
    accuracy_cut: float
    references: Mapping[str, float] = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[float, ...]:
        """All that a tensor can hold."""
        return self.step, self.loss, self.loss_cut, self.accuracy, self.accuracy_cut

    @property
    def mean_loss(self) -> float:
        """What experts are chosen by."""
        return (self.loss + self.loss_cut) / 2


@dataclass(frozen=True)
class _Opened:
    """A task with all that the router says of it."""

    queries: Queries
    mixture: Mixture
    alpha: Floats
    gates: Values


class BudgetTrainee:
    """Experts in training, and what their units are worth.

    Args:
        live: the library's network.
        trained: the router whose experts they are.
        budgets: with the profiles that price units; one of them at random in each step.
        settings: how.
    """

    judged = BudgetValidation

    def __init__(
        self, live: LiveMixture, trained: TrainedRouter, budgets: Sequence[Budgets], settings: BudgetTraining
    ) -> None:
        if trained.bank is None:
            raise InvalidSettings(
                "the router has no experts: train one with --experts, and budgets have units to close"
            )
        trained.check_fits(live)
        self.live, self.trained, self.budgets, self.settings = live, trained, tuple(budgets), settings
        self.sources = live.library.names
        self.placed = live.library.bank(trained.bank.digest)
        for each in self.budgets:
            each.check_fits(live.library, self.placed)
        self.layout = make_layout(live.numbering, trained.bank.units, trained.bank.rank)
        self.values = torch.from_numpy(self.placed.values.copy()).requires_grad_()
        n_masks, n_units = trained.bank.masks.shape
        known = trained.unit_values
        self.sums = torch.zeros(n_masks, n_units, dtype=torch.float64) if known is None else known.double().clone()
        self.weights = torch.full((n_masks,), float(known is not None), dtype=torch.float64)
        self.optimizer = torch.optim.Adam([self.values], lr=settings.rate, betas=(0.9, 0.99))

    @property
    def key(self) -> list[Any]:
        """Tells what is learnt from apart: the router, and what units cost."""
        digests = [profile.digest for each in self.budgets for profile in each.profiles]
        router = self.trained.digest, self.placed.bank.digest  # the former is empty where it is not on disk yet
        return ["budgets", *router, list(self.live.library.manifest.digests.items()), digests]

    @property
    def state(self) -> dict[str, Tensor]:
        """All that changes from step to step."""
        return {"values": self.values, "sums": self.sums, "weights": self.weights}

    @property
    def unit_values(self) -> Tensor:
        """What units are worth by expert, (n_masks, n_units); zero of an expert that no task has weighed."""
        return self.sums / self.weights.clamp(min=1e-12)[:, None]

    def timetable(self, series: Sequence[Series], folder: Path | None) -> Timetable:  # noqa: ARG002
        """Which tasks each step has."""
        settings = self.settings
        return Timetable(series, settings.n_tasks, settings.evidence_share, seed=settings.seed)

    def step(self, number: int, lessons: Sequence[Lesson]) -> BudgetStep:
        """One step of the optimizer, and of the values of units, on some tasks at three budgets each."""
        settings = self.settings
        random = np.random.default_rng([settings.seed, 1, number])
        budgets = self.budgets[int(random.integers(len(self.budgets)))]
        shares = settings.budgets(float(random.random()))
        gradient, losses = torch.zeros_like(self.values), np.zeros(3)
        for lesson in lessons:
            task = self._opened(lesson)
            loss, teacher, slope, _ = self._passed(task, task.gates)
            gradient += slope
            losses[0] += loss
            queries = replace(task.queries, teacher=teacher, teacher_share=settings.imitation)
            gains = np.zeros(len(task.gates))
            for place, share in enumerate(shares):
                found = self._passed(replace(task, queries=queries), self._cut(task, budgets, share))
                losses[1 + place] += found[0]
                gradient += found[2]
                gains += found[3] / len(shares)
            self._remember(task.alpha, gains)
        self.values.grad = gradient / len(lessons)
        self.optimizer.param_groups[0]["lr"] = rate_at(number, settings.rate, settings.n_steps, settings.warm_up)
        self.optimizer.step()
        if not math.isfinite(losses.sum()):
            raise InvalidSettings(f"the loss is not finite at step {number + 1}: train the router at a lower rate")
        full, tightest, between = (losses / len(lessons)).tolist()
        return BudgetStep(number + 1, full, tightest, between)

    def validate(self, step: int, lessons: Sequence[Lesson]) -> BudgetValidation:
        """Mean loss and accuracy of the queries with everything open, and cut by the values of units alone."""
        shares = self.settings.budgets(0.5)
        sums = torch.zeros(2, 2, dtype=torch.float64)
        for lesson in lessons:
            task = self._opened(lesson)
            masks = [task.gates, *(self._cut(task, self.budgets[0], share) for share in shares)]
            for row, gates in zip((0, 1, 1), masks, strict=True):
                with torch.no_grad():
                    self._compose(task, torch.from_numpy(gates))
                read = self.live.read(task.queries)
                figures = [float(task.queries.losses(read).mean()), task.queries.accuracy(read)]
                sums[row] += torch.tensor(figures, dtype=torch.float64)
        sums /= torch.tensor([[1], [len(shares)]]) * len(lessons)
        (loss, accuracy), (loss_cut, accuracy_cut) = sums.tolist()
        return BudgetValidation(step, loss, loss_cut, accuracy, accuracy_cut)

    def references(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Accuracy of the experts as they came with everything open, mean over some tasks."""
        found = 0.0
        for lesson in lessons:
            task = self._opened(lesson)
            residual = self.live.numbering.residual(torch.from_numpy(self.placed.vector(task.gates)))
            self.live.compose(task.mixture, residual)
            found += task.queries.accuracy(self.live.read(task.queries)) / len(lessons)
        return {"before": found}

    def bank(self) -> Bank:
        """The experts as they are now."""
        values = self.values.detach().numpy()[self.placed.is_open].astype(np.float16)
        return replace(self.placed.bank, values=values, digest="")

    def finish(self, record: Mapping[str, Any]) -> TrainedRouter:
        """The router with these experts and what their units are worth, ready for use.

        Args:
            record: how they were trained, for people.
        """
        told = {**self.trained.record, "budgets": dict(record)}
        values = self.unit_values.float()
        return replace(self.trained, bank=self.bank(), unit_values=values, record=told, digest="", certificates=())

    def _opened(self, lesson: Lesson) -> _Opened:
        names = [self.sources[number] for number in lesson.sources]
        routing = self.trained.ask(self.live, names)(lesson.encoded)
        experts = self.trained.mix(self.live, routing.experts)
        assert experts is not None
        mixture = as_mixture(self.live, routing.weights, names).without_idle()
        gates = self.placed.bank.gates(experts)
        return _Opened(episode_queries(self.live, lesson.episode), mixture, np.array(experts.alpha), gates)

    def _cut(self, task: _Opened, budgets: Budgets, share: float) -> Values:
        """The task's gates with only those units open that a budget allows."""
        gates = np.zeros_like(task.gates)
        if task.gates.any():
            ranked = budgets.ranked(self.placed, task.gates, task.alpha @ self.unit_values.numpy() * task.gates)
            everything = ranked.cost({name: len(each.units) for name, each in ranked.modules.items()})
            units = numbers_of(ranked, allocate(ranked, (share * everything).tolist()).levels)
            gates[units] = task.gates[units]
        return gates

    def _compose(self, task: _Opened, gates: Tensor) -> Tensor:
        """Give the network what a task has at some gates; the change as it is in the graph."""
        delta = self.layout.expand(self.values, gates)
        self.live.compose(task.mixture, self.live.numbering.residual(delta.detach()))
        return delta

    def _passed(self, task: _Opened, gates: Values) -> tuple[float, Tensor, Tensor, Floats]:
        """A pass both ways: loss, probabilities of the queries, gradient in the values, and gains of all units."""
        open_ = torch.from_numpy(gates).requires_grad_()
        delta = self._compose(task, open_)
        self.live.forget()
        with torch.enable_grad():
            read = task.queries.read(self.live.network, task.queries.inputs)
            loss = task.queries.losses(read).mean()
            loss.backward()
        slopes, slope = torch.autograd.grad(delta, (open_, self.values), self.live.gradient_vector())
        self.live.forget()
        return float(loss.detach()), task.queries.logits(read.detach()).softmax(dim=1), slope, -slopes.double().numpy()

    def _remember(self, alpha: Floats, gains: Floats) -> None:
        part = self.settings.memory * torch.from_numpy(alpha)
        self.sums.mul_(1 - part[:, None]).add_(part[:, None] * torch.from_numpy(gains))
        self.weights.mul_(1 - part).add_(part)
