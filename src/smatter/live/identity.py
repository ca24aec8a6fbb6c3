"""What makes two support sets the same task: their contents, whatever the order of examples and classes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.live.mixture import LiveMixture
from smatter.tasks.support import Support


@dataclass(frozen=True)
class Task:
    """A support set in the one order that its contents give.

    Sums of floating-point numbers depend on their order, and so do the random views of single examples. Whoever works
    on this order instead of the one given finds the same weights for the same examples, to the bit.

    Args:
        support: examples ordered by digest, classes by their first example; pictures are prepared.
        digest: of the contents; names of classes do not matter.
    """

    support: Support
    digest: str

    @classmethod
    def of(cls, live: LiveMixture, support: Support) -> Task:
        """Order a support set."""
        inputs = support.inputs
        if isinstance(inputs, Tensor):
            inputs = inputs.detach().cpu()
            inputs = inputs.float() if support.kind == "images" else inputs.long()
        elif support.kind == "images":
            inputs = live.prepare(inputs, "images")["pixel_values"]
        rows = inputs if not isinstance(inputs, Tensor) else [row.numpy().tobytes() for row in inputs]
        digests = [hashlib.sha256(row if isinstance(row, bytes) else row.encode()).hexdigest() for row in rows]
        members: dict[int, list[str]] = {}
        for digest, label in zip(digests, support.labels, strict=True):
            members.setdefault(label, []).append(digest)
        ranked = sorted(members, key=lambda label: sorted(members[label]))
        rank = {label: number for number, label in enumerate(ranked)}
        labels = [rank[label] for label in support.labels]
        order = sorted(range(len(labels)), key=lambda index: (digests[index], labels[index]))
        ordered = Support(
            inputs[torch.tensor(order)] if isinstance(inputs, Tensor) else tuple(inputs[index] for index in order),
            tuple(labels[index] for index in order),
            tuple(support.class_names[label] for label in ranked),
            support.kind,
        )
        shape = list(inputs.shape[1:]) if isinstance(inputs, Tensor) else []
        contents = [support.kind, shape, [[digests[index], labels[index]] for index in order]]
        return cls(ordered, hashlib.sha256(json.dumps(contents).encode()).hexdigest())
