"""Certificates of a router's rules: bounds from calibration tasks, as router.json holds them. Nothing here needs torch.

A certificate is about tasks drawn like those that it was computed from, and about the weights and sources that they
were computed with. It says nothing of one task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from smatter.certify.bound import check_delta
from smatter.compose.records import ClassSets, Decision, Number, Origin, Share, Words
from smatter.errors import InvalidCertificate, InvalidRouter, InvalidSettings
from smatter.files.fields import Digest, first_mistake
from smatter.library.manifest import Manifest
from smatter.records import told_names
from smatter.route.place import TABLE, router_identity, router_table
from smatter.settings.decisions import USUAL, Limit
from smatter.settings.rules import LIMITS, ROUTER, needs_posterior, rule_of, settings_of
from smatter.tasks.lists import TaskList

LEAST_TASKS = 20
"""Fewer say nothing of a threshold, and no bound of fewer is worth printing."""

MAX_WATCHED = 1_000
"""Tasks whose scores are kept to tell drift by."""


SPLIT = "calibration"
"""Of the classes that nothing was trained, chosen or tested on."""


@dataclass(frozen=True)
class CalibrationSettings:
    """What is calibrated, and how surely.

    Args:
        rules: see `settings.rules`; by default `router` and, where there is a posterior, its usual decision.
        delta: how often a bound may fail.
        n_tasks: the first tasks of the list; all by default.
    """

    rules: tuple[str, ...] = ()
    delta: float = 0.05
    n_tasks: int | None = None

    def __post_init__(self) -> None:
        check_delta(self.delta)
        object.__setattr__(self, "rules", tuple(str(rule_of(*settings_of(rule))) for rule in self.rules))
        if len(set(self.rules)) < len(self.rules):
            raise InvalidSettings("a rule is named twice: name each once")
        if self.n_tasks is not None and self.n_tasks < LEAST_TASKS:
            raise InvalidCertificate(f"{self.n_tasks} tasks are too few for a bound: give {LEAST_TASKS} or more")

    def check_tasks(self, tasks: TaskList) -> None:
        """Refuse tasks of which no certificate can be made."""
        split = tasks.sampler.settings.split
        if split != SPLIT:
            raise InvalidCertificate(
                f"{tasks.name} is drawn from the split {split!r}, where sources or routers are trained, chosen or "
                f"tested: give a list of the split {SPLIT}"
            )
        if len(tasks) < max(self.n_tasks or 0, LEAST_TASKS):
            raise InvalidCertificate(
                f"{tasks.name} has {len(tasks)} tasks, and {max(self.n_tasks or 0, LEAST_TASKS)} are needed: freeze a "
                "longer list, or ask for fewer"
            )

    def rules_for(self, router: Path) -> tuple[str, ...]:
        """The rules of a router; refuses those that it cannot follow."""
        table = router_table(router)
        has_posterior = isinstance(table, dict) and table.get("posterior") is not None
        for rule in self.rules:
            if needs_posterior(rule) and not has_posterior:
                raise InvalidSettings(
                    f"the router has no posterior, which {rule} decides by: train one with `smatter train "
                    f"--posterior`, or calibrate {ROUTER}"
                )
        return self.rules or ((ROUTER, USUAL) if has_posterior else (ROUTER,))


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Guarantee(_Record):
    """A number that a quantity exceeds with a stated probability at most.

    Args:
        about: the quantity.
        method: by which it is bounded.
        value: the bound; 1 says nothing.
        estimate: as measured on the tasks.
        others: the same by other methods, to compare: whoever takes the least of several pays for the choice.
    """

    about: Words
    method: Words
    value: Share
    estimate: Share
    others: dict[Words, Share] = Field(default={}, max_length=20)

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing."""
        return self.value >= 1

    def __str__(self) -> str:
        limit = "vacuous" if self.vacuous else f"at most {self.value:.3f}"
        return f"{self.about} {limit} ({self.estimate:.3f} measured)"


class Selected(_Record):
    """What is known of the surest tasks by one score.

    Args:
        score: of uncertainty, by name.
        coverage: the share of tasks that was wished for.
        threshold: of the score; tasks below it are the surest ones.
        coverage_low: the share of all tasks below it is lower with probability delta at most.
        risk: mean error of tasks below it.
    """

    score: Words
    coverage: Share
    threshold: Number
    coverage_low: Share
    risk: Guarantee


class Certificate(_Record):
    """What calibration tasks say of a rule; each bound alone fails with probability delta at most.

    Args:
        rule: which, as people write it; see `settings.rules`.
        tasks: name of the list.
        digest: of the list.
        n: tasks of it that were used, the first ones.
        delta: how often a bound may fail.
        choices: rules that were certified together; each at delta / choices, so that one of them may be chosen.
        domains: classes of the tasks, by domain.
        router: identity of the router, with its posterior where the rule needs one; see `route.place.router_identity`.
        sources: of the library; see `sources_digest`.
        bounds: of the mean error, its tail and the Brier score.
        selected: of the surest tasks; all of them hold together.
        watched: scores of tasks by name, in the order of the list, for whoever watches for drift.
        sets: of the classes that an input may have.
    """

    rule: Words
    tasks: Words
    digest: Digest
    n: Annotated[int, Field(ge=LEAST_TASKS, le=100_000, strict=True)]
    delta: Annotated[Number, Field(gt=0, lt=1)]
    choices: Annotated[int, Field(ge=1, le=1_000, strict=True)] = 1
    domains: dict[Words, Annotated[tuple[Words, ...], Field(max_length=100_000)]] = Field(max_length=1_000)
    router: Digest
    sources: Digest
    bounds: Annotated[tuple[Guarantee, ...], Field(min_length=1, max_length=20)]
    selected: Annotated[tuple[Selected, ...], Field(max_length=1_000)] = ()
    watched: dict[Words, Annotated[tuple[Number, ...], Field(max_length=MAX_WATCHED)]] = Field({}, max_length=100)
    sets: ClassSets | None = None

    def told(self) -> dict[str, Any]:
        """What is said beside a task's model."""
        bounds = [each.model_dump() | {"vacuous": each.vacuous, "told": str(each)} for each in self.bounds]
        facts = self.model_dump(mode="json", include={"rule", "tasks", "digest", "n", "delta", "choices", "domains"})
        return facts | {"bounds": bounds, "promise": self.promise}

    @property
    def promise(self) -> str:
        """Whom it speaks of, and with which probability."""
        n_classes = sum(map(len, self.domains.values()))
        choice = f", a choice among {self.choices} rules included" if self.choices > 1 else ""
        sure = "".join(
            f" and below a {row.score} of {row.threshold:.3g}, as at least {row.coverage_low:.0%} of them are"
            for row in self.selected
            if self.bounds == (row.risk,)
        )
        return (
            f"each holds with probability {1 - self.delta:g}{choice}, for tasks drawn like the {self.n} of "
            f"{self.tasks}{sure}: {n_classes} classes of {told_names(tuple(self.domains))}; not for other classes, nor "
            "for one task alone"
        )


def sources_digest(manifest: Manifest) -> str:
    """Digest of the contents of all sources and of which is the base; names and places do not matter."""
    digests = manifest.digests
    told = [digests[manifest.base], *sorted(digests.values())]
    return hashlib.sha256("".join(told).encode()).hexdigest()


def check_certificates(certificates: Sequence[Certificate], folder: Path) -> None:
    """Refuse certificates of other weights than a router's folder holds."""
    identity = {
        decides: router_identity(folder, decides) for decides in {needs_posterior(each.rule) for each in certificates}
    }
    if any(each.router != identity[needs_posterior(each.rule)] for each in certificates):
        raise InvalidRouter(f"a certificate in {TABLE} is of other weights: take it out and run `smatter calibrate`")


def read_certificates(folder: Path) -> tuple[Certificate, ...]:
    """Those that a router's folder holds."""
    table = router_table(folder)
    told = table.get("certificates", ()) if isinstance(table, dict) else ()
    try:
        found = TypeAdapter(tuple[Certificate, ...]).validate_python(told)
        check_certificates(found, folder)
        return found
    except ValidationError as error:
        raise InvalidRouter(
            f"{folder / TABLE} has no sound certificates ({first_mistake(error)}): run `smatter calibrate` again"
        ) from None


def find_certificates(
    certificates: Sequence[Certificate], rule: str, sources: str, tasks: str | None = None
) -> tuple[Certificate, ...]:
    """Those of a rule, for a library's sources; refuses to answer for a rule, a list or sources that have none.

    Args:
        certificates: of a router.
        rule: which.
        sources: digest of the library's sources; see `sources_digest`. Any, where it is empty.
        tasks: name of the list; any by default.
    """
    remedy = "run `smatter calibrate` for it"
    of_rule = [each for each in certificates if each.rule == rule]
    if not of_rule:
        known = tuple(dict.fromkeys(each.rule for each in certificates))
        others = f", only {told_names(known)}" if known else ""
        raise InvalidCertificate(f"the rule {rule[:80]} has no certificate{others}: {remedy}")
    of_list = [each for each in of_rule if tasks is None or each.tasks == tasks]
    if not of_list:
        raise InvalidCertificate(f"{rule} was certified on {of_rule[0].tasks}, not on {str(tasks)[:80]}: {remedy}")
    fitting = tuple(each for each in of_list if not sources or each.sources == sources)
    if not fitting:
        raise InvalidCertificate(f"{rule} was certified with other sources than the library has: {remedy}")
    return fitting


def certificates_beside(
    certificates: Sequence[Certificate], origin: Origin, sources: str, decision: Decision | None
) -> tuple[Certificate, ...]:
    """What may be said beside a task's model: certificates of the rule that was followed, of no other.

    Where a limit was asked for, the error of tasks that are sure enough is all that is known, and of a task that was
    not sure enough nothing is.

    Args:
        certificates: of a router.
        origin: how the model came about.
        sources: digest of the library's sources.
        decision: whether the task was routed.
    """
    limit = origin.settings.get("abstain")
    rule = rule_of(origin.method, {name: text for name, text in origin.settings.items() if name not in LIMITS})
    found = tuple(each for each in certificates if each.rule == rule and each.sources == sources)
    if limit is None:
        return found
    score = decision.score if decision and decision.outcome == "routed" else None
    if decision is None or score is None:
        return ()
    fitting = (
        (each, row)
        for each in found
        for row in each.selected
        if (row.score, row.threshold) == (decision.measure, decision.threshold) and score < row.threshold
    )
    changed = ((each, {"bounds": (row.risk,), "selected": (row,), "sets": None}) for each, row in fitting)
    return tuple(each.model_copy(update=update) for each, update in changed)


def proven_selection(certificates: Sequence[Certificate], rule: str, digest: str, limit: Limit) -> Selected:
    """The surest tasks, as many as may be, whose mean error is proven to be at most what a limit allows.

    All of a certificate's selections hold together, so that one may be chosen by looking at them: learn then test, with
    the shares of `judged.COVERAGES` as what is tested.

    Args:
        certificates: of a router.
        rule: that is followed.
        digest: of the list that it was calibrated on.
        limit: a score, and the mean error that is allowed.
    """
    fitting = [each for each in certificates if (each.rule, each.digest) == (rule, digest)]
    if not fitting:
        raise InvalidCertificate(f"the rule {rule} has no certificate, which @risk needs: run `smatter calibrate`")
    rows = [row for row in fitting[-1].selected if row.score == limit.score]
    if not rows:
        raise InvalidCertificate(f"{limit.score} selects no tasks of {fitting[-1].tasks}: use another score")
    proven = [row for row in rows if row.risk.value <= limit.value]
    if not proven:
        least = min(rows, key=lambda row: row.risk.value)
        raise InvalidCertificate(
            f"no threshold on {limit.score} is proven to bring the mean error of {rule} to {limit.value:g}: "
            f"{least.risk}; ask for more, or calibrate on more tasks"
        )
    return max(proven, key=lambda row: row.coverage)
