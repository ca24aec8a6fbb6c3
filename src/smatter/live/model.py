"""A task's model: a network with the weights of a recipe, and the recipe's head, which names classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smatter.backbones.classifier import Classifier
from smatter.backbones.heads import Head, pool
from smatter.backbones.network import Inputs, rows_at_once
from smatter.compose.recipe import Recipe
from smatter.errors import InvalidSupport
from smatter.library.banks import router_bank
from smatter.library.library import Library, open_library
from smatter.library.recipes import read_recipe
from smatter.live.mixture import Resident
from smatter.live.predictions import Predictions
from smatter.tasks.support import check_inputs, gather


class TaskModel:
    """What a recipe predicts: its own network, and each of its members, in memory.

    Args:
        resident: its own network; it has the recipe's weights, and must keep them.
        recipe: with a head.
    """

    def __init__(self, resident: Resident, recipe: Recipe) -> None:
        self.recipe, self.head, self._resident = recipe, recipe.needed_head(), resident
        own, *others = resident.library.networks(recipe)
        self._networks = [
            _Network(resident, own),
            *(_Network(Resident(resident.library, what=each), each) for each in others),
        ]

    @property
    def n_passes(self) -> int:
        """Networks that every input passes through."""
        return len(self._networks)

    @property
    def n_bytes(self) -> int:
        """Memory of the weights of its networks."""
        return sum(each.resident.n_bytes for each in self._networks)

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

    def predict(self, inputs: Sequence[Any] | Tensor) -> Predictions:
        """Name the class of each input: pictures (or their paths), texts, or a prepared tensor."""
        if isinstance(inputs, str):
            raise InvalidSupport("one text is not a list of texts: put it in brackets")
        values, kind = gather(inputs)
        if not len(values):
            return Predictions(self.class_names, torch.zeros(0, len(self.class_names)))
        if kind == "texts" and self.takes_images and not isinstance(values, Tensor):
            values, kind = tuple(Path(path) for path in values), "images"  # what else could a text be here
        check_inputs(values, kind)
        size = self.n_at_once
        if isinstance(values, Tensor) and kind == "images":
            size = rows_at_once(values.shape[2], values.shape[3])
        parts = (values[start : start + size] for start in range(0, len(values), size))
        return Predictions.of(torch.cat([self.logits(self._resident.prepare(part, kind)) for part in parts]), self.head)

    def pixels(self, picture: Path) -> Tensor:
        """A picture as `predict` takes it prepared, (channels, height, width); one that cannot be read is refused."""
        return self._resident.prepare([picture], "images")["pixel_values"][0]

    def logits(self, inputs: Inputs) -> Tensor:
        """Scores of the head's rows for each prepared input, averaged over the networks; (n, n_classes)."""
        weights = (self.recipe.own_weight, *(member.weight for member in self.recipe.members))
        return pool([each.logits(inputs) for each in self._networks], weights)


class _Network:
    """One network of a task, with its head.

    Args:
        resident: the network.
        recipe: of it alone.
    """

    def __init__(self, resident: Resident, recipe: Recipe) -> None:
        self.resident, head = resident, recipe.needed_head()
        self._classifier: Classifier | None = None
        if head.kind == "linear":
            library = resident.library
            self._classifier = Classifier(resident.network, library.specs, head.class_names)
            self._classifier.use(library.compose(recipe).tensors())
        else:
            head.check_fits(resident.network.n_features)
            self._coefficients = Head.of(head)

    def logits(self, inputs: Inputs) -> Tensor:
        """Scores of the head's rows for each prepared input, (n, n_classes)."""
        if self._classifier is not None:
            return self._classifier.logits(inputs)
        return self._coefficients.logits(self.resident.features(inputs))


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
