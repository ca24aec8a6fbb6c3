"""Who takes part: every source alone, and every method that applies, found by name. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from smatter import methods
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings
from smatter.methods import Fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smatter.library.library import Library
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task

BASE = "base"
AVERAGE = "average"
"""What all others are compared with: the base alone, and the plain average of all sources."""


@dataclass(frozen=True)
class Contender:
    """A way to get a model for a task: one source alone, or a method with its settings.

    Args:
        name: by which it is told apart.
        source: whose network is taken as it is; empty for a method.
        method: its name; empty for a source.
        settings: of the method, as texts; the others have their defaults.
        sees_queries: whether it is shown the queries, without their labels.
    """

    name: str
    source: str = ""
    method: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    sees_queries: bool = False

    def fit(self, live: LiveMixture, task: Task, router: Any = None) -> Fit:
        """What it makes of a task.

        Args:
            live: the library's network.
            task: what to adapt to.
            router: a trained one, for methods that ask one.
        """
        if self.source:
            return Fit(Mixture.of({self.source: 1.0}))
        way = methods.find(self.method)
        settings = way.read_settings(dict(self.settings))
        return way(live, task, way.with_router(settings, router if hasattr(settings, "router") else None))


def contenders(
    library: Library, wanted: Sequence[str] = ("all",), has_router: bool = False, has_posterior: bool = True
) -> tuple[Contender, ...]:
    """Those who take part, each once, in one order whatever order they are asked for in.

    Args:
        library: whose sources take part.
        wanted: names: `base`, `source:NAME`, a method, or `METHOD:predictions`; `sources` is all sources, and `all`
            is everybody. The base and the average, which others are compared with, always take part.
        has_router: whether there is one to ask; methods that need one are left out of `all` without.
        has_posterior: whether the router has one; so are those that need one.
    """
    known = {each.name: each for each in (*_alone(library), *_adapting(has_router))}
    chosen = {BASE, AVERAGE}
    for name in wanted:
        if name == "all":
            chosen |= {key for key, each in known.items() if has_posterior or not _needs_posterior(each)}
        elif name == "sources":
            chosen |= {each.name for each in known.values() if each.source}
        elif name in known:
            chosen.add(name)
        else:
            raise InvalidSettings(_unknown(name, known))
    return tuple(each for name, each in known.items() if name in chosen)


def _alone(library: Library) -> list[Contender]:
    base = library.manifest.base
    others = sorted(name for name in library.names if name != base)
    return [Contender(BASE, base), *(Contender(f"source:{name}", name) for name in others)]


def _adapting(has_router: bool) -> list[Contender]:
    """Methods that apply, and their averages of predictions."""
    found = []
    for name in methods.names():
        way = methods.find(name)
        if way.is_private or way.needs_settings or (way.needs_router and not has_router):
            continue
        found.append(Contender(name, method=name))
        if hasattr(way.settings, "mix"):
            found.append(Contender(f"{name}:predictions", method=name, settings=(("mix", "predictions"),)))
    return found


def _needs_posterior(contender: Contender) -> bool:
    return bool(contender.method) and methods.find(contender.method).needs_posterior


def _unknown(name: str, known: dict[str, Contender]) -> str:
    method = name.partition(":")[0]
    if method in methods.names() and methods.find(method).is_private:
        return f"{method} draws new noise for every release, so it cannot be scored by one: leave it out of --methods"
    if method in methods.names() and methods.find(method).needs_router:
        return f"the method {method} has no router to ask: give one that `smatter train` wrote with --router"
    near = "".join(f", like {close!r}" for close in get_close_matches(name, known, 1))
    return f"unknown method {name[:80]!r}{near}: use all, sources, or some of {', '.join(known)}"
