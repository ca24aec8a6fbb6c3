"""What a recipe may say of itself beside what it is made of; each record is checked when it is read."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from smatter.files.fields import Digest, FileName, Name, TensorName

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


class Notes(_Record):
    """All that a recipe says of itself.

    Args:
        origin: how it came about.
        pins: what it is bound to.
        decision: whether the task was routed.
        budget: what it was made to fit, all of it.
        accepted: differences of its sources from the base that the user said not to mind, by source.
    """

    origin: Origin | None = None
    pins: Pins | None = None
    decision: Decision | None = None
    budget: tuple[BudgetRecord, ...] = Field(default=(), max_length=100)
    accepted: dict[Name, tuple[TensorName, ...]] = Field(default={}, max_length=1_000)
