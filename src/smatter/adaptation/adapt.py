"""A library and a few labelled examples to a recipe and predictions, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smatter.adaptation.evidence import Evidence, gather_evidence
from smatter.adaptation.live import LiveMixture
from smatter.adaptation.solver import NetworkSolution, SolverSettings, solve_live
from smatter.backbones.heads import class_sums, prototype_logits
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.errors import InvalidSupport
from smatter.library.library import Library, open_library
from smatter.library.recipes import write_recipe
from smatter.tasks.support import Support, check_inputs, gather, read_support


@dataclass(frozen=True)
class Predictions:
    """Classes of some inputs.

    Args:
        class_names: names of the classes, one per column.
        probabilities: (n_inputs, n_classes); the softmax of scaled cosines, not calibrated.
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
        support: the examples; their features are the head.
        recipe: what rebuilds the weights.
        evidence: leave-one-out loss of each source.
        loss: leave-one-out loss of the adapted network.
        solution: what the solver found, if it ran.
    """

    def __init__(
        self,
        live: LiveMixture,
        support: Support,
        recipe: Recipe,
        evidence: Evidence,
        loss: float,
        solution: NetworkSolution | None = None,
    ) -> None:
        self.recipe, self.evidence, self.loss, self.solution = recipe, evidence, loss, solution
        self.class_names = support.class_names
        self._live, self._kind = live, support.kind
        features = live.features(live.prepare(support.inputs, support.kind))
        self._prototypes = class_sums(features, torch.tensor(support.labels), len(support.class_names))

    @property
    def mixture(self) -> Mixture:
        """The weights of the sources."""
        return self.recipe.mixture

    def predict(self, inputs: Sequence[Any] | Tensor) -> Predictions:
        """Name the class of each input: pictures (or their paths), texts, or a prepared tensor."""
        if isinstance(inputs, str):
            raise InvalidSupport("one text is not a list of texts: put it in brackets")
        values, kind = gather(inputs)
        if not len(values):
            return Predictions(self.class_names, torch.zeros(0, len(self.class_names)))
        check_inputs(values, kind)
        features = self._live.features(self._live.prepare(values, kind))
        return Predictions(self.class_names, prototype_logits(features, self._prototypes).softmax(dim=1))

    def save(self, path: str | Path) -> None:
        """Write the recipe; an existing file is replaced in one step."""
        write_recipe(path, self.recipe)


def adapt(
    library: Library | str | Path,
    support: Support | str | Path,
    solve: bool | SolverSettings = False,
    temperature: float | None = None,
    generator: torch.Generator | None = None,
    progress: Callable[[int], None] | None = None,
) -> Adapted:
    """Fit a library to a task.

    Args:
        library: an open library or its folder.
        support: labelled examples, or where they are.
        solve: true, or settings, to run the solver; evidence routing alone by default.
        temperature: of evidence routing, 0.1 by default and lower for more than four sources; settings have their own.
        generator: source of randomness of the views of one-shot classes; a fixed one by default.
        progress: told each source and each step.
    """
    library = library if isinstance(library, Library) else open_library(library)
    support = support if isinstance(support, Support) else read_support(support)
    live = LiveMixture(library)
    rows = live.rows(support, generator)
    if solve:
        settings = solve if isinstance(solve, SolverSettings) else SolverSettings(temperature=temperature)
        solution = solve_live(live, rows, settings, progress)
        return Adapted(live, support, solution.recipe, solution.evidence, solution.losses[-1], solution)
    evidence = gather_evidence(live, rows, temperature, progress)
    live.compose(evidence.mixture)
    return Adapted(live, support, library.recipe(evidence.mixture), evidence, live.loss(rows))
