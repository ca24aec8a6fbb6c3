"""A trained router to one whose experts serve every budget, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smatter.budget.wish import BudgetWish
from smatter.devices.budgets import Budgets
from smatter.devices.profile import Profile, read_profile
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.records import Progress, silent
from smatter.route.store import TrainedRouter
from smatter.settings.budgets import BudgetTraining
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.suite import Suite
from smatter.train.budget_trainee import BudgetStep, BudgetTrainee, BudgetValidation
from smatter.train.curriculum import make_curriculum
from smatter.train.meta import meta_train

ANY = BudgetWish(1.0, "x")
"""A budget that every profile can price."""


def train_budgets(
    library: Library,
    suite: Suite,
    trained: TrainedRouter,
    profiles: Sequence[Profile | str | Path],
    settings: BudgetTraining | None = None,
    *,
    shifts: Sequence[Shift] = (),
    variants: Sequence[Shift] = (),
    work: Path | None = None,
    workers: int = 0,
    progress: Progress = silent,
) -> TrainedRouter:
    """Train the experts of a router so that they serve every budget; an interrupted training goes on where it stopped.

    Args:
        library: the sources.
        suite: whose router tasks are learnt from; its validation tasks judge.
        trained: the router; what it says of tasks, and which units experts may open, stay as they are.
        profiles: what units cost, or their files; each step draws one of them.
        settings: how; the defaults without.
        shifts: what is done to every task.
        variants: what else is done, one at a time, to a share of the tasks.
        work: a folder for the log, and to go on after an interruption; nothing is kept without it.
        workers: processes that prepare tasks meanwhile; how many does not change the result.
        progress: told 1 for each step, and how it goes.
    """
    settings = settings or BudgetTraining()
    if not profiles:
        raise InvalidSettings("budgets need prices: give a profile that `smatter profile` wrote with --profile")
    if trained.posterior is not None:
        raise InvalidSettings(
            "the router's posterior was learnt with the experts as they are: train a router without one for budgets, "
            "then give it a posterior"
        )
    read = [each if isinstance(each, Profile) else read_profile(each) for each in profiles]
    budgets = [Budgets((ANY,), (each,)) for each in read]
    trainee = BudgetTrainee(LiveMixture(library), trained, budgets, settings)
    curriculum = make_curriculum(suite, shifts, variants, seed=settings.seed)
    done = 0

    def watch(told: BudgetStep | BudgetValidation) -> None:
        nonlocal done
        if isinstance(told, BudgetValidation):
            before = told.references["before"]
            open_ = f"everything open {told.accuracy:.1%}, before {before:.1%}"
            progress(0, f"valid: {open_}, cut {told.accuracy_cut:.1%}")
            return
        words = f"loss {told.loss:.3f}, tightest {told.loss_tightest:.3f}, between {told.loss_between:.3f}"
        progress(told.step - done, words)  # a resumed training begins later
        done = told.step

    outcome = meta_train(trainee, curriculum, work, n_workers=workers, watch=watch)
    record = {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "steps": outcome.n_steps,
        "settings": settings.to_dict(),
        "profiles": [each.digest for each in read],
    }
    if outcome.validation:
        record["validation"] = vars(outcome.validation)
    return trainee.finish(record)
