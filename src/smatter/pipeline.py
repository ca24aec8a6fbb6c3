"""From a library and a few labelled examples to a task's model: task -> method -> recipe -> head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from smatter import methods
from smatter.adapted import Adapted, own_classifier
from smatter.cache import Cache
from smatter.errors import InvalidSettings
from smatter.library.library import Library, open_library
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.records import Progress, silent
from smatter.route.store import TrainedRouter, read_router
from smatter.settings import HeadName
from smatter.tasks.support import Support, read_support


def adapt(
    library: Library | str | Path,
    support: Support | str | Path,
    method: str | None = None,
    settings: Any = None,
    *,
    router: TrainedRouter | str | Path | None = None,
    head: HeadName = "prototype",
    cache: str | Path | None = None,
    progress: Progress = silent,
) -> Adapted:
    """Fit a library to a task. The order of examples and classes does not change a bit of the weights.

    Args:
        library: an open library or its folder.
        support: labelled examples, or where they are.
        method: how, by name: see `smatter.methods`. By default `router` where one is given, else `evidence`.
        settings: of the method; its defaults without.
        router: a trained router or its folder, for methods that ask one.
        head: how classes are told apart; weights are found with prototypes whatever it is.
        cache: a folder where results are kept, and found again for the same task; not private ones, nor those of a
            router that is not on disk.
        progress: told shares of the work.
    """
    if head not in get_args(HeadName):
        raise InvalidSettings(f"unknown head {head!r}: use {', '.join(get_args(HeadName))}")
    way = methods.find(method or ("evidence" if router is None else "router"))
    settings = way.settings() if settings is None else settings
    library = library if isinstance(library, Library) else open_library(library)
    support = support if isinstance(support, Support) else read_support(support)
    live = LiveMixture(library)
    if router is not None:
        settings = with_router(way, settings, router, live)
    if head == "linear":
        own_classifier(live, support.class_names)  # refuses classes that it does not know before any work is done
    task = Task.of(live, support)
    known = Cache(Path(cache), way, settings, live, task) if cache is not None else None
    fit = known.get() if known else None
    if fit is None:
        fit = way(live, task, settings, progress)
        if known:
            known.put(fit)
    return Adapted(live, task, fit, head, support.class_names, way.name)


def with_router(way: methods.Method[Any], settings: Any, router: TrainedRouter | str | Path, live: LiveMixture) -> Any:
    """A method's settings with a router that fits the network."""
    if not way.takes_router:
        raise InvalidSettings(f"the method {way.name} does not ask a router: leave it out, or use the method router")
    trained = router if isinstance(router, TrainedRouter) else read_router(router)
    trained.check_fits(live)
    return replace(settings, router=trained)


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
