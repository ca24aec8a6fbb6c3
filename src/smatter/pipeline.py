"""From a library and a few labelled examples to a task's model: task -> method -> budget -> recipe -> head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from smatter import methods
from smatter.adapted import Adapted
from smatter.backbones.classifier import Classifier
from smatter.cache import Cache
from smatter.compose.recipe import Recipe
from smatter.compose.records import Origin
from smatter.devices.budgets import Budgets
from smatter.errors import InvalidSettings
from smatter.library.library import Library, open_library
from smatter.library.recipes import read_recipe
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit, Method
from smatter.records import Progress, silent
from smatter.route.certificates import certificates_beside, sources_digest
from smatter.route.store import TrainedRouter, read_router
from smatter.settings import HeadName
from smatter.steps.judge import judged_model
from smatter.steps.spend import budgets_for, cut_to_budgets
from smatter.steps.watch import check_watching, watched
from smatter.tasks.given import several
from smatter.tasks.support import Support, read_support


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
    drift: str | Path | None = None,
    on_drift: str | None = None,
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
        queries: inputs without labels, to be named later, as `predict` takes them; prototypes are moved by them, and
            scores of uncertainty may look at them.
        budget: the most that a forward pass may cost, such as "8ms", "8ms@p95" or "1.1x"; several hold together.
        profile: by which budgets are kept, or its file; one for each unit of several budgets.
        cache: a folder where results are kept, and found again for the same task; not private ones, nor those of a
            router that is not on disk.
        drift: a file that counts how tasks differ from those that the router was calibrated on, made where there is
            none; see `route.watch`.
        on_drift: what happens while it says that they do: `warn`, `base`, or a method that is followed instead; by
            default what the file says, and `warn` in a new one.
        progress: told shares of the work.
    """
    _check_head(head)
    queries = None if queries is None else _unlabelled(queries, head)
    check_watching(drift, on_drift, router, settings)
    if cache is not None and Path(cache).is_file():
        raise InvalidSettings(f"{cache} is a file, and results are kept in a folder: give another name as the cache")
    way, settings = _way(method, settings, router)
    budgets = budgets_for(settings, budget, profile)
    library = library if isinstance(library, Library) else open_library(library)
    support = _examples(support)
    live = LiveMixture(library)
    _check_fits(live, settings, budgets)
    if head == "linear":
        own_classifier(live, support.class_names)  # refuses classes that it does not know before any work is done
    origin = _origin(way, settings)
    task = Task.of(live, support)
    if queries is not None and getattr(settings, "looks_at_queries", False):
        task = task.with_queries(live, queries)
    fit = _fitted(way, live, task, settings, Path(cache) if cache is not None else None, progress=progress)
    if queries is not None and fit.is_private:
        raise InvalidSettings("private weights have no prototypes that queries could move: leave the queries out")
    if budgets is not None:
        fit = cut_to_budgets(budgets, live, task, fit, router=settings.router, progress=progress)
    told = {"head": head, "class_names": support.class_names, "origin": origin, "support": support, "budgets": budgets}
    adapted = judged_model(live, task, fit, **told)
    asked = getattr(settings, "router", None)
    if asked is not None and head == "prototype" and queries is None and budgets is None:
        _certify(adapted, origin, library, settings)
    if drift is not None:
        adapted = watched(live, task, adapted, router=asked, path=Path(drift), on_drift=on_drift)
    if queries is not None:
        adapted.learn_from(queries)
    return adapted


def _check_head(head: str) -> None:
    if head not in get_args(HeadName):
        raise InvalidSettings(f"unknown head {head!r}: use {', '.join(get_args(HeadName))}")


def _way(method: str | None, settings: Any, router: TrainedRouter | str | Path | None) -> tuple[Method[Any], Any]:
    """The method, and its settings with the router in them where it asks one."""
    way = methods.find(method or ("evidence" if router is None else "router"))
    if isinstance(router, str | Path) and hasattr(way.settings, "router"):
        router = read_router(router)
    return way, way.with_router(settings, router)


def _certify(adapted: Adapted, origin: Origin, library: Library, settings: Any) -> None:
    """Tell what the router's certificates say of the rule that was followed; they are of no catalogue."""
    if getattr(settings, "catalogue", None) is None:
        digest = sources_digest(library.manifest)
        adapted.certify(certificates_beside(settings.router.certificates, origin, digest, adapted.fit.decision))


def _unlabelled(queries: Any, head: str) -> Any:
    """Inputs that move prototypes."""
    given = several(queries)
    if head != "prototype" or not len(given):
        raise InvalidSettings("queries move prototypes: give at least one input, and no other head")
    return given


def _check_fits(live: LiveMixture, settings: Any, budgets: Budgets | None) -> None:
    """Refuse a router and budgets of another network."""
    asked = getattr(settings, "router", None)
    if asked is not None:
        asked.check_fits(live)
        if budgets is not None:
            budgets.check_fits(live.library, live.library.bank(asked.bank.digest))


def _origin(way: Method[Any], settings: Any) -> Origin:
    """By which method a fit is found, as a recipe keeps it."""
    try:
        return Origin(method=way.name, settings=way.tell(settings))
    except ValidationError:
        raise InvalidSettings(
            f"settings of {way.name} are too long to be kept in a recipe: use shorter lists"
        ) from None


def _fitted(
    way: Method[Any], live: LiveMixture, task: Task, settings: Any, cache: Path | None, *, progress: Progress
) -> Fit:
    """What a method finds, or found before and kept in the cache."""
    known = None if cache is None else Cache(cache, way, settings, live, task)
    fit = known.get() if known else None
    if fit is None:
        fit = way(live, task, settings, progress)
        if known:
            known.put(fit)
    return fit


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


def _examples(given: Any) -> Support:
    """Labelled examples, wherever they are."""
    if isinstance(given, str | Path):
        return read_support(given)
    return given if isinstance(given, Support) else Support.of(given)


def own_classifier(live: LiveMixture, class_names: Sequence[str]) -> Classifier:
    """The checkpoints' own head for some of its classes; refused where it does not know them."""
    return Classifier(live.network, live.library.specs, class_names)
