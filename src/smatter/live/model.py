"""A task's model: a network with the weights of a recipe, and the recipe's head, which names classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from smatter.backbones.classifier import Classifier
from smatter.backbones.heads import SCALE, Head, pool
from smatter.backbones.network import Inputs, rows_at_once
from smatter.compose.recipe import Recipe
from smatter.library.banks import router_bank
from smatter.library.library import Library, open_library
from smatter.library.recipes import read_recipe
from smatter.live.ensemble import Ensemble
from smatter.live.mixture import Resident
from smatter.live.predictions import Predictions
from smatter.tasks.given import check_inputs, gather, several


class TaskModel:
    """What a recipe predicts: its own network, and each of its members, in memory.

    Args:
        resident: its own network; it has the recipe's weights, and must keep them.
        recipe: with a head.
    """

    def __init__(self, resident: Resident, recipe: Recipe) -> None:
        self.recipe, self.head, self._resident = recipe, recipe.needed_head(), resident
        library = resident.library
        networks = library.networks(recipe)
        self._classifiers: list[Classifier] = []
        self._ensemble = Ensemble(resident, recipe if self.head.kind != "linear" else networks[0])
        if self.head.kind == "linear":
            for one in networks:
                self._classifiers.append(Classifier(resident.network, library.specs, self.head.class_names))
                self._classifiers[-1].use(library.compose(one).tensors())
        else:
            self.head.check_fits(self.n_features)
        self.heads = [] if self._classifiers else [Head.of(one.needed_head()) for one in networks]

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the networks' scores."""
        return self.recipe.network_weights

    @property
    def n_features(self) -> int:
        """Numbers of one vector of features."""
        return self._resident.network.n_features

    @property
    def n_passes(self) -> float:
        """Passes of each input through a network."""
        return len(self._classifiers) or self._ensemble.n_passes

    @property
    def n_bytes(self) -> int:
        """Memory of the weights."""
        return self._ensemble.n_bytes * (len(self._classifiers) or 1)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of predictions."""
        return self.head.class_names

    @property
    def takes_images(self) -> bool:
        """Whether it takes pictures; else it takes texts."""
        return self._resident.network.takes_images

    @property
    def n_at_once(self) -> int:
        """How many inputs are prepared and predicted at a time."""
        return self._resident.n_at_once

    def predict(self, inputs: Any) -> Predictions:
        """Name the class of each input: pictures (images, arrays or paths), texts, or a prepared tensor.

        Args:
            inputs: one alone, several, or a dataset, whose labels are not looked at.
        """
        parts = [self.logits(part) for part in self.prepared(inputs)]
        if not parts:
            return Predictions(self.class_names, torch.zeros(0, len(self.class_names)))
        return Predictions.of(torch.cat(parts), self.head)

    def prepared(self, inputs: Any) -> Iterator[Inputs]:
        """Inputs as the networks take them, some at a time."""
        values, kind = gather(several(inputs), self.takes_images)
        if not len(values):
            return
        check_inputs(values, kind)
        size = self.n_at_once
        if isinstance(values, Tensor) and kind == "images":
            size = rows_at_once(values.shape[2], values.shape[3])
        for start in range(0, len(values), size):
            yield self._resident.prepare(values[start : start + size], kind)

    def pixels(self, picture: Path) -> Tensor:
        """A picture as `predict` takes it prepared, (channels, height, width); one that cannot be read is refused."""
        return self._resident.prepare([picture], "images")["pixel_values"][0]

    def logits(self, inputs: Inputs) -> Tensor:
        """Scores of the head's rows for each prepared input, averaged over the networks; (n, n_classes)."""
        if self._classifiers:
            return pool([classifier.logits(inputs) for classifier in self._classifiers], self.weights)
        return self.logits_of(self.features(inputs))

    def features(self, inputs: Inputs) -> list[Tensor]:
        """What each network makes of prepared inputs, (n, d) each."""
        return self._ensemble.features(inputs)

    def logits_of(self, features: Sequence[Tensor]) -> Tensor:
        """Scores of the head's rows from features by each network, averaged; (n, n_classes)."""
        return pool([head.logits(each) for head, each in zip(self.heads, features, strict=True)], self.weights)

    def with_prototypes(self, prototypes: Tensor, bias: Tensor) -> TaskModel:
        """The same networks with other prototypes.

        Args:
            prototypes: of each network, (n_networks, n_classes, d); their directions count.
            bias: added to the scores of each class, (n_classes,).
        """
        other, recipe = copy(self), self.recipe
        other.heads = [Head(SCALE * normalize(each, dim=-1), bias) for each in prototypes]
        constants = bias.numpy() if bias.any() else None
        own, *others = (head.weight.numpy() for head in other.heads)
        members = tuple(
            replace(member, coefficients=each, constants=constants)
            for member, each in zip(recipe.members, others, strict=True)
        )
        other.head = replace(self.head, weight=own, bias=constants)
        notes = recipe.notes.model_copy(update={"sets": None})  # which were calibrated with prototypes of examples
        other.recipe = replace(recipe, head=other.head, members=members, notes=notes)
        return other


def open_task(
    recipe: Recipe | str | Path, library: Library | str | Path, router: str | Path | None = None
) -> TaskModel:
    """A recipe as a model that predicts.

    Args:
        recipe: the task, or its file.
        library: the sources, or the library's folder.
        router: folder of the router whose experts the recipe opens, where the library does not have them.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    library = library if isinstance(library, Library) else open_library(library)
    recipe.needed_head()
    if router is not None:
        library.lend(router_bank(router))
    return TaskModel(Resident(library, what=library.networks(recipe)[0]), recipe)
