"""What a router learns from, and what it is judged by, for any suite with enough classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from smatter.errors import InvalidSuite
from smatter.tasks.lists import MAX_TASKS, TaskList
from smatter.tasks.sampler import Range, Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import Shift, table_of
from smatter.tasks.shifts.labels import LabelNoise
from smatter.tasks.splits import Split
from smatter.tasks.suite import Suite


@dataclass(frozen=True)
class TaskForm:
    """What tasks of a kind look like; none has more examples than a network takes at once.

    Args:
        name: for people.
        n_shot: support examples of a class.
        n_query: query examples of a class.
        n_way: classes; fewer where no domain has as many.
        share: how often, in proportion to others.
        shifts: what is wrong with them.
    """

    name: str
    n_shot: int
    n_query: int
    n_way: Range
    share: float = 1.0
    shifts: tuple[Shift, ...] = ()


FORMS = (
    TaskForm("one-shot", 1, 5, (5, 10)),
    TaskForm("two-shot", 2, 4, (5, 10)),
    TaskForm("five-shot", 5, 3, (5, 8), 0.6),
    TaskForm("wrong-labels", 5, 3, n_way=(5, 8), share=0.6, shifts=(LabelNoise(0.2),)),
)
"""Most where evidence is weak, for there a router can be better than evidence."""

VARIED_FORMS = FORMS[1:3]

MIXED_SHARE = 0.4
"""Of the tasks whose classes come from several domains."""

VARIED_SHARE = 0.6
"""Of the tasks that are varied, where experts are to learn variants."""

ENOUGH_CLASSES = 12
"""Of a domain: of so many that no other has, two are for routers and two for validation."""
ENOUGH_EXAMPLES = 1 + max(form.n_shot for form in FORMS)

VALIDATION_SEED = 1_000_003
"""Other tasks than those of the frozen lists."""


@dataclass(frozen=True)
class Series:
    """Tasks of one kind.

    Args:
        tasks: the tasks.
        share: how often they are drawn, in proportion to others.
        variant: number of the variant that they are; none of clean tasks.
    """

    tasks: TaskList
    share: float
    variant: int | None = None


@dataclass(frozen=True)
class Curriculum:
    """What a router learns from, and what it is judged by.

    Args:
        training: kinds of tasks.
        validation: tasks of classes that are not trained on; each list is used whole.
    """

    training: tuple[Series, ...]
    validation: tuple[TaskList, ...] = ()

    @property
    def key(self) -> str:
        """Tells curricula apart."""
        lists = [(each.tasks, each.share) for each in self.training] + [(each, len(each)) for each in self.validation]
        return json.dumps([[_key(tasks), number] for tasks, number in lists])


def make_curriculum(
    suite: Suite, shifts: Sequence[Shift] = (), variants: Sequence[Shift] = (), n_validation: int = 4, seed: int = 0
) -> Curriculum:
    """Tasks with few examples and with wrong labels, from one domain and from several.

    Args:
        suite: where from: classes of its router split train, those of its validation split judge.
        shifts: what is done to every task.
        variants: what else is done, one at a time, to a share of the tasks; for residual experts to learn.
        n_validation: validation tasks of each kind.
        seed: of the tasks.
    """
    kinds = {"single": (1, 1)}
    if sum(domain.role == "id" for domain in suite.domains) >= 3:
        kinds["mixed"] = (2, 3)
    training, validation = [], []
    for kind, n_domains in kinds.items():
        share = MIXED_SHARE if kind == "mixed" else 1 - MIXED_SHARE
        for form in FORMS:
            training.append(
                Series(
                    _tasks(suite, kind, n_domains, form=form, split="router", seed=seed, shifts=shifts),
                    share * form.share,
                )
            )
            validation.append(
                _tasks(
                    suite,
                    kind,
                    n_domains,
                    form=form,
                    split="validation",
                    seed=VALIDATION_SEED + seed,
                    shifts=shifts,
                    n_tasks=n_validation,
                )
            )
    plain = sum(each.share for each in training)
    for number, variant in enumerate(variants):
        for form in VARIED_FORMS:
            share = plain * VARIED_SHARE / (1 - VARIED_SHARE) / (len(VARIED_FORMS) * len(variants))
            all_shifts = (variant, *shifts)
            name = f"variant-{number}"
            training.append(
                Series(
                    _tasks(suite, name, (1, 1), form=form, split="router", seed=seed, shifts=all_shifts), share, number
                )
            )
            validation.append(
                _tasks(
                    suite,
                    name,
                    (1, 1),
                    form=form,
                    split="validation",
                    seed=VALIDATION_SEED + seed,
                    shifts=all_shifts,
                    n_tasks=n_validation,
                )
            )
    return Curriculum(tuple(training), tuple(validation))


def _tasks(
    suite: Suite,
    kind: str,
    n_domains: Range,
    form: TaskForm,
    split: Split,
    seed: int,
    shifts: Sequence[Shift],
    n_tasks: int = MAX_TASKS,
) -> TaskList:
    most = max((len(suite.classes(domain, split)) for domain in suite.domains if domain.role == "id"), default=0)
    ways = (max(2, n_domains[1], min(form.n_way[0], most)), form.n_way[1])
    settings = SamplerSettings(
        split, "id", ways, n_shot=(form.n_shot, form.n_shot), n_query=form.n_query, n_domains=n_domains
    )
    try:
        sampler = Sampler(suite, settings, seed)
    except InvalidSuite:
        raise InvalidSuite(
            f"suite {suite.name!r} is too small to train on: in its split {split!r} fewer than {n_domains[1]} domains "
            f"have two classes of {form.n_shot + 1} examples; give each domain at least {ENOUGH_CLASSES} classes of "
            f"{ENOUGH_EXAMPLES} examples"
        ) from None
    return TaskList(f"{kind}-{form.name}", sampler, n_tasks, (*form.shifts, *shifts))


def _key(tasks: TaskList) -> list[object]:
    sampler = tasks.sampler
    return [sampler.suite.digest, sampler.settings.key, sampler.seed, [table_of(shift) for shift in tasks.shifts]]
