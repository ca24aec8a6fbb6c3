"""What a router is made of, and how it is trained."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from smatter.errors import InvalidSettings
from smatter.settings import check_at_least, check_choices, check_limits, check_positive, check_shares
from smatter.settings.posteriors import check_tail

Pooling = Literal["moments", "deep-sets", "attention"]
WeightMap = Literal["softmax", "sparsemax", "entmax"]
Tying = Literal["global", "tied", "per-module"]
TeacherName = Literal["solver", "ensemble"]
"""Who teaches a router: solutions of its tasks, or the average of the sources' predictions."""

UnitKind = Literal["groups", "elements", "components"]
"""What a gate switches: groups of parameters (heads, neurons, channels), single ones, or rank components."""


@dataclass(frozen=True)
class RouterSettings:
    """What a router is made of.

    Args:
        pooling: how the classes of a task become one vector.
        width: of that vector.
        weight_map: how scores become weights.
        max_sources: the most sources with weight; all by default.
        tying: one row of weights for the network, a row for each module that combines `n_heads` rows of scores, or
            scores for each module apart.
        n_heads: rows of scores that modules combine where they are tied.
        n_experts: residual experts beside the null expert.
        units: what their gates switch.
        rank: of the low-rank change, where units are rank components.
        common_share: share of the experts' shared delta that every task opens, the null expert's too.
    """

    pooling: Pooling = "moments"
    width: int = 64
    weight_map: WeightMap = "softmax"
    max_sources: int | None = None
    tying: Tying = "global"
    n_heads: int = 2
    n_experts: int = 0
    units: UnitKind = "groups"
    rank: int = 8
    common_share: float = 0.0

    def __post_init__(self) -> None:
        check_choices(self, pooling=Pooling, weight_map=WeightMap, tying=Tying, units=UnitKind)
        most = {"width": (1, 4096), "n_heads": (1, 64), "n_experts": (0, 64), "rank": (1, 4096)}
        for name, (low, high) in most.items():
            if not low <= getattr(self, name) <= high:
                raise InvalidSettings(f"{name} is {getattr(self, name)}: give {low} to {high}")
        check_limits(max_sources=self.max_sources)
        check_shares(self, "common_share")

    @property
    def n_masks(self) -> int:
        """Masks over the shared delta: one for each expert, and the null expert's if it opens something."""
        return self.n_experts + (self.common_share > 0)

    def to_dict(self) -> dict[str, Any]:
        """As router.json holds them."""
        return asdict(self)


@dataclass(frozen=True)
class Imitation:
    """How much a teacher counts in training a router.

    Args:
        weights: price of weights unlike the teacher's.
        experts: price of weights of experts unlike those that gradient steps on the examples give.
        predictions: share of the loss that imitates the teacher's predictions, between 0 and 1.
        temperature: tau, of both weights' distillation.
        share: of the tasks on which the teacher is asked.
        teacher: who it is; the ensemble teaches predictions alone, those of clean tasks.
    """

    weights: float = 0.0
    experts: float = 0.0
    predictions: float = 0.0
    temperature: float = 1.0
    share: float = 0.5
    teacher: TeacherName = "solver"

    def __post_init__(self) -> None:
        check_choices(self, teacher=TeacherName)
        if not (0 <= self.weights < math.inf and 0 <= self.experts < math.inf and 0 <= self.predictions <= 1):
            raise InvalidSettings("a teacher's prices must be finite and not negative, that of predictions at most 1")
        check_positive(temperature=self.temperature)
        check_shares(self, "share")
        if self.teacher == "ensemble" and (not self.predictions or self.weights):
            raise InvalidSettings(
                "an ensemble teaches predictions and no weights: say --distill predictions=0.5, or leave out --teacher"
            )

    @property
    def is_wanted(self) -> bool:
        """Whether a teacher counts at all."""
        return self.weights > 0 or self.predictions > 0 or self.experts > 0

    @property
    def needs_solver(self) -> bool:
        """Whether tasks must be solved."""
        return self.teacher == "solver" and (self.weights > 0 or self.predictions > 0)


@dataclass(frozen=True)
class Parting:
    """How residual experts are kept apart while they learn.

    Args:
        labels: price of a choice other than the null expert on a clean task, and at first of one other than the expert
            of the task's variant.
        labelled: share of the steps over which the latter falls to zero.
        balance: price of choices that, over many tasks, are not shared out as the variants are.
        dropout: share of the tasks on which the expert of most weight is closed.
    """

    labels: float = 1.0
    labelled: float = 0.5
    balance: float = 0.1
    dropout: float = 0.15

    def __post_init__(self) -> None:
        check_at_least(0, labels=self.labels, balance=self.balance)
        check_shares(self, "labelled", above_zero=True)
        check_shares(self, "dropout")


@dataclass(frozen=True)
class MetaSettings:
    """How a router is trained.

    Args:
        router: what it is made of.
        n_steps: of the optimizer.
        n_tasks: tasks of a step.
        learning_rate: of the router, at its height.
        delta_rate: of the experts' shared delta.
        gate_rate: of the experts' gates.
        imitation: how much the solver's solutions count.
        entropy: price of the entropy of the weights; above zero, fewer sources are used.
        parting: how experts are kept apart.
        expert_share: share of the shared delta's values that an expert may use in the end.
        evidence_share: share of the tasks on which the router is told how each source does.
        warm_up: share of the steps in which rates rise.
        tightening: share of the steps in which what experts may change falls to `expert_share`.
        validate_every: steps between two validations.
        patience: steps without a better validation after which training ends.
        cvar: rho, the worst share of the tasks that counts; all of them by default.
        window: tasks whose losses say which are among the worst; those of the step alone by default.
        seed: of everything.
    """

    router: RouterSettings = field(default_factory=RouterSettings)
    n_steps: int = 600
    n_tasks: int = 4
    learning_rate: float = 3e-3
    delta_rate: float = 1e-3
    gate_rate: float = 0.03
    imitation: Imitation = field(default_factory=Imitation)
    entropy: float = 0.0
    parting: Parting = field(default_factory=Parting)
    expert_share: float = 0.25
    evidence_share: float = 0.5
    warm_up: float = 0.05
    tightening: float = 0.6
    validate_every: int = 100
    patience: int = 300
    cvar: float = 1.0
    window: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least(
            1, n_steps=self.n_steps, n_tasks=self.n_tasks, validate_every=self.validate_every, patience=self.patience
        )
        check_positive(learning_rate=self.learning_rate, delta_rate=self.delta_rate, gate_rate=self.gate_rate)
        check_shares(self, "tightening", "expert_share", above_zero=True)
        check_shares(self, "evidence_share", "warm_up")
        check_at_least(0, entropy=self.entropy, window=self.window)
        check_tail(self.cvar, self.n_tasks, self.window)
        if self.imitation.weights and self.router.weight_map != "softmax":
            raise InvalidSettings("only weights by softmax can imitate the solver's: use that map, or no distillation")
        if self.imitation.experts and not self.router.n_experts:
            raise InvalidSettings("there are no experts to distil: say --experts M, or leave out --distill experts")

    def to_dict(self) -> dict[str, Any]:
        """As router.json holds them."""
        return asdict(self)

    def allowed_share(self, step: int) -> float:
        """What an expert may change at a step: everything at first, `expert_share` after most of the steps."""
        left = max(0.0, 1 - step / (self.tightening * self.n_steps))
        return math.pow(self.expert_share, 1 - left)
