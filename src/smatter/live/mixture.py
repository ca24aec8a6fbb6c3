"""One network in memory whose weights are whatever mixture was last asked for.

Sources stay on disk, mapped; what is kept here is one network in float32 and, for a moment, one gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from smatter.backbones.heads import class_sums, leave_one_out_losses, prototype_logits
from smatter.backbones.network import CHUNK, Inputs, chunks
from smatter.compose.execute import ranges
from smatter.compose.kernel import as_float32
from smatter.compose.mixture import Mixture
from smatter.compose.residual import Residual
from smatter.errors import InvalidSupport
from smatter.files.arrays import as_torch
from smatter.library.library import Library
from smatter.live.resident import Resident
from smatter.live.views import N_VIEWS, image_views, text_views, token_views
from smatter.records import TensorSpec
from smatter.tasks.support import Kind, Support

DOT_BLOCK = 1 << 18
"""Elements per inner product in float32; the sum over blocks is in float64."""


@dataclass(frozen=True)
class Rows:
    """A support set as the network takes it: a row per example, several where a class has one example only.

    Args:
        inputs: arguments of the forward pass.
        labels: class of each row, (n_rows,).
        examples: example of each row, (n_rows,).
        n_classes: how many classes there are.
    """

    inputs: Inputs
    labels: Tensor
    examples: Tensor
    n_classes: int

    def losses(self, features: Tensor) -> Tensor:
        """The leave-one-out loss of each example, (n_examples,), from the rows' features."""
        return leave_one_out_losses(features, self.labels, self.examples, self.n_classes)

    def loss(self, features: Tensor) -> Tensor:
        """Their mean."""
        return self.losses(features).mean()


@dataclass(frozen=True)
class EpisodeRows(Rows):
    """The support set, then the queries, which are scored against its prototypes; for who knows the queries' labels.

    Args:
        n_support: rows of the support set.
        teacher: class probabilities of the queries that a teacher gives, (n_queries, n_classes), to be imitated too.
        teacher_share: how much these count beside the labels.
    """

    n_support: int = 0
    teacher: Tensor | None = None
    teacher_share: float = 0.0

    def losses(self, features: Tensor) -> Tensor:
        """The loss of each query, (n_queries,)."""
        logits = self.logits(features)
        losses = cross_entropy(logits, self.labels[self.n_support :], reduction="none")
        if self.teacher is None:
            return losses
        imitation = cross_entropy(logits, self.teacher, reduction="none")
        return (1 - self.teacher_share) * losses + self.teacher_share * imitation

    def accuracy(self, features: Tensor) -> float:
        """Share of the queries that are recognised."""
        hits = self.logits(features).argmax(dim=1) == self.labels[self.n_support :]
        return float(hits.double().mean())

    def logits(self, features: Tensor) -> Tensor:
        """Scores of the classes for each query, (n_queries, n_classes)."""
        prototypes = class_sums(features[: self.n_support], self.labels[: self.n_support], self.n_classes)
        return prototype_logits(features[self.n_support :], prototypes)


class LiveMixture:
    """A library's network in memory.

    Mixtures are composed in float32 whatever the sources' dtype, so that a loss is smooth in the weights; an export
    of the same recipe is rounded to the base's dtype once more.

    Args:
        library: its sources are checked against their digests first.

    `n_forwards` and `n_backwards` count how often rows were passed one way and both ways.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.n_forwards, self.n_backwards = 0, 0
        self._resident = Resident(library)
        self.network, self.specs = self._resident.network, self._resident.specs
        self.parameters: dict[str, torch.nn.Parameter] = {
            disk: getattr(module, name).requires_grad_() for disk, (module, name) in self._resident.leaves.items()
        }

    @cached_property
    def live_modules(self) -> frozenset[str]:
        """Modules that the backbone uses; a task's old head is none."""
        return frozenset(self.library.partition.module_of(name) for name in self.parameters)

    def compose(self, mixture: Mixture, residual: Residual | None = None) -> None:
        """Give the network these weights."""
        self._resident.compose(mixture, residual)

    def prepare(self, inputs: Sequence[Any] | Tensor, kind: Kind) -> Inputs:
        """Pictures, texts or prepared tensors as arguments of the forward pass."""
        if (kind == "images") != self.network.takes_images:
            takes = "images" if self.network.takes_images else "texts"
            raise InvalidSupport(f"the library's network takes {takes}, not {kind}: use a library made for {kind}")
        return self._resident.prepare(inputs)

    def pictures(self, values: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
        """Pictures of one size, (n, height, width, 3), as prepared pixels."""
        return self._resident.preprocessing.scaled(values)

    def examples(self, values: Sequence[str] | np.ndarray[Any, np.dtype[np.uint8]]) -> Inputs:
        """Examples of a suite, texts or pictures of one size, as arguments of the forward pass."""
        if isinstance(values, np.ndarray):
            return {"pixel_values": self.pictures(values)}
        return self.prepare(values, "texts")

    def rows(self, support: Support, generator: torch.Generator | None = None, n_views: int = N_VIEWS) -> Rows:
        """The rows of a support set; the only example of a class becomes several views.

        Args:
            support: the examples.
            generator: source of randomness of the views; a fixed one by default.
            n_views: rows of an example that is alone in its class.
        """
        sizes = support.class_sizes
        alone = [index for index, label in enumerate(support.labels) if sizes[label] == 1]
        common = [index for index, label in enumerate(support.labels) if sizes[label] > 1]
        examples = torch.tensor(common + [index for index in alone for _ in range(n_views)])
        labels = torch.tensor(support.labels)[examples]
        if not alone:
            return Rows(self.prepare(support.inputs, support.kind), labels, examples, len(sizes))
        parts = []
        if common:
            parts.append(_pick(support.inputs, common))
        lonely = _pick(support.inputs, alone)
        if isinstance(lonely, Tensor) or support.kind == "images":
            prepared = self.prepare(lonely, support.kind)
            if support.kind == "images":
                pixels = image_views(prepared["pixel_values"], n_views, generator).flatten(0, 1)
                views: Inputs = {"pixel_values": pixels}
            else:
                views = token_views(prepared, n_views, generator)
            plain = [self.prepare(part, support.kind) for part in parts]
            names = views.keys()
            inputs = {name: torch.cat([*(part[name] for part in plain), views[name]]) for name in names}
        else:
            texts = [text for part in parts for text in part] + text_views(lonely, n_views, generator)
            inputs = self.prepare(texts, "texts")
        return Rows(inputs, labels, examples, len(sizes))

    def features(self, inputs: Inputs) -> Tensor:
        """Features of all rows, (n, d), in bounded memory and without gradient."""
        self.n_forwards += 1
        with torch.no_grad():
            return torch.cat([self.network.features(part) for part in chunks(inputs)])

    def loss(self, rows: Rows) -> float:
        """The leave-one-out loss at the present weights."""
        return float(rows.loss(self.features(rows.inputs)))

    def backward(self, rows: Rows) -> float:
        """The loss, and its gradient in `parameters`: one backward pass over all rows.

        More rows than one pass holds are passed forward twice: first for the features, which all prototypes need,
        then part by part with the gradient of the features given.
        """
        self.forget()
        self.n_backwards += 1
        parts = list(chunks(rows.inputs))
        with torch.enable_grad():
            if len(parts) == 1:
                loss = rows.loss(self.network.features(parts[0]))
                loss.backward()
                return float(loss.detach())
            features = self.features(rows.inputs).requires_grad_()
            loss = rows.loss(features)
            (slopes,) = torch.autograd.grad(loss, features)
            for part, slope in zip(parts, slopes.split(CHUNK), strict=True):
                self.network.features(part).backward(slope)
        return float(loss.detach())

    def forget(self) -> None:
        """Free the gradient."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def gradient(self, name: str) -> Tensor | None:
        """The gradient in a tensor, flat; None where the backbone does not use it."""
        parameter = self.parameters.get(name)
        return None if parameter is None or parameter.grad is None else parameter.grad.reshape(-1)

    def inner_products(self, sources: Sequence[str]) -> Tensor:
        """<gradient, source> per module, (n_modules, n_sources), in float64; sources are read where they lie."""
        modules = self.library.partition.modules
        result = torch.zeros(len(modules), len(sources), dtype=torch.float64)
        for row, names in enumerate(modules.values()):
            for name in names:
                gradient = self.gradient(name)
                if gradient is None:
                    continue
                for column, source in enumerate(sources):
                    result[row, column] += self._inner_product(gradient, source, name)
        return result

    def _inner_product(self, gradient: Tensor, source: str, name: str) -> float:
        dtype, total = self.library.spec(source, name).dtype, 0.0
        for start, stop in ranges(gradient.numel(), DOT_BLOCK):
            block = as_float32(self.library.read(source, name, start, stop), dtype)
            values = as_torch(block, TensorSpec("F32", block.shape))
            total += float(torch.dot(gradient[start:stop], values))
        return total


def _pick(inputs: Sequence[Any] | Tensor, indices: Sequence[int]) -> Any:
    return inputs[torch.tensor(indices)] if isinstance(inputs, Tensor) else [inputs[index] for index in indices]
