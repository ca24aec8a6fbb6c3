"""From a library and a few labelled examples to a task's model: task -> method -> budget -> recipe -> head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from smatter import methods
from smatter.adapted import Adapted
from smatter.backbones.classifier import Classifier
from smatter.cache import Cache
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.records import Origin
from smatter.devices.budgets import Budgets
from smatter.devices.cut import cut_experts
from smatter.errors import InvalidSettings
from smatter.library.library import Library, open_library
from smatter.library.recipes import read_recipe
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit, Passes
from smatter.records import Progress, silent
from smatter.route.store import TrainedRouter, read_router
from smatter.settings import HeadName
from smatter.tasks.given import several
from smatter.tasks.support import Support, read_support

CLEARLY = 2.0
"""Standard errors by which a model's loss may be above a single source's before that source is taken instead."""


def adapt(
    library: Library | str | Path,
    support: Any,
    method: str | None = None,
    settings: Any = None,
    *,
    router: TrainedRouter | str | Path | None = None,
    head: HeadName = "prototype",
    queries: Any = None,
    budget: Any = None,
    profile: Any = None,
    cache: str | Path | None = None,
    progress: Progress = silent,
) -> Adapted:
    """Fit a library to a task. The order of examples and classes does not change a bit of the weights.

    Args:
        library: an open library or its folder.
        support: labelled examples, where they are, or a dataset as `Support.of` takes one.
        method: how, by name: see `smatter.methods`. By default `router` where one is given, else `evidence`.
        settings: of the method; its defaults without.
        router: a trained router or its folder, for methods that ask one.
        head: how classes are told apart; weights are found with prototypes whatever it is.
        queries: inputs without labels, to be named later, as `predict` takes them; prototypes are moved by them.
        budget: the most that a forward pass may cost, such as "8ms", "8ms@p95" or "1.1x"; several hold together.
        profile: by which budgets are kept, or its file; one for each unit of several budgets.
        cache: a folder where results are kept, and found again for the same task; not private ones, nor those of a
            router that is not on disk.
        progress: told shares of the work.
    """
    if head not in get_args(HeadName):
        raise InvalidSettings(f"unknown head {head!r}: use {', '.join(get_args(HeadName))}")
    queries = None if queries is None else several(queries)
    if queries is not None and (head != "prototype" or not len(queries)):
        raise InvalidSettings("queries move prototypes: give at least one input, and no other head")
    budgets = None if budget is None and profile is None else Budgets.of(budget, profile)
    if cache is not None and Path(cache).is_file():
        raise InvalidSettings(f"{cache} is a file, and results are kept in a folder: give another name as the cache")
    name = method or ("evidence" if router is None else "router")
    way = methods.find(name)
    if isinstance(router, str | Path) and hasattr(way.settings, "router"):
        router = read_router(router)
    settings = way.with_router(settings, router)
    if budgets is not None:
        check_cuttable(settings)
    library = library if isinstance(library, Library) else open_library(library)
    support = _examples(support)
    live = LiveMixture(library)
    if (asked := getattr(settings, "router", None)) is not None:
        asked.check_fits(live)
        if budgets is not None:
            budgets.check_fits(library, library.bank(asked.bank.digest))
    if head == "linear":
        own_classifier(live, support.class_names)  # refuses classes that it does not know before any work is done
    try:
        origin = Origin(method=name, settings=way.tell(settings))
    except ValidationError:
        raise InvalidSettings(f"settings of {name} are too long to be kept in a recipe: use shorter lists") from None
    task = Task.of(live, support)
    known = Cache(Path(cache), way, settings, live, task) if cache is not None else None
    fit = known.get() if known else None
    if fit is None:
        fit = way(live, task, settings, progress)
        if known:
            known.put(fit)
    if queries is not None and fit.is_private:
        raise InvalidSettings("private weights have no prototypes that queries could move: leave the queries out")
    if budgets is not None:
        fit = cut_fit(budgets, live, task, fit, progress)
    names = support.class_names
    adapted = judged_model(live, task, fit, head=head, class_names=names, origin=origin, budgets=budgets)
    if queries is not None:
        adapted.learn_from(queries)
    return adapted


def refit(
    library: Library | str | Path,
    support: Support | str | Path,
    recipe: Recipe | str | Path,
    method: str | None = None,
    settings: Any = None,
    *,
    router: TrainedRouter | str | Path | None = None,
    head: HeadName | None = None,
    budget: Any = None,
    profile: Any = None,
    progress: Progress = silent,
) -> Adapted:
    """Fit a task again, on the sources that the library has now, as its recipe was: method, residual and head alike.

    Args:
        library: an open library or its folder.
        support: labelled examples, or where they are.
        recipe: the task so far, or its file; `recipe.lost_in` tells which of its sources are gone.
        method: another way than the recipe's.
        settings: of that method.
        router: for methods that ask one.
        head: another than the recipe's.
        budget, profile: what it may cost; needed again where the recipe was made to fit a budget.
        progress: told shares of the work.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    library = library if isinstance(library, Library) else open_library(library)
    if method is None:
        method, like = methods.as_before(recipe, router is not None)
        settings = settings or like
    kind = head or (recipe.head.kind if recipe.head else "prototype")
    recipe.check_rebudgeted(budget)
    options: dict[str, Any] = {"router": router, "head": kind, "budget": budget, "profile": profile}
    return adapt(library, support, method, settings, progress=progress, **options)


def solve_task(
    library: Library | str | Path, support: Support | str | Path, settings: Any = None, progress: Progress = silent
) -> Adapted:
    """Fit a library to a task by the solver: `adapt` with that method.

    Args:
        library: an open library or its folder.
        support: labelled examples, or where they are.
        settings: `SolverSettings`; the defaults without.
        progress: told shares of the work.
    """
    return adapt(library, support, "solver", settings, progress=progress)


def check_cuttable(settings: Any) -> None:
    """Refuse a method that opens no experts, or averages several networks: a budget has nothing to cut there."""
    router = getattr(settings, "router", None)
    if router is None or router.bank is None:
        raise InvalidSettings("a budget closes units of experts: give --router of one trained with --experts")
    if getattr(settings, "mix", "weights") != "weights" or getattr(settings, "tune", "") == "modules":
        raise InvalidSettings("a budget is for one network and its experts: leave out --mix, and --set tune=modules")


def cut_fit(budgets: Budgets, live: LiveMixture, task: Task, fit: Fit, progress: Progress = silent) -> Fit:
    """A fit whose experts are cut to what its budgets allow.

    Args:
        budgets: what a forward pass may cost.
        live: the network.
        task: what was fitted to.
        fit: what a method found.
        progress: told shares of the work.
    """
    if fit.members or fit.residual is not None:
        raise InvalidSettings("a budget is for one network and its experts: take a method without members or residual")
    if fit.experts is None:
        return fit
    forwards, backwards = live.n_forwards, live.n_backwards
    experts = cut_experts(live, task.objective, fit.mixture, fit.experts, budgets, progress=progress)
    more = Passes(live.n_forwards - forwards, live.n_backwards - backwards)
    passes = Passes(fit.passes.forwards + more.forwards, fit.passes.backwards + more.backwards)
    return replace(fit, experts=experts, passes=passes)


def _examples(given: Any) -> Support:
    """Labelled examples, wherever they are."""
    if isinstance(given, str | Path):
        return read_support(given)
    return given if isinstance(given, Support) else Support.of(given)


def judged_model(live: LiveMixture, task: Task, fit: Fit, **options: Any) -> Adapted:
    """The model of a fit, or of the best single source; see `kept_or_single`.

    Args:
        live: the network.
        task: what was fitted to.
        fit: what a method found.
        options: of `Adapted`.
    """
    adapted = Adapted(live, task, fit, **options)
    judged = kept_or_single(fit, adapted.loss)
    if judged.mixture != fit.mixture:
        adapted = Adapted(live, task, judged, **options)
    adapted.fit = judged
    return adapted


def kept_or_single(fit: Fit, loss: float) -> Fit:
    """A fit, or the best single source where that explains the examples clearly better.

    The least loss of several sources is low by luck too. On validation tasks of Signs a router's mixtures whose loss is
    above it by up to one standard error are as much more accurate than that source as all others are; between one and
    two neither is better, as far as few tasks tell.

    Args:
        fit: what a method found; one without evidence, or by a decision of its own, is kept.
        loss: of its model on the examples, leave-one-out.
    """
    evidence = fit.evidence
    if (
        evidence is None
        or fit.is_private
        or fit.decision
        or not loss > (least := min(filter(math.isfinite, evidence.losses)))
    ):
        return fit
    above = (loss - least) / evidence.error
    told = f"the loss is above that of {evidence.best} alone by {above:.1f} standard errors"
    if above <= CLEARLY:
        return replace(fit, notes=(*fit.notes, f"{told}, which luck does too: the mixture is kept"))
    single = Mixture.of({evidence.best: 1.0})
    notes = (*fit.notes, f"{told}: {evidence.best} alone is taken instead")
    return replace(fit, mixture=single, experts=None, residual=None, members=(), notes=notes)


def own_classifier(live: LiveMixture, class_names: Sequence[str]) -> Classifier:
    """The checkpoints' own head for some of its classes; refused where it does not know them."""
    return Classifier(live.network, live.library.specs, class_names)
