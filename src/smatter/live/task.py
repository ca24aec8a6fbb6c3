"""A task as methods see it: its examples in the one order that their contents give, and what they ask of a network.

Sums of floating-point numbers depend on their order, and so do the random views of single examples. Whoever works on
this order instead of the one given finds the same weights for the same examples, to the bit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from smatter.backbones.network import Inputs
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import LeaveOneOut, Objective
from smatter.live.views import N_VIEWS, image_views, text_views, token_views
from smatter.tasks.given import check_inputs, gather, several
from smatter.tasks.support import Support

ONE_SHOT = "one example per class: none can be held out, so sources are judged by altered views of each"


@dataclass(frozen=True)
class Task:
    """What a method is given of a task.

    Args:
        objective: what the examples ask of a network.
        digest: of the examples' contents; neither their order nor names of classes matter.
        class_names: names of the classes, as the objective numbers them; empty where it has none.
        notes: what a person should know of any fit to it.
        queries: inputs without labels, prepared, for methods that look at them; none by default.
        queries_digest: of their contents, whatever their order; empty without any.
    """

    objective: Objective
    digest: str
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    queries: Inputs | None = None
    queries_digest: str = ""

    @classmethod
    def of(cls, live: LiveMixture, support: Support) -> Task:
        """The task of a support set, examples ordered by digest and classes by their first example.

        Pictures are decoded and prepared here, once.
        """
        support = support.for_network(live.network.takes_images)
        inputs = support.inputs
        if isinstance(inputs, Tensor):
            inputs = inputs.detach().cpu()
            inputs = inputs.float() if support.kind == "images" else inputs.long()
        elif support.kind == "images":
            inputs = live.prepare(inputs, "images")["pixel_values"]
        digests = [hashlib.sha256(_contents(row)).hexdigest() for row in inputs]
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
        digest = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
        is_one_shot = len(ordered) == len(ordered.class_names)
        return cls(leave_one_out(live, ordered), digest, ordered.class_names, (ONE_SHOT,) if is_one_shot else ())

    def with_queries(self, live: LiveMixture, given: Any) -> Task:
        """The task with inputs without labels beside it.

        Args:
            live: the network that is to see them.
            given: at least one, as `predict` takes them.
        """
        values, kind = gather(several(given), live.network.takes_images)
        check_inputs(values, kind)
        inputs = live.prepare(values, kind)
        rows = zip(*(inputs[name] for name in sorted(inputs)), strict=True)
        digests = sorted(hashlib.sha256(b"".join(each.numpy().tobytes() for each in row)).hexdigest() for row in rows)
        return replace(self, queries=inputs, queries_digest=hashlib.sha256("".join(digests).encode()).hexdigest())

    @property
    def can_hold_out(self) -> bool:
        """Whether some class has an example to spare, so that a fit can be judged by what it has not seen."""
        return int(torch.bincount(self.objective.classes).max()) > 1


def _contents(row: Tensor | str) -> Any:
    """What is hashed of a text, or of a prepared row, which is not copied."""
    return row.encode() if isinstance(row, str) else row.contiguous().numpy()


def leave_one_out(
    live: LiveMixture, support: Support, generator: torch.Generator | None = None, n_views: int = N_VIEWS
) -> LeaveOneOut:
    """The objective of a support set; the only example of a class becomes several views.

    Args:
        live: the network.
        support: the examples.
        generator: source of randomness of the views; a fixed one by default.
        n_views: rows of an example that is alone in its class.
    """
    n_classes = len(support.class_names)
    all_labels = torch.tensor(support.labels)
    is_alone = torch.bincount(all_labels)[all_labels] == 1
    common, alone = (~is_alone).nonzero().flatten(), is_alone.nonzero().flatten()
    examples = torch.cat([common, alone.repeat_interleave(n_views)])
    labels = all_labels[examples]
    if len(alone) and not isinstance(support.inputs, Tensor) and support.kind == "texts":
        lonely = [support.inputs[index] for index in alone.tolist()]
        texts = [support.inputs[index] for index in common.tolist()] + text_views(lonely, n_views, generator)
        return LeaveOneOut(live.prepare(texts, "texts"), labels, examples, n_classes)
    inputs = live.prepare(support.inputs, support.kind)
    if len(alone):
        single = {name: tensor[alone] for name, tensor in inputs.items()}
        if support.kind == "images":
            views: Inputs = {"pixel_values": image_views(single["pixel_values"], n_views, generator).flatten(0, 1)}
        else:
            views = token_views(single, n_views, generator)
        inputs = {name: torch.cat([tensor[common], views[name]]) for name, tensor in inputs.items()}
    return LeaveOneOut(inputs, labels, examples, n_classes)
