"""A task's model that learns from the inputs it is to name: they have no labels, but they show where classes lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from smatter.backbones.transduction import refined_prototypes
from smatter.errors import InvalidSettings
from smatter.live.model import TaskModel
from smatter.live.predictions import Predictions
from smatter.live.stream import Answer, read_input
from smatter.tasks.inputs import MAX_QUERIES, Input


@dataclass(frozen=True)
class Learnt:
    """What came of it.

    Args:
        model: with prototypes that were moved.
        n_queries: that moved them.
        shares: how frequent each class seems among them, by name.
    """

    model: TaskModel
    n_queries: int
    shares: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        return {"n": self.n_queries, "shares": self.shares, "told": str(self)}

    def __str__(self) -> str:
        least, most = min(self.shares.values()), max(self.shares.values())
        return (
            f"prototypes were moved by {self.n_queries} inputs without labels; classes seem to be {least:.0%} to "
            f"{most:.0%} of them"
        )


def learn(model: TaskModel, queries: Tensor, examples: Tensor | None = None, labels: Tensor | None = None) -> Learnt:
    """Move the prototypes of a model.

    Args:
        model: with a prototype head.
        queries: features of inputs without labels by each network, (n_networks, n_queries, d).
        examples: features of the labelled ones likewise. Without them, as many as each class had stand where its
            prototype is.
        labels: row of the head of each example, (n_examples,).
    """
    head = model.head
    if head.kind != "prototype" or head.weight is None:
        raise InvalidSettings(
            f"inputs without labels move prototypes, and the head is {head.kind}: adapt without --head"
        )
    if examples is None:
        if not head.sizes:
            raise InvalidSettings("the recipe does not tell how many examples it had: adapt again with this version")
        labels = torch.arange(len(head.sizes)).repeat_interleave(torch.tensor(head.sizes))
        examples = torch.stack([each.weight[labels] for each in model.heads])
    assert labels is not None
    weights = torch.tensor(model.weights, dtype=queries.dtype)
    found = refined_prototypes(examples, labels, queries, weights, len(head.classes))
    names = {row: name for name, row in head.classes.items()}
    shares = {names[row]: share for row, share in enumerate(found.shares.tolist())}
    return Learnt(model.with_prototypes(found.prototypes, found.bias), queries.shape[1], shares)


def features_of(model: TaskModel, values: Any) -> Tensor:
    """Features of inputs by each network, (n_networks, n, d)."""
    parts = [torch.stack(model.features(part)) for part in model.prepared(values)]
    return torch.cat(parts, dim=1) if parts else torch.zeros(len(model.heads), 0, model.n_features)


def predict_together(model: TaskModel, inputs: Iterable[Input]) -> tuple[tuple[Answer, ...], Learnt]:
    """Predict inputs that help each other; one that cannot be read does not cost the others theirs.

    Inputs are read chunk by chunk; what is kept of all are features.
    """
    waiting, names, errors, parts = iter(inputs), list[str](), list[str](), list[Tensor]()
    while chunk := tuple(islice(waiting, model.n_at_once)):
        read = [read_input(model, each) for each in chunk]
        names += [each.name for each in chunk]
        errors += [error for _, error in read]
        parts.append(features_of(model, [value for value, error in read if not error]))
        if len(names) > MAX_QUERIES:
            raise InvalidSettings(f"more than {MAX_QUERIES} inputs are too many to help each other: predict in parts")
    queries = torch.cat(parts, dim=1) if parts else torch.zeros(len(model.heads), 0, model.n_features)
    learnt = learn(model, queries)
    found = iter(Predictions.of(learnt.model.logits_of(list(queries)), learnt.model.head))
    answers = (
        Answer.of(name, None if error else next(found), error) for name, error in zip(names, errors, strict=True)
    )
    return tuple(answers), learnt
