"""A library and a few labelled examples to a recipe and predictions, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from smatter.adaptation.cache import Cache, cache_key
from smatter.adaptation.evidence import Evidence
from smatter.adaptation.modes import ModeSettings, Routed, route_task
from smatter.adaptation.solver import NetworkSolution, SolverSettings, solve_live
from smatter.backbones.classifier import Classifier
from smatter.backbones.fitted_heads import HEADS, held_out_accuracy
from smatter.backbones.network import Inputs
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.errors import InvalidSettings, InvalidSupport
from smatter.library.diagnostics import Diagnostics, diagnose
from smatter.library.library import Library, open_library
from smatter.library.recipes import write_recipe
from smatter.live.identity import Task
from smatter.live.mixture import LiveMixture
from smatter.records import Progress, silent
from smatter.route.store import TrainedRouter, read_router
from smatter.tasks.support import Support, check_inputs, gather, read_support

HeadName = Literal["prototype", "ridge", "logistic", "linear"]
"""How classes are told apart: by a head fitted to the examples' features, or `linear`, the checkpoints' own."""


@dataclass(frozen=True)
class Predictions:
    """Classes of some inputs.

    Args:
        class_names: names of the classes, one per column.
        probabilities: (n_inputs, n_classes); the softmax of the head's scores, not calibrated.
    """

    class_names: tuple[str, ...]
    probabilities: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """The most probable class of each input."""
        return tuple(self.class_names[index] for index in self.probabilities.argmax(dim=1).tolist())


class Adapted:
    """A task's model: how it is composed, and what it predicts.

    Args:
        live: the network, with the task's weights in it.
        support: the examples, to which the head is fitted.
        recipe: what rebuilds the weights.
        evidence: leave-one-out loss of each source, if it was asked for.
        routed: what the router, or the evidence, said; none where the solver ran.
        solution: what the solver found, if it ran.
        head: which head is fitted; of no importance with a classifier.
        classifier: the checkpoints' own head, to use instead of a fitted one.
    """

    def __init__(
        self,
        live: LiveMixture,
        support: Support,
        recipe: Recipe,
        evidence: Evidence | None = None,
        routed: Routed | None = None,
        solution: NetworkSolution | None = None,
        head: HeadName = "prototype",
        classifier: Classifier | None = None,
    ) -> None:
        self.recipe, self.evidence, self.routed, self.solution = recipe, evidence, routed, solution
        self.class_names, self.head = support.class_names, head
        self._live, self._support, self._classifier = live, support, classifier
        self._inputs, self._labels = live.prepare(support.inputs, support.kind), torch.tensor(support.labels)
        if classifier:
            classifier.use(live.library.compose(recipe).tensors())
        else:
            self._features = live.features(self._inputs)
            self._head = HEADS[head](self._features, self._labels, len(self.class_names))

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources of the library, with weight or without."""
        return self._live.library.names

    @property
    def mixture(self) -> Mixture:
        """The weights of the sources."""
        return self.recipe.mixture

    @cached_property
    def loss(self) -> float:
        """Leave-one-out loss of the adapted network, on the examples that its weights were chosen by."""
        return self._live.loss(self._live.rows(Task.of(self._live, self._support).support))

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """What the model is made of; reads every source once."""
        return diagnose(self._live.library, self.recipe, self.routed.spread if self.routed else ())

    @cached_property
    def held_out_accuracy(self) -> float:
        """Share of the examples that are recognised by a head that has not seen them; NaN if no class has two.

        The weights of the sources have seen them, so new examples may be harder.
        """
        if self._classifier:
            hits = self._logits(self._inputs).argmax(dim=1) == self._labels
            return float(hits.double().mean())
        return held_out_accuracy(HEADS[self.head], self._features, self._labels, len(self.class_names))

    def predict(self, inputs: Sequence[Any] | Tensor) -> Predictions:
        """Name the class of each input: pictures (or their paths), texts, or a prepared tensor."""
        if isinstance(inputs, str):
            raise InvalidSupport("one text is not a list of texts: put it in brackets")
        values, kind = gather(inputs)
        if not len(values):
            return Predictions(self.class_names, torch.zeros(0, len(self.class_names)))
        check_inputs(values, kind)
        logits = self._logits(self._live.prepare(values, kind))
        return Predictions(self.class_names, logits.softmax(dim=1))

    def save(self, path: str | Path) -> None:
        """Write the recipe; an existing file is replaced in one step."""
        write_recipe(path, self.recipe)

    def _logits(self, inputs: Inputs) -> Tensor:
        if self._classifier:
            return self._classifier.logits(inputs)
        return self._head.logits(self._live.features(inputs))


def adapt(
    library: Library | str | Path,
    support: Support | str | Path,
    router: TrainedRouter | str | Path | None = None,
    settings: ModeSettings | SolverSettings | None = None,
    progress: Progress = silent,
    head: HeadName = "prototype",
    cache: str | Path | None = None,
) -> Adapted:
    """Fit a library to a task. The order of examples and classes does not change a bit of the weights.

    Args:
        library: an open library or its folder.
        support: labelled examples, or where they are.
        router: a trained router or its folder; evidence routing without one.
        settings: how to use the router, or the evidence; settings of the solver run that instead.
        progress: told each source and each step.
        head: how classes are told apart; weights are found with prototypes whatever it is.
        cache: a folder where results are kept, and found again for the same task; not those of the solver, of a router
            that is not on disk, and private ones.
    """
    if head not in get_args(HeadName):
        raise InvalidSettings(f"unknown head {head!r}: use {', '.join(get_args(HeadName))}")
    library = library if isinstance(library, Library) else open_library(library)
    support = support if isinstance(support, Support) else read_support(support)
    trained = router if isinstance(router, TrainedRouter) or router is None else read_router(router)
    live = LiveMixture(library)
    classifier = Classifier(live.network, library.specs, support.class_names) if head == "linear" else None
    task = Task.of(live, support)
    if isinstance(settings, SolverSettings):
        if trained is not None:
            raise InvalidSettings("the solver does not ask a router: give settings of one of its modes, or no router")
        solution = solve_live(live, live.rows(task.support), settings, progress)
        return Adapted(live, support, solution.recipe, solution.evidence, None, solution, head, classifier)
    settings = settings or ModeSettings()
    if trained is not None:
        trained.check_fits(live)
    key = cache_key(live, task, trained, settings)
    store = None if cache is None else Cache(Path(cache))
    known = store.get(live, key) if store and key else None
    routed = known or route_task(live, task.support, trained, settings, progress)
    recipe = library.recipe(routed.mixture, routed.residual)
    if known:
        live.compose(recipe.mixture, recipe.residual)
    elif store and key:
        store.put(key, routed, recipe)
    return Adapted(live, support, recipe, routed.evidence, routed, None, head, classifier)
