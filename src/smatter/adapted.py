"""A task's model: what a method found, its heads, and all that is known of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smatter.backbones.heads import HEADS, held_out_accuracy, pool, prototype_temperature
from smatter.compose.head import ClassHead
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.records import Decision, Notes, Origin
from smatter.devices.budgets import Budgets, Spent, open_fractions
from smatter.devices.stacks import Stack
from smatter.library.diagnostics import Diagnostics, diagnose
from smatter.library.recipes import write_recipe
from smatter.live.mixture import LiveMixture
from smatter.live.model import TaskModel
from smatter.live.objectives import LeaveOneOut
from smatter.live.predictions import Predictions
from smatter.live.task import Task
from smatter.live.transduce import Learnt, features_of, learn
from smatter.methods import Fit
from smatter.records import told_names, told_shares
from smatter.route.certificates import Certificate
from smatter.route.watch import Watch
from smatter.settings import HeadName
from smatter.tasks.support import Support


@dataclass(frozen=True)
class Alternative:
    """What one could have instead of a task's model, without adapting, judged on the same examples.

    Args:
        name: base, best source, or plain average.
        source: whose network it is; none for the average of all.
        loss: of its prototypes, leave-one-out.
        held_out_accuracy: share of the examples that its head names rightly without having seen them; NaN if no class
            has two.
    """

    name: str
    source: str | None
    loss: float
    held_out_accuracy: float

    @property
    def numbers(self) -> tuple[float, float]:
        """Accuracy and loss."""
        return self.held_out_accuracy, self.loss


class Adapted:
    """A task's model.

    Args:
        live: the network; it gets the task's weights here and must keep them.
        task: what they were fitted to.
        fit: what was found.
        head: how classes are told apart.
        class_names: the classes in the order that predictions have; the task's own by default.
        origin: by which method the fit was found.
        support: the examples as they were given, to be shown.
        budgets: what it was made to fit.
    """

    def __init__(
        self,
        live: LiveMixture,
        task: Task,
        fit: Fit,
        head: HeadName = "prototype",
        class_names: Sequence[str] | None = None,
        origin: Origin | None = None,
        support: Support | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        self.fit, self.head, self.origin, self.support = fit, head, origin, support
        self._live, self._task = live, task
        self.latency: tuple[Spent, ...] = () if budgets is None else budgets.spent(self._active)
        """What it costs beside each budget that it was made to fit."""
        bare = fit.recipe(live.library)
        self._own = live.library.networks(bare)[0]
        self._weights = bare.network_weights
        self._reads = _readings(live, task, bare)
        names = tuple(class_names or task.class_names)
        if head == "linear":
            told, members = ClassHead(head, {name: row for row, name in enumerate(names)}), bare.members
        else:
            row_of = {name: row for row, name in enumerate(task.class_names)}
            told, *others = _heads(task, self._reads, head, {name: row_of[name] for name in names})
            members = tuple(
                replace(member, coefficients=other.weight, constants=other.bias)
                for member, other in zip(bare.members, others, strict=True)
            )
        if origin is not None:
            if not fit.is_private:
                facts = {"task": task.digest, "loss": self.loss if math.isfinite(self.loss) else None}
                origin = origin.model_copy(update=facts)
            budget = tuple(each.record for each in self.latency)
            bare = replace(bare, notes=Notes(origin=origin, decision=fit.decision, budget=budget))
        self._model = TaskModel(live, replace(bare, head=told, members=members))
        self.recipe = bare if fit.is_private else self._model.recipe
        self.learnt: Learnt | None = None
        self.certificates: tuple[Certificate, ...] = ()
        self.watch: Watch | None = None

    def __repr__(self) -> str:
        made = f"Adapted by {self.method or 'an unknown method'}"
        shares = told_shares(self.shares)
        if self.fit.is_private:
            return f"{made}: {shares}\n  private: nothing else may be told"
        evidence = self.fit.evidence
        alone = f", of {evidence.best} alone {min(filter(math.isfinite, evidence.losses)):.3f}" if evidence else ""
        return (
            f"{made} to {told_names(self.class_names)}: {shares}\n"
            f"  leave-one-out loss {self.loss:.3f}{alone}; {self.head} head"
        )

    def learn_from(self, queries: Any) -> None:
        """Let inputs without labels move the prototypes, from where the examples put them."""
        objective = self._task.objective
        assert isinstance(objective, LeaveOneOut)
        examples = torch.stack([read[objective.unchanged] for read in self._reads])
        self.learnt = learn(self._model, features_of(self._model, queries), examples, objective.classes)
        self._model = self.learnt.model
        self.recipe = self._model.recipe

    def certify(self, certificates: tuple[Certificate, ...]) -> None:
        """Keep what calibration tasks say of the rule that was followed, and nothing that was said before.

        The recipe carries sets of classes, of several lists those of the last.
        """
        self.certificates = certificates
        sets = certificates[-1].sets if certificates else None
        self.recipe = replace(self.recipe, notes=self.recipe.notes.model_copy(update={"sets": sets}))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of predictions."""
        return self._model.class_names

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources of the library, with weight or without."""
        return self._live.library.names

    @property
    def method(self) -> str:
        """By which the fit was found; empty where that is not known."""
        return self.origin.method if self.origin else ""

    @property
    def decision(self) -> Decision | None:
        """What was decided by a posterior over routings, how sure that is and why; none by other methods."""
        return self.fit.decision

    @property
    def digests(self) -> dict[str, str]:
        """Content digest of each source of the library."""
        return self._live.library.manifest.digests

    @property
    def mixture(self) -> Mixture:
        """The weights of the sources."""
        return self.recipe.mixture

    @property
    def shares(self) -> dict[str, float]:
        """The share of each source in what is predicted: its weight in the mixture, and in members."""
        return self.recipe.shares

    @property
    def query_passes(self) -> float:
        """Passes of each input through a network, to name its class."""
        return self._model.n_passes

    @property
    def needs_router(self) -> bool:
        """Whether the recipe opens experts that the library does not keep."""
        experts, kept = self.recipe.experts, {entry.digest for entry in self._live.library.manifest.experts}
        return experts is not None and not experts.is_idle and experts.bank not in kept

    @property
    def _active(self) -> Stack:
        """The active fraction of each module, by the units that its experts open."""
        experts = self.fit.experts
        if experts is None or experts.is_idle:
            return {}
        bank = self._live.library.bank(experts.bank)
        return open_fractions(bank, bank.bank.gates(experts))

    @property
    def n_units(self) -> tuple[int, int]:
        """Units that are open, and those that its experts would open without any budget."""
        experts = self.fit.experts
        if experts is None or not any(experts.alpha):
            return 0, 0
        bank = self._live.library.bank(experts.bank).bank
        now, all_ = (np.count_nonzero(bank.gates(each)) for each in (experts, replace(experts, opened=None)))
        return int(now), int(all_)

    @cached_property
    def n_corrected(self) -> int:
        """How many parameters experts and residual change."""
        correction = self._live.library.correction(self.recipe)
        return correction.n_nonzero if correction else 0

    @cached_property
    def loss(self) -> float:
        """Leave-one-out loss of the adapted model, on the examples that its weights were chosen by."""
        objective = self._task.objective
        if len(self._reads) == 1:
            return float(objective.losses(self._reads[0]).mean())
        assert isinstance(objective, LeaveOneOut)
        scores = pool([objective.scores(read) for read in self._reads], self._weights)
        return float(objective.losses_of(scores).mean())

    @cached_property
    def uncertainty(self) -> dict[str, float]:
        """Scores of how unsure the routing is, with the loss of the model on the examples; what drift is watched by."""
        found = {**self.fit.uncertainty, "support-loss": self.loss} if self.fit.uncertainty else {}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """What the model is made of; reads every source once."""
        return diagnose(self._live.library, self.recipe, self.fit.spread())

    @cached_property
    def held_out_accuracy(self) -> float:
        """Share of the examples that are recognised by a head that has not seen them; NaN if no class has two.

        The weights of the sources have seen them, so new examples may be harder.
        """
        objective = self._task.objective
        if self.head != "linear" and len(self._reads) == 1:
            return objective.held_out_accuracy(self._reads[0], HEADS[self.head])
        assert isinstance(objective, LeaveOneOut)
        if self.head != "linear":
            scores = [objective.held_out_scores(read, HEADS[self.head]) for read in self._reads]
            return held_out_accuracy(pool(scores, self._weights), objective.classes)
        named = Predictions.of(self._model.logits(objective.plain), self._model.head).names
        right = [self._task.class_names[label] for label in objective.classes.tolist()]
        return sum(map(str.__eq__, named, right)) / len(right)

    @cached_property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The base, the best source by evidence, and the plain average of all; none beside private weights.

        Prototypes of sources that evidence was gathered of are known already; the others are passed the examples.
        """
        if self.fit.is_private:
            return ()
        names, base, evidence = self.sources, self._live.library.manifest.base, self.fit.evidence
        single = {"base": base} | ({"best source": evidence.best} if evidence else {})
        found = [self._alternative(name, source) for name, source in single.items()]
        found.append(self._alternative("plain average", None, Mixture.of(dict.fromkeys(names, 1 / len(names)))))
        self._live.compose(self._own)  # the network keeps the task's own weights
        return tuple(found)

    def _alternative(self, name: str, source: str | None, mixture: Mixture | None = None) -> Alternative:
        evidence = self.fit.evidence
        if evidence and evidence.accuracies and source in evidence.sources and self.head == "prototype":
            number = evidence.sources.index(source)
            accuracy = evidence.accuracies[number]
            return Alternative(name, source, evidence.losses[number], math.nan if accuracy is None else accuracy)
        other = Adapted(self._live, self._task, Fit(mixture or Mixture.of({str(source): 1.0})), self.head)
        return Alternative(name, source, other.loss, other.held_out_accuracy)

    @cached_property
    def held_out_names(self) -> tuple[tuple[str, str], ...]:
        """Class of each example that can be held out, and what a head that has not seen it names it."""
        objective, names = self._task.objective, self._task.class_names
        if self.head == "linear" or not isinstance(objective, LeaveOneOut):
            return ()
        scores = pool([objective.held_out_scores(read, HEADS[self.head]) for read in self._reads], self._weights)
        told = ~scores.isnan().any(dim=1)
        pairs = zip(objective.classes[told].tolist(), scores[told].argmax(dim=1).tolist(), strict=True)
        return tuple((names[label], names[named]) for label, named in pairs)

    @property
    def examples(self) -> dict[str, int]:
        """How many examples each class has."""
        sizes = torch.bincount(self._task.objective.classes).tolist()
        counts = dict(zip(self._task.class_names, sizes, strict=True))
        return {name: counts[name] for name in self.class_names}

    def predict(self, inputs: Any) -> Predictions:
        """Name the class of each input: pictures (images, arrays or paths), texts, or a prepared tensor.

        Args:
            inputs: one alone, several, or a dataset, whose labels are not looked at.
        """
        return self._model.predict(inputs)

    def save(self, path: str | Path, self_contained: bool = False) -> None:
        """Write the recipe, bound to what it composes now; an existing file is replaced in one step.

        Args:
            path: of the file.
            self_contained: expand experts, so that the recipe needs no bank.
        """
        library = self._live.library
        recipe = library.self_contained(self.recipe) if self_contained else self.recipe
        write_recipe(path, library.pinned(recipe))

    def to_dict(self) -> dict[str, Any]:
        """All that is known of it, for machines; of private weights nothing but these."""
        fit, mixture, evidence = self.fit, self.fit.mixture, self.fit.evidence
        accuracy = math.nan if fit.is_private else self.held_out_accuracy
        losses = {}
        if evidence:  # a source that gives no number has none
            finite = (loss if math.isfinite(loss) else None for loss in evidence.losses)
            losses = dict(zip(evidence.sources, finite, strict=True))
        data: dict[str, Any] = {
            "method": self.method,
            "classes": [] if fit.is_private else list(self.class_names),
            "examples": {} if fit.is_private else self.examples,
            "weights": dict.fromkeys(self._live.library.names, 0.0) | self.shares,
            "losses": losses,
            "best_single_source": evidence.ranked[0] if evidence else None,
            "loss": None if fit.is_private else self.loss,
            "head": self.head,
            "held_out_accuracy": _number(accuracy),
            "alternatives": [
                asdict(each) | {"loss": _number(each.loss), "held_out_accuracy": _number(each.held_out_accuracy)}
                for each in self.alternatives
            ],
            "corrected_parameters": self.n_corrected,
            "likeness": dict(fit.likeness),
            "experts": fit.expert_weights,
            "decision": fit.decision and fit.decision.model_dump(),
            "uncertainty": self.uncertainty,
            "certificates": [each.told() for each in self.certificates],
            "sets": (sets := self.recipe.notes.sets) and sets.model_dump(mode="json"),
            "drift": self.watch and self.watch.model_dump(mode="json", include={"then", "seen", "alarms"}),
            "steps": list(fit.trace.losses),
            "path": [list(row) for row in fit.trace.path],
            "advice": list(fit.trace.endings),
            "notes": list(fit.notes),
            "is_private": fit.is_private,
            "privacy": dict(fit.privacy),
            "needs_router": self.needs_router,
            "members": [
                {"weight": member.weight, "mixture": member.mixture.mean_weights, "modules": list(member.modules)}
                for member in fit.members
            ],
            "own_weight": self._weights[0],
            "queries": self.learnt and self.learnt.to_dict(),
            "query_passes": self.query_passes,
            "budget": [each.to_dict() for each in self.latency],
            "units": list(self.n_units) if self.latency else None,
            "resident_bytes": self._model.n_bytes,
            "passes": None if fit.is_private else asdict(fit.passes),
            "seconds": None if fit.is_private else fit.seconds,
        }
        if mixture.modules:
            rows = (dict(zip(mixture.sources, row, strict=True)) for row in mixture.rows)
            data["weights_per_module"] = dict(zip(mixture.modules, rows, strict=True))
        return data


def _number(value: float) -> float | None:
    """As JSON has it."""
    return value if math.isfinite(value) else None


def _readings(live: LiveMixture, task: Task, recipe: Recipe) -> list[Tensor]:
    """What each network of a recipe reads of a task's examples, its own first, which the live network is afterwards."""
    found = []
    for each in reversed(live.library.networks(recipe)):
        live.compose(each)
        found.append(live.read(task.objective))
    return found[::-1]


def _heads(task: Task, reads: Sequence[Tensor], kind: HeadName, rows: Mapping[str, int]) -> list[ClassHead]:
    """A head for each network of a task."""
    fitted = (task.objective.fit_head(read, HEADS[kind]) for read in reads)
    lengths = (float(read.norm(dim=-1).mean()) for read in reads)
    sizes = tuple(torch.bincount(task.objective.classes).tolist())
    # Only prototypes: ridge and logistic heads fit the scale of their scores themselves.
    temperature = prototype_temperature(sum(sizes) / len(sizes), len(reads)) if kind == "prototype" else 1.0
    return [
        replace(head.record(kind, rows, length), sizes=sizes, temperature=temperature)
        for head, length in zip(fitted, lengths, strict=True)
    ]
