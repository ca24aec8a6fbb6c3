"""A library and a suite to a trained router, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smatter.errors import InvalidSettings
from smatter.library.banks import PlacedBank
from smatter.library.library import Library, open_library
from smatter.live.mixture import LiveMixture
from smatter.records import Progress, silent
from smatter.route.probe import draw_probe
from smatter.route.store import TrainedRouter
from smatter.settings.training import MetaSettings
from smatter.tasks.open import open_suite
from smatter.tasks.shifts.catalogue import Shift, table_of
from smatter.tasks.suite import Suite
from smatter.train.curriculum import make_curriculum
from smatter.train.meta import meta_train
from smatter.train.parting import expert_names
from smatter.train.trainee import MetaStep, Trainee, Validation


def train_router(
    library: Library | str | Path,
    suite: Suite | str,
    settings: MetaSettings | None = None,
    *,
    shifts: Sequence[Shift] = (),
    variants: Sequence[Shift] = (),
    work: Path | None = None,
    workers: int = 0,
    progress: Progress = silent,
) -> TrainedRouter:
    """Train a router on tasks of a suite; an interrupted training goes on where it stopped.

    Args:
        library: the sources that take part, or the library's folder.
        suite: whose tasks are learnt from, or its name or place.
        settings: how; the defaults without.
        shifts: what is done to every task.
        variants: what else is done, one at a time, to a share of the tasks; for experts to learn.
        work: a folder for the log, and to go on after an interruption; nothing is kept without it.
        workers: processes that prepare tasks meanwhile; how many does not change the result.
        progress: told 1 for each step, and how it goes.
    """
    settings = settings or MetaSettings()
    library = library if isinstance(library, Library) else open_library(library)
    suite = suite if isinstance(suite, Suite) else open_suite(suite)
    if settings.router.n_experts and not variants:
        raise InvalidSettings("experts learn variants of tasks, and there are none: give --variant, or no --experts")
    curriculum = make_curriculum(suite, shifts, variants, seed=settings.seed)
    trainee = Trainee(LiveMixture(library), draw_probe(suite, shifts), settings, curriculum.training)
    watch = _Watch(progress)
    outcome = meta_train(trainee, curriculum, work, n_workers=workers, watch=watch)
    record: dict[str, Any] = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "steps": outcome.n_steps,
        "settings": settings.to_dict(),
    }
    if outcome.validation:
        record["validation"] = vars(outcome.validation)
    if bank := trainee.bank():
        placed = PlacedBank(bank, trainee.live.numbering)
        n_experts, shares = settings.router.n_experts, placed.shares
        record["expert_shares"] = [*shares[:n_experts], shares[-1]]
        record["expert_overlaps"] = [row[:n_experts] for row in placed.overlaps[:n_experts]]
        record["expert_names"] = expert_names([str(table_of(each)["shift"]) for each in variants], n_experts)
        if settings.router.common_share:
            record["common_share"] = shares[n_experts]
    return trainee.finish(record)


class _Watch:
    """Turns what a training tells into progress and words beside it."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.done, self.words = progress, 0, dict[str, str]()

    def __call__(self, told: MetaStep | Validation) -> None:
        if isinstance(told, Validation):
            beside = "".join(f", {name} {accuracy:.1%}" for name, accuracy in told.references.items())
            self.words["valid"] = f"valid {told.accuracy:.1%}, told of losses {told.accuracy_with_evidence:.1%}{beside}"
            self.progress(0, self.words["valid"])
            return
        self.words["loss"] = f"loss {told.loss:.3f}, entropy {told.entropy:.2f}"
        if told.shares:
            self.words["open"] = f"open {max(told.shares[:-1]):.0%}, all {told.shares[-1]:.0%}"
            self.words["null"] = f"null {told.load[-1]:.0%}"
        self.progress(told.step - self.done, ", ".join(self.words.values()))  # a resumed training begins later
        self.done = told.step
