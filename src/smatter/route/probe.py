"""A small fixed set of examples by which sources are described: some classes of every domain that they learnt from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smatter.errors import InvalidSuite
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import Shift
from smatter.tasks.splits import Split
from smatter.tasks.suite import Inputs, Suite

N_CLASSES, N_EXAMPLES = 5, 6
"""Of each group."""


@dataclass(frozen=True)
class Probe:
    """Labelled examples in groups.

    Args:
        inputs: pictures of one size, or texts.
        classes: class of each, (n,), numbered from zero over all groups.
        groups: group of each, (n,), numbered from zero.
        names: of the groups.
    """

    inputs: Inputs
    classes: Tensor
    groups: Tensor
    names: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Tells probe sets apart: of examples, labels and names."""
        inputs = self.inputs if isinstance(self.inputs, tuple) else self.inputs.tobytes()
        parts = [inputs, self.classes.tolist(), self.groups.tolist(), self.names]
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def members(self, group: int) -> tuple[Tensor, Tensor]:
        """Rows of a group, and their classes numbered from zero."""
        rows = (self.groups == group).nonzero().flatten()
        return rows, torch.unique(self.classes[rows], return_inverse=True)[1]


def draw_probe(suite: Suite, shifts: Sequence[Shift] = (), split: Split = "router") -> Probe:
    """A group of classes of each domain that sources learnt from, which no source has seen.

    Args:
        suite: where from.
        shifts: what is done to the examples, as it is done to tasks.
        split: whose classes.
    """
    groups, names = [], []
    for domain in suite.domains:
        if domain.role == "id" and len(suite.classes(domain, split)) >= 2:
            n_way = min(N_CLASSES, len(suite.classes(domain, split)))
            settings = SamplerSettings(
                split, "id", (n_way, n_way), (N_EXAMPLES, N_EXAMPLES), n_query=1, domains=(domain.name,)
            )
            groups.append(TaskList("probe", Sampler(suite, settings), 1, tuple(shifts)).episode(0).support)
            names.append(domain.name)
    if len(groups) < 2:
        raise InvalidSuite(f"suite {suite.name!r} has {len(groups)} domains with classes to probe by: 2 are needed")
    offsets = np.cumsum([0, *(int(group.labels.max()) + 1 for group in groups)])
    classes = np.concatenate([group.labels + offset for group, offset in zip(groups, offsets, strict=False)])
    numbers = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    first = groups[0].inputs
    if isinstance(first, tuple):
        inputs: Inputs = tuple(text for group in groups for text in group.inputs)
    else:
        inputs = np.concatenate([np.asarray(group.inputs) for group in groups])
    return Probe(inputs, torch.from_numpy(classes), torch.from_numpy(numbers), tuple(names))
