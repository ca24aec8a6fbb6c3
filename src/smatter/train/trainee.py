"""A router and its residual experts while they learn: one step of meta-training (multi-source paper, section 6).

A step's gates follow from the seed and the step's number. Sources are read, never written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smatter.algebra.tail import TailWindow, tail_risk
from smatter.budget.multipliers import Multipliers
from smatter.compose.experts import ExpertMix
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.library.banks import Bank, PlacedBank
from smatter.live.episodes import episode_queries
from smatter.live.mixture import LiveMixture
from smatter.route.descriptor import describe_sources, probe_statistics
from smatter.route.encode import Routing, as_mixture
from smatter.route.evidence import ByEvidence
from smatter.route.experts import Experts, used, with_null
from smatter.route.probe import Probe
from smatter.route.router import Router
from smatter.route.store import TrainedRouter
from smatter.settings.training import MetaSettings
from smatter.train.assignment import assign, unit_worths
from smatter.train.curriculum import Series
from smatter.train.ensemble import EnsembleTeacher
from smatter.train.lessons import Lesson, Timetable
from smatter.train.objective import TaskLoss, task_loss
from smatter.train.parting import Keeper, expected_load
from smatter.train.rates import rate_at
from smatter.train.teacher import Teacher
from smatter.units.layouts import Layout, Masked

SOLVED = "solved"
"""Where a teacher keeps its solutions."""

MAX_GATES = 20_000_000
"""Each takes about sixty bytes while it learns."""


@dataclass(frozen=True)
class MetaStep:
    """What one step saw.

    Args:
        step: counted from one.
        loss: mean over its tasks.
        entropy: of the weights, mean over its tasks.
        shares: of the delta's values that each expert uses, then all together; empty without experts.
        load: how often each expert was chosen of late, then the null expert; empty without experts.
    """

    step: int
    loss: float
    entropy: float
    shares: tuple[float, ...]
    load: tuple[float, ...] = ()


@dataclass(frozen=True)
class Validation:
    """What a router is worth on validation tasks, as it would be used.

    Args:
        step: after which.
        loss: of the queries where it is told nothing but the examples.
        loss_with_evidence: where it is told how each source does, too.
        accuracy: share of the queries recognised.
        accuracy_with_evidence: likewise.
        references: accuracy of what needs no training on the same tasks: the base, the plain average of all sources,
            and evidence routing.
    """

    step: int
    loss: float
    loss_with_evidence: float
    accuracy: float
    accuracy_with_evidence: float
    references: Mapping[str, float] = field(default_factory=dict)

    @property
    def numbers(self) -> tuple[float, ...]:
        """All that a tensor can hold."""
        return self.step, self.loss, self.loss_with_evidence, self.accuracy, self.accuracy_with_evidence

    @property
    def mean_loss(self) -> float:
        """What routers are chosen by."""
        return (self.loss + self.loss_with_evidence) / 2


class Trainee:
    """A router in training: what is learnt, and what it is learnt from.

    Args:
        live: the library's network.
        probe: describes the sources.
        settings: how.
        series: the kinds of tasks that are learnt from, for experts to part by.
    """

    judged = Validation

    def __init__(self, live: LiveMixture, probe: Probe, settings: MetaSettings, series: Sequence[Series] = ()) -> None:
        self.live, self.probe, self.settings = live, probe, settings
        self.sources = live.library.names
        self.raw = describe_sources(live, probe, self.sources)
        self.descriptors = (self.raw - self.raw[self.sources.index(live.library.manifest.base)]).float()
        for name, descriptor in zip(self.sources, self.descriptors, strict=True):
            if not bool(descriptor.isfinite().all()):
                raise InvalidSettings(f"features of source {name!r} are not finite: remove it from the library")
        spread = self.descriptors.flatten(0, 1).std(dim=0, correction=0).clamp(min=1e-3)
        moments = torch.stack([torch.zeros_like(spread), spread])
        generator = torch.Generator().manual_seed(settings.seed)
        n_modules = len(live.library.partition.modules)
        self.statistics = probe_statistics(live, probe)
        self.router = Router(settings.router, self.statistics, n_modules, moments, generator)
        n_experts, n_masks = settings.router.n_experts, settings.router.n_masks
        self.layout = live.layout(settings.router) if n_masks else None
        self.experts = None
        if self.layout:
            n_gates = n_masks * (int(self.layout.unit_of.max()) + 1)
            if n_gates > MAX_GATES:
                raise InvalidSettings(
                    f"{n_gates:,} gates are more than {MAX_GATES:,}: use --units groups or fewer experts"
                )
            self.experts = self._first_experts(self.layout, series, generator)
        self.multipliers = Multipliers(torch.zeros(n_experts))
        self.keeper = Keeper(settings.parting, expected_load(series, n_experts)) if n_experts else None
        self.seen = torch.full((settings.window,), torch.inf, dtype=torch.float64) if settings.window else None
        groups = [{"params": list(self.router.parameters()), "lr": settings.learning_rate}]
        if self.experts:
            groups.append({"params": [self.experts.values], "lr": settings.delta_rate})
            groups.append({"params": [self.experts.logits], "lr": settings.gate_rate})
        self.optimizer = torch.optim.Adam(groups, betas=(0.9, 0.99))
        self._rates = [group["lr"] for group in self.optimizer.param_groups]

    def _first_experts(self, layout: Layout, series: Sequence[Series], generator: torch.Generator) -> Experts:
        """Experts as they begin: apart, where tasks tell their units apart."""
        settings, how = self.settings, self.settings.router
        experts = Experts(layout, how.n_experts, generator)
        shares = [settings.expert_share] * how.n_experts + [how.common_share] * (how.n_masks - how.n_experts)
        for share in shares:
            experts.check_room(share)
        if series and isinstance(layout, Masked):
            worths = unit_worths(self.live, series, layout.unit_of.long(), how.n_experts, how.n_masks)
            masks = assign(worths, experts.sizes, shares)
            experts.begin_with(masks[: how.n_experts])
            experts.common = masks[-1] if how.common_share else None
        elif how.common_share:
            chances = torch.rand(1, len(experts.sizes), generator=generator)
            experts.common = assign(chances * experts.sizes, experts.sizes, shares[-1:])[0]
        return experts

    @property
    def key(self) -> list[Any]:
        """Tells what is learnt from apart: sources, in their order, and probe set."""
        library = self.live.library
        digests = list(library.manifest.digests.items())
        return [digests, library.manifest.base, library.partition.digest, self.probe.digest]

    @property
    def state(self) -> dict[str, Tensor]:
        """All that changes from step to step."""
        tensors: dict[str, Tensor] = {f"router.{name}": p for name, p in self.router.named_parameters()}
        if self.experts:
            tensors |= {f"experts.{name}": p for name, p in self.experts.named_parameters()}
            tensors["multipliers"] = self.multipliers.values
            if self.experts.common is not None:
                tensors["common"] = self.experts.common  # chosen once, whoever goes on
        if self.keeper:
            tensors["load"] = self.keeper.load
        if self.seen is not None:
            tensors["seen"] = self.seen
        return tensors

    def timetable(self, series: Sequence[Series], folder: Path | None) -> Timetable:
        """Which tasks each step has, and who teaches them.

        Args:
            series: kinds of tasks.
            folder: where a teacher keeps its solutions.
        """
        settings, imitation = self.settings, self.settings.imitation
        teacher: Teacher | EnsembleTeacher | None = None
        if imitation.teacher == "ensemble":
            teacher = EnsembleTeacher()
        elif imitation.needs_solver:
            if folder is None:
                raise InvalidSettings("a teacher's solutions are kept on disk: give a folder")
            teacher = Teacher(folder / SOLVED)
        return Timetable(
            series,
            settings.n_tasks,
            settings.evidence_share,
            seed=settings.seed,
            teacher=teacher,
            taught_share=imitation.share if imitation.is_wanted else 0.0,
        )

    def step(self, number: int, lessons: Sequence[Lesson]) -> MetaStep:
        """One step of the optimizer on the loss of some tasks: its mean, or that of the worst share of them."""
        settings = self.settings
        generator = torch.Generator().manual_seed(1_000_003 * settings.seed + number)
        gates = self.experts.gates(generator) if self.experts else None
        total, loss, entropy = torch.zeros(()), 0.0, 0.0
        closed = self.keeper.closed(len(lessons), generator) if self.keeper else [False] * len(lessons)
        scores, found_losses = [], list[TaskLoss]()
        for lesson, is_closed in zip(lessons, closed, strict=True):
            found = task_loss(
                self.live,
                self.router,
                experts=self.experts,
                gates=gates,
                lesson=lesson,
                descriptors=self.descriptors,
                imitation=settings.imitation,
                without_first=is_closed,
            )
            scores.append(found.routing.expert_scores)
            found_losses.append(found)
        for found, count in zip(found_losses, self._counts([each.value for each in found_losses]), strict=True):
            mixed = torch.special.entr(found.routing.weights.clamp(min=1e-12)).sum(dim=1).mean()
            total = total + (count * found.slope + settings.entropy * mixed) / len(lessons)
            loss += found.value / len(lessons)
            entropy += float(mixed.detach()) / len(lessons)
        shares = self.experts.open_shares() if self.experts and self.keeper else torch.zeros(0)
        if self.keeper:
            total = total + self.keeper.price(scores, lessons, number / settings.n_steps)
        allowed = settings.allowed_share(number)
        total = total + self.multipliers.penalty(shares[:-1], allowed)
        self.optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.router.parameters(), 1.0)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate_at(number, rate, settings.n_steps, settings.warm_up)
        self.optimizer.step()
        self.multipliers.update(shares[:-1], allowed)
        if not math.isfinite(loss):
            raise InvalidSettings(f"the loss is not finite at step {number + 1}: train with fewer experts or sources")
        load = self.keeper.load.tolist() if self.keeper else ()
        return MetaStep(number + 1, loss, entropy, tuple(shares.tolist()), tuple(load))

    def _counts(self, values: Sequence[float]) -> list[float]:
        """How often each task of a step counts, once on average: those of the worst share 1 / rho times, others not.

        These are n times the gradient of CVaR_rho in the tasks' losses, from which the chain rule does the rest.
        """
        rho, losses = self.settings.cvar, torch.tensor(values, dtype=torch.float64)
        if rho == 1 or not bool(losses.isfinite().all()):  # which `step` complains of
            return [1.0] * len(values)
        losses.requires_grad_()
        if self.seen is None:
            risk = tail_risk(losses, rho)
        else:
            known = self.seen[self.seen.isfinite()]
            window = TailWindow(rho, len(self.seen), known).seen(losses)
            risk = window.risk(losses)
            self.seen.copy_(torch.cat([torch.full_like(self.seen, torch.inf), window.losses])[-len(self.seen) :])
        (slopes,) = torch.autograd.grad(risk, losses)
        return (len(values) * slopes).tolist()

    def validate(self, step: int, lessons: Sequence[Lesson]) -> Validation:
        """Mean loss and accuracy of the queries, with all sources and with experts made discrete."""
        bank = self.bank()
        placed = PlacedBank(bank, self.live.numbering) if bank else None
        sums = torch.zeros(2, 2, dtype=torch.float64)
        for lesson in lessons:
            queries = episode_queries(self.live, lesson.episode)
            for row, losses in enumerate((None, lesson.encoded.losses)):
                with torch.no_grad():
                    routing: Routing = self.router(lesson.encoded.statistics, self.descriptors, losses)
                residual = None
                if bank and placed:
                    alpha = with_null(used(routing.experts), len(bank.masks))
                    mix = ExpertMix(bank.digest, tuple(alpha.tolist()))
                    residual = self.live.numbering.residual(placed.vector(bank.gates(mix)))
                self.live.compose(as_mixture(self.live, routing.weights, self.sources), residual)
                read = self.live.read(queries)
                figures = [float(queries.losses(read).mean()), queries.accuracy(read)]
                sums[row] += torch.tensor(figures, dtype=torch.float64)
        (loss, accuracy), (told_loss, told_accuracy) = (sums / len(lessons)).tolist()
        return Validation(step, loss, told_loss, accuracy, told_accuracy)

    def references(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Accuracy of what needs no training, mean over some tasks with the losses of all sources."""
        library, names = self.live.library, self.sources
        weigh, found = ByEvidence(names), dict.fromkeys(("base", "average", "evidence"), 0.0)
        average = Mixture.of(dict.fromkeys(names, 1 / len(names)))
        for lesson in lessons:
            queries = episode_queries(self.live, lesson.episode)
            mixtures = {"base": Mixture.of({library.manifest.base: 1.0}), "average": average}
            mixtures["evidence"] = as_mixture(self.live, weigh(lesson.encoded).weights, names)
            for name, mixture in mixtures.items():
                self.live.compose(mixture)
                found[name] += queries.accuracy(self.live.read(queries)) / len(lessons)
        return found

    def bank(self) -> Bank | None:
        """The experts as they are now, made discrete."""
        if self.experts is None:
            return None
        library, settings = self.live.library, self.settings.router
        values, masks = self.experts.fixed(self.settings.expert_share)
        return Bank(
            values,
            masks,
            settings.units,
            settings.rank,
            base=library.manifest.digests[library.manifest.base],
            partition=library.partition.digest,
            tensors=tuple(self.live.numbering.tensors),
        )

    def finish(self, record: Mapping[str, Any]) -> TrainedRouter:
        """The router as it is now, ready for use.

        Args:
            record: how it was trained, for people.
        """
        manifest = self.live.library.manifest
        digests = {name: manifest.digests[name] for name in self.sources}
        return TrainedRouter(
            router=self.router.requires_grad_(False),
            bank=self.bank(),
            probe=self.probe,
            statistics=tuple(self.statistics),
            descriptors=dict(zip(digests.values(), self.raw, strict=True)),
            sources=digests,
            base=digests[manifest.base],
            partition=self.live.library.partition.digest,
            record=record,
        )
