"""What a recipe may say of itself beside what it is made of; each record is checked when it is read."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from smatter.errors import InvalidSettings
from smatter.files.fields import Digest, FileName, Name, TensorName
from smatter.records import told_names

MAX_WORDS = 1_000
Words = Annotated[str, StringConstraints(max_length=MAX_WORDS)]
Setting = Annotated[str, StringConstraints(max_length=100_000)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Share = Annotated[Number, Field(ge=0, le=1)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Origin(_Record):
    """How a recipe came about.

    Args:
        method: by which it was fitted.
        settings: of the method, those that are not its defaults, as texts.
        task: digest of the examples; none of private ones, which it would tell whoever guesses them.
        loss: of the task's model on them, leave-one-out.
    """

    method: Name
    settings: dict[Name, Setting] = Field(default={}, max_length=100)
    task: Digest | None = None
    loss: Number | None = None


class Pins(_Record):
    """Digests that bind a recipe to all that its result depends on.

    Args:
        files: of the base's configuration, tokenizer and preprocessor, by name.
        tensors: of the recipe's own tensors.
        result: of the composed network's contents.
    """

    files: dict[FileName, Digest] = {}
    tensors: Digest | None = None
    result: Digest | None = None


class Decision(_Record):
    """What was decided for a task, how sure that is, and why.

    Args:
        outcome: `routed`, by the rule; `escalated`, more networks than the rule takes, or `abstained`, a safe model
            instead, because the routing was too unsure.
        rule: how the posterior over routings became networks, such as `half:3`.
        passes: of each input.
        score: how uncertain the routing was.
        measure: the name of that score; empty where none was asked for.
        threshold: above which it was too much.
        reason: for people.
    """

    outcome: Literal["routed", "escalated", "abstained"]
    rule: Words = ""
    passes: Annotated[Number, Field(gt=0)] = 1.0
    score: Number | None = None
    measure: Words = ""
    threshold: Number | None = None
    reason: Words = ""

    @property
    def told(self) -> str:
        """All of it in one line, for people.

        >>> Decision(outcome="routed", rule="half:3", passes=4.0).told
        'decided by half:3: 4 passes of each input'
        """
        done = {"routed": "decided by", "escalated": "escalated from", "abstained": "abstained from"}[self.outcome]
        passes = "1 pass" if self.passes == 1 else f"{self.passes:g} passes"
        return f"{done} {self.rule}: {passes} of each input" + (f"; {self.reason}" if self.reason else "")


class BudgetRecord(_Record):
    """One of the budgets that a task's model was made to fit.

    Args:
        value: the most that it may cost.
        unit: of that: `ms forward`, `mJ forward` or `bytes`, for one forward pass in the shared runtime with the
            profile's rows, or `ms to first prediction`.
        quantile: of the times that must not be longer.
        profile: digest of the device's profile.
        predicted: what the profile says that it costs.
        promised: what it costs at most, by the profile's bound; none where the profile promises nothing.
    """

    value: Annotated[Number, Field(gt=0)]
    unit: Annotated[str, StringConstraints(min_length=1, max_length=40)]
    quantile: Share
    profile: Digest
    predicted: Annotated[Number, Field(gt=0)] | None = None
    promised: Annotated[Number, Field(gt=0)] | None = None


Shares = Annotated[tuple[Share, ...], Field(min_length=1, max_length=100)]


class ClassSets(_Record):
    """Which classes an input may have, and how often the right one is among them: conformal prediction.

    A class is in an input's set where one minus its probability is within a limit; the likeliest class always is.

    Args:
        tasks: name of the calibration list.
        n: tasks of it.
        coverages: the share of inputs whose set holds their class is at least this, on average over tasks.
        limits: for each of them; a limit of one lets every class in.
        domains: the same for the tasks of one domain, by its name.
    """

    tasks: Words
    n: Annotated[int, Field(ge=1, strict=True)]
    coverages: Shares
    limits: Shares
    domains: dict[Words, Shares] = Field(default={}, max_length=1_000)

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if any(len(each) != len(self.coverages) for each in (self.limits, *self.domains.values())):
            raise ValueError("there is not one limit for each coverage")
        return self

    def limit(self, coverage: float, domain: str | None = None) -> float:
        """The limit for a coverage; refuses one, or a domain, that was not calibrated."""
        if coverage not in self.coverages:
            known = told_names([f"{each:g}" for each in self.coverages])
            raise InvalidSettings(f"sets are calibrated for a coverage of {known}, not {coverage:g}: use one of these")
        if domain is not None and domain not in self.domains:
            known = f"has {told_names(tuple(self.domains))}" if self.domains else "knows no domains"
            raise InvalidSettings(f"no sets were calibrated for the domain {domain[:80]!r}: {self.tasks} {known}")
        return (self.limits if domain is None else self.domains[domain])[self.coverages.index(coverage)]

    def promise(self, coverage: float, domain: str | None = None) -> str:
        """Whom the sets of a coverage speak of."""
        every = (
            "; too few tasks for a limit, so every class is in each set" if self.limit(coverage, domain) == 1 else ""
        )
        of_domain = "" if domain is None else f", those of {domain} alone"
        return (
            f"sets hold the right class of at least {100 * coverage:g} % of inputs, on average over tasks drawn like "
            f"the {self.n} of {self.tasks}{of_domain}; not for other classes, nor for one task alone{every}"
        )


class Notes(_Record):
    """All that a recipe says of itself.

    Args:
        origin: how it came about.
        pins: what it is bound to.
        decision: whether the task was routed.
        budget: what it was made to fit, all of it.
        sets: which classes an input may have; none where nobody calibrated that.
        accepted: differences of its sources from the base that the user said not to mind, by source.
    """

    origin: Origin | None = None
    pins: Pins | None = None
    decision: Decision | None = None
    budget: tuple[BudgetRecord, ...] = Field(default=(), max_length=100)
    sets: ClassSets | None = None
    accepted: dict[Name, tuple[TensorName, ...]] = Field(default={}, max_length=1_000)
