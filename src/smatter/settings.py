"""What commands can be told to do: frozen records that check themselves. Nothing here needs torch or numpy.

Settings of a method stand in the method's own file.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from smatter.errors import InvalidSettings, SmatterError

Pooling = Literal["moments", "deep-sets", "attention"]
WeightMap = Literal["softmax", "sparsemax", "entmax"]
Tying = Literal["global", "tied", "per-module"]
TeacherName = Literal["solver", "ensemble"]
"""Who teaches a router: solutions of its tasks, or the average of the sources' predictions."""

UnitKind = Literal["groups", "elements", "components"]
"""What a gate switches: groups of parameters (heads, neurons, channels), single ones, or rank components."""

HeadName = Literal["prototype", "ridge", "logistic", "linear"]
"""How classes are told apart: by a head fitted to the examples' features, or `linear`, the checkpoints' own."""

Mix = Literal["weights", "predictions", "both"]
"""What is averaged: the sources' weights, their predictions, or those and the predictions of the mixed network."""

DeviceDtype = Literal["F32", "BF16"]
ProfileMethod = Literal["stacks", "micro-benchmarks", "bytes"]
"""Time whole networks; operators alone, which is quicker and worse; or count bytes."""


MAX_STEPS = 10_000
"""Of a fit: each passes all examples through the network a few times, and a stranger's recipe may ask for them."""


def check_choices(settings: object, error: type[SmatterError] = InvalidSettings, **choices: Any) -> None:
    """Refuse what is not one of the words that a setting may be.

    Args:
        settings: the record.
        error: what is raised.
        choices: a `Literal` for each setting.
    """
    for name, choice in choices.items():
        if (value := getattr(settings, name)) not in get_args(choice):
            raise error(f"unknown {name} {str(value)[:80]!r}: use {', '.join(get_args(choice))}")


def check_shares(
    settings: object, *names: str, above_zero: bool = False, error: type[SmatterError] = InvalidSettings
) -> None:
    """Refuse what is no share of a whole.

    Args:
        settings: the record.
        names: of its settings that are shares.
        above_zero: whether 0 is refused too.
        error: what is raised.
    """
    for name in names:
        value = getattr(settings, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= 1 or (above_zero and value == 0):  # also rejects NaN
            wanted = "above 0 and up to 1" if above_zero else "between 0 and 1"
            raise error(f"{name} is {str(value)[:80]}: give a share {wanted}")


def check_at_least(least: float, /, **values: float) -> None:
    """Refuse numbers below a bound."""
    for name, value in values.items():
        if value is None or not least <= value < math.inf:  # also rejects NaN
            raise InvalidSettings(f"{name} is {value}: give {least:g} or more")


def check_steps(least: int, /, **values: int) -> None:
    """Refuse numbers of steps below a bound or above `MAX_STEPS`: a recipe that is fitted again says its own."""
    check_at_least(least, **values)
    for name, value in values.items():
        if value > MAX_STEPS:
            raise InvalidSettings(f"{name} is {value}: give at most {MAX_STEPS}")


def check_limits(**values: int | None) -> None:
    """Refuse limits below 1; None is no limit."""
    for name, value in values.items():
        if value is not None and not 1 <= value < math.inf:
            raise InvalidSettings(f"{name} is {value}: give 1 or more, or leave it out")


def check_positive(**values: float) -> None:
    """Refuse numbers that are not above zero."""
    for name, value in values.items():
        if value is None or not 0 < value < math.inf:
            raise InvalidSettings(f"{name} is {value}: give a number above 0")


def check_temperature(temperature: float | None) -> None:
    """Refuse what is no temperature; None is the default one."""
    if temperature is not None and not 0 < temperature < math.inf:
        raise InvalidSettings(f"temperature {temperature} is not a positive number: 1 is a good start")


def check_privacy(epsilon: float, delta: float) -> None:
    """Refuse what is no differential privacy."""
    if not (0 < epsilon < math.inf and 0 < delta < 1):  # also rejects NaN
        raise InvalidSettings(f"epsilon {epsilon} and delta {delta}: give a positive epsilon and a delta below 1")


@dataclass(frozen=True, kw_only=True)
class MixSettings:
    """What a method averages.

    Args:
        mix: weights makes one network of mixed weights; predictions averages what several sources say, each a network
            and a pass of its own; both does that with the mixed network as one of them.
        passes: the most passes of an input, through one network each; as many as are worth it by default.
        branch: the first module in which the networks differ; up to it they share the mixed weights, and a pass.
    """

    mix: Mix = "weights"
    passes: float | None = None
    branch: str | None = None

    def __post_init__(self) -> None:
        check_choices(self, mix=Mix)
        if self.passes is not None:
            check_at_least(1, passes=self.passes)
        if self.mix == "weights" and (self.passes or 1) > 1:
            raise InvalidSettings("mixed weights are one network and one pass: say --mix predictions or --mix both")
        if self.mix == "weights" and self.branch is not None:
            raise InvalidSettings("one network has no branches: say --mix predictions or --mix both")


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
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least(
            1, n_steps=self.n_steps, n_tasks=self.n_tasks, validate_every=self.validate_every, patience=self.patience
        )
        check_positive(learning_rate=self.learning_rate, delta_rate=self.delta_rate, gate_rate=self.gate_rate)
        check_shares(self, "tightening", "expert_share", above_zero=True)
        check_shares(self, "evidence_share", "warm_up")
        check_at_least(0, entropy=self.entropy)
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


@dataclass(frozen=True)
class DeviceSetting:
    """How a network is used on a device.

    Args:
        threads: of torch.
        batch: rows of a forward pass.
        dtype: of weights and computing.
        length: tokens of a text, or the side of a picture; 32, or what the network's config says, by default.
        rank: rank components that each linear operator's delta has, if these are the units instead of groups.
    """

    threads: int = 1
    batch: int = 8
    dtype: DeviceDtype = "F32"
    length: int | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        bounds = {"threads": 1024, "batch": 4096, "length": 100_000, "rank": 4096}
        if not all(1 <= (1 if (value := getattr(self, name)) is None else value) <= bounds[name] for name in bounds):
            raise InvalidSettings("threads, rows, lengths and ranks of a profile must be positive, and not absurd")
        check_choices(self, dtype=DeviceDtype)


@dataclass(frozen=True)
class MeasureSettings:
    """How much is measured for a profile.

    Args:
        n_fitted: stacks that costs are fitted to.
        n_calibrated: other stacks, that the bound is taken from.
        n_tested: others again, that say what the profile is worth.
        seconds: about how long it may take; every stack is timed four times at least, more for high quantiles.
        quantile: of a stack's times that the bound is for.
        delta: how likely a new stack may exceed its bound.
        seed: of the stacks.
    """

    n_fitted: int = 90
    n_calibrated: int = 100
    n_tested: int = 40
    seconds: float = 100.0
    quantile: float = 0.5
    delta: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("quantile", "delta"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidSettings(f"a {name} must be between 0 and 1, not {getattr(self, name):g}")
        if self.n_fitted < 20 or not self.seconds > 0:
            raise InvalidSettings("fit at least 20 stacks, in positive time")
        if (self.n_calibrated + 1) * self.delta < 1:
            least = 1 / (self.n_calibrated + 1)
            raise InvalidSettings(
                f"{self.n_calibrated} stacks give no bound that fails with probability {self.delta:g}: "
                f"take a delta of {least:.2g} or more"
            )


@dataclass(frozen=True)
class ProfileSettings:
    """Where the figures of a profile come from.

    Args:
        method: what is measured.
        table: a JSON file with your own costs, to be taken instead.
        earlier: a profile to adjust to this device and setting.
        points: networks to time for that; 24 by default.
        margin: do not measure for that: everything is slower by this factor.
        quantile: of the times, that a bound is for; 0.5, or as in the earlier profile, by default.
        delta: how likely a new network may exceed its bound; 0.1, or as in the earlier profile, by default.
        seconds: about how long to measure.
    """

    method: ProfileMethod = "stacks"
    table: Path | None = None
    earlier: Path | None = None
    points: int | None = None
    margin: float | None = None
    quantile: float | None = None
    delta: float | None = None
    seconds: float = 100.0

    def __post_init__(self) -> None:
        check_choices(self, method=ProfileMethod)
        if self.earlier is None and not (self.margin is None and self.points is None):
            raise InvalidSettings("a margin or points are for an old profile: name it with --from")
        if self.earlier is not None and (self.table is not None or self.method != "stacks"):
            raise InvalidSettings("--from adjusts what is in the old profile: leave out --method and --table")
        if self.table is not None and self.method != "stacks":
            raise InvalidSettings("a table says what everything costs: leave out --method")
        if self.margin is not None and not (self.quantile is None and self.delta is None and self.points is None):
            raise InvalidSettings("with a margin nothing is measured: leave out --quantile, --delta and --points")

    def measured(self, quantile: float = 0.5, delta: float = 0.1) -> MeasureSettings:
        """How much is measured; quantile and delta are those given, where the settings say none."""
        return MeasureSettings(
            seconds=self.seconds,
            quantile=quantile if self.quantile is None else self.quantile,
            delta=delta if self.delta is None else self.delta,
        )
