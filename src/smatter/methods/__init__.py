"""Ways to adapt, one a file: every other file of this folder holds one method, a function of the file's name.

A method takes a live network, a task, its own settings and someone to tell its progress, and returns a `Fit`:

    @method(GreedySoupSettings)
    def greedy_soup(live, task, settings, progress) -> Fit: ...

Whoever wants one finds it by name: `find("greedy_soup")`. Its settings are a frozen record that checks itself. Finding
a method imports no torch, so that a wrong setting is told at once: a file imports what needs torch inside its function.
"""

from __future__ import annotations

import inspect
import pkgutil
import time
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from smatter.errors import InvalidSettings
from smatter.records import Progress, silent, told_shares

if TYPE_CHECKING:
    from smatter.compose.experts import ExpertMix
    from smatter.compose.head import ClassHead
    from smatter.compose.members import Member
    from smatter.compose.mixture import Mixture
    from smatter.compose.recipe import Recipe
    from smatter.compose.records import Decision, Notes
    from smatter.compose.residual import Residual
    from smatter.library.library import Library
    from smatter.live.mixture import LiveMixture
    from smatter.live.task import Task
    from smatter.route.evidence import Evidence

S = TypeVar("S")


@dataclass(frozen=True)
class Trace:
    """How a fit came about, step by step.

    Args:
        losses: of the task, at the start and after each step.
        path: mean weight of every source of the library likewise, (n_sources,) each; one entry where nothing moved.
        endings: how each search ended and what to do about it, for people.
    """

    losses: tuple[float, ...] = ()
    path: tuple[tuple[float, ...], ...] = ()
    endings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Passes:
    """What a fit took: passes of all examples through the network."""

    forwards: int = 0
    backwards: int = 0


@dataclass(frozen=True)
class Fit:
    """What a method found.

    Args:
        mixture: weights of the sources that have any.
        experts: what it opens of a router's residual experts, if it has any.
        expert_names: what people call these; see `TrainedRouter.expert_names`.
        residual: the task's own correction; none where there is none.
        members: further networks whose scores are averaged with those of the mixture, without heads yet.
        decision: how sure the routing is and what follows, where that was asked for.
        uncertainty: how unsure the routing is, by the name of the score; empty where nothing was routed.
        evidence: the loss of each source, where the method looked at it.
        likeness: how much the task is like each group of a router's probe set, by name.
        spread: tells, when it is asked, how much the first weights vary with the choice of examples: standard
            deviations over resampled ones, (n_sources,); empty where that is not known.
        trace: how it came about.
        notes: what a person should know of it.
        is_private: whether the weights may be told to others, and nothing else.
        privacy: the epsilon and delta of private weights and, with a ledger, of all releases together.
        passes: what it took.
        seconds: how long it took.
    """

    mixture: Mixture
    experts: ExpertMix | None = None
    expert_names: tuple[str, ...] = ()
    residual: Residual | None = None
    members: tuple[Member, ...] = ()
    decision: Decision | None = None
    uncertainty: Mapping[str, float] = field(default_factory=dict)
    evidence: Evidence | None = None
    likeness: Mapping[str, float] = field(default_factory=dict)
    spread: Callable[[], tuple[float, ...]] = field(default=tuple, compare=False, repr=False)
    trace: Trace = Trace()
    notes: tuple[str, ...] = ()
    is_private: bool = False
    privacy: Mapping[str, float] = field(default_factory=dict)
    passes: Passes = Passes()
    seconds: float = 0.0

    def __repr__(self) -> str:
        told = f"Fit: {told_shares(self.mixture.mean_weights)}"
        if self.is_private:
            return f"{told}\n  private: nothing else may be told"
        parts = [f"{len(self.members)} more networks" if self.members else "", "a residual" if self.residual else ""]
        parts += [f"experts {told_shares(self.expert_weights)}" if self.experts else ""]
        parts += [f"{self.passes.forwards} forward and {self.passes.backwards} backward passes, {self.seconds:.1f} s"]
        return f"{told}\n  {', '.join(filter(None, parts))}"

    @property
    def expert_weights(self) -> dict[str, float]:
        """The weight of each expert by its name; the rest is the null expert's."""
        # The null expert may have a weight too, the last one, where it opens what is common to all tasks.
        return dict(zip(self.expert_names, self.experts.alpha, strict=False)) if self.experts else {}

    def recipe(self, library: Library, head: ClassHead | None = None, notes: Notes | None = None) -> Recipe:
        """What was found, as a recipe of the library's sources."""
        return library.recipe(self.mixture, self.residual, self.experts, head=head, notes=notes, members=self.members)


@dataclass(frozen=True)
class NoSettings:
    """Of a method that needs none."""


@dataclass(frozen=True)
class Method(Generic[S]):
    """A way to adapt.

    Args:
        settings: the record of its settings; one made without arguments holds the defaults.
        function: does the work.
        is_private: whether its results must not be kept where others could compare them.
        needs_router: whether it can do nothing without a trained router.
        needs_settings: whether it says nothing that others do not, until it is told its settings.
        needs_posterior: whether a router without a posterior is of no use to it, as it is set by default.
    """

    settings: type[S]
    function: Callable[[LiveMixture, Task, S, Progress], Fit]
    is_private: bool = False
    needs_router: bool = False
    needs_settings: bool = False
    needs_posterior: bool = False

    def __call__(self, live: LiveMixture, task: Task, settings: S | None = None, progress: Progress = silent) -> Fit:
        """Adapt to a task; what is in `live` afterwards is of no importance.

        Args:
            live: the library's network.
            task: what to adapt to.
            settings: how; the defaults without.
            progress: told shares of the work.
        """
        settings = self.with_router(settings, None)
        begin, forwards, backwards = time.perf_counter(), live.n_forwards, live.n_backwards
        fit = self.function(live, task, settings, progress)
        passes = Passes(live.n_forwards - forwards, live.n_backwards - backwards)
        return replace(fit, passes=passes, seconds=time.perf_counter() - begin)

    def with_router(self, settings: S | None, router: Any) -> S:
        """Its settings, the defaults without any, and with a router where one is given; refuses what cannot work."""
        settings = self.settings() if settings is None else settings
        if not isinstance(settings, self.settings):
            raise InvalidSettings(
                f"the method {self.name} takes {self.settings.__name__}, not {type(settings).__name__}: give these"
            )
        if router is not None:
            if not hasattr(settings, "router"):
                raise InvalidSettings(f"the method {self.name} does not ask a router: leave out --router, or --method")
            settings = replace(settings, router=router)  # type: ignore[type-var]
        if self.needs_router and getattr(settings, "router", None) is None:
            raise InvalidSettings(
                f"the method {self.name} has no router to ask: give one that `smatter train` wrote with --router"
            )
        return settings

    @property
    def name(self) -> str:
        """By which it is found."""
        return self.function.__name__

    @property
    def summary(self) -> str:
        """What it does, in one line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def to_dict(self) -> dict[str, Any]:
        """Name, summary and settings, for people and machines; the router is an option of its own."""
        told, kinds = _explained(self.settings), self._kinds
        return {
            "name": self.name,
            "summary": self.summary,
            "takes_router": hasattr(self.settings, "router"),
            "settings": [
                {
                    "name": each.name,
                    "default": each.default,
                    "choices": typing.get_args(kinds[each.name]) if _is_choice(kinds[each.name]) else None,
                    "help": told.get(each.name, ""),
                }
                for each in fields(self.settings)  # type: ignore[arg-type]
                if each.name in kinds
            ],
        }

    def read_settings(self, given: Mapping[str, Any]) -> S:
        """Settings by name; texts, as a command line has them, become what each setting is.

        Args:
            given: some of the settings.
        """
        kinds = self._kinds
        for name in given:
            if name not in kinds:
                known = ", ".join(kinds) or "none"
                hint = "".join(f", like {close!r}" for close in get_close_matches(name, kinds, 1))
                raise InvalidSettings(f"the method {self.name} has no setting {name!r}{hint}: it has {known}")
        return self.settings(**{name: _parsed(name, value, kinds[name]) for name, value in given.items()})

    def tell(self, settings: S) -> dict[str, str]:
        """Settings that are not the defaults, as texts that `read_settings` takes; not those of one machine."""
        told = (each for each in fields(settings) if each.metadata.get("is_told", True))  # type: ignore[arg-type]
        values = {each.name: (getattr(settings, each.name), each.default) for each in told}
        return {
            name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            for name, (value, default) in values.items()
            if name in self._kinds and value != default
        }

    @property
    def _kinds(self) -> dict[str, Any]:
        """The type of each setting but the router, which is an option of its own, of a type that needs torch."""
        kinds = typing.get_type_hints(self.settings, localns={"TrainedRouter": object})
        return {name: kind for name, kind in kinds.items() if name != "router"}


method: Callable[..., Callable[[Callable[..., Fit]], Method[Any]]] = partial(partial, Method)
"""Makes a function a method: `@method(Settings)`, with `is_private` or `needs_router` as `Method` has them."""


def names() -> tuple[str, ...]:
    """Names of all methods."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")))


def find(name: str) -> Method[Any]:
    """The method of a name."""
    home = f"smatter.methods.{name}"
    if not name.isidentifier() or name.startswith("_") or find_spec(home) is None:
        raise InvalidSettings(f"unknown method {name[:80]!r}: use one of {', '.join(names())}")
    found = getattr(import_module(home), name, None)
    if not isinstance(found, Method):
        raise InvalidSettings(f"{home} has no method {name}: decorate a function of this name with @method")
    return found


def as_before(recipe: Recipe, has_router: bool, changes: Mapping[str, str] | None = None) -> tuple[str, Any]:
    """The method by which a recipe was found, and its settings; where it does not say, what is most like it.

    Args:
        recipe: a task's.
        has_router: whether there is one to ask.
        changes: settings that shall be others, as texts.
    """
    origin, told = recipe.notes.origin, dict[str, str]()
    if origin is not None:
        name, told = origin.method, dict(origin.settings)
    elif has_router:
        name = "router"
    elif recipe.residual is not None:
        name, told = "solver", {"n_elements": str(recipe.residual.n_nonzero)}
    elif recipe.mixture.modules:
        name, told = "solver", {"per_module": "yes"}
    elif recipe.mixture.rule == "arithmetic":
        name = "task_arithmetic"
    else:
        name = "evidence"
    return name, find(name).read_settings({**told, **(changes or {})})


def _is_choice(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal


def _explained(record: type) -> dict[str, str]:
    """What the docstrings of a record, and of those that it extends, say of each of its fields."""
    found: dict[str, str] = {}
    if record.__base__ not in (object, None):
        found |= _explained(record.__base__)
    lines = (inspect.getdoc(record) or "").partition("Args:\n")[2].splitlines()
    name = ""
    for line in lines:
        if line.startswith("    ") and not line.startswith("     "):
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif name:
            found[name] += f" {line.strip()}"
    return found


def _parsed(name: str, value: Any, kind: Any) -> Any:
    """A text as a value of some kind, as a command line has it; what is no text stays as it is."""
    if not isinstance(value, str):
        return value
    is_union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    kinds = typing.get_args(kind) if is_union else (kind,)
    if type(None) in kinds and value.lower() == "none":
        return None
    for each in kinds:
        if each is bool and value.lower() in WORDS:
            return WORDS[value.lower()]
        if each in (int, float):
            with suppress(ValueError):
                return each(value)
        if typing.get_origin(each) is tuple:
            return tuple(_parsed(name, item.strip(), typing.get_args(each)[0]) for item in value.split(","))
        if each is str or _is_choice(each):
            return value
    wanted = "yes or no" if bool in kinds else "a number" if float in kinds else "a whole number"
    raise InvalidSettings(f"{name} is {value[:80]!r}: give {wanted}")


WORDS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
