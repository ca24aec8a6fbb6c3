"""What a source is good at, from its features of a small fixed probe set: no training data, no labels of tasks.

The probe set is some groups of classes, usually one from each domain. For every group the descriptor holds how far
apart the source's features of different classes are, and of the same class: second moments of unit features. A task is
compared with the groups in the base's feature space, so a source that was added later is judged like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

N_MOMENTS = 3
SMALLEST = 1e-6


@dataclass(frozen=True)
class ProbeLabels:
    """Which class and which group each picture or text of the probe set is of.

    Args:
        classes: (n,), numbered from zero over all groups.
        groups: (n,), numbered from zero.
    """

    classes: Tensor
    groups: Tensor

    @property
    def n_groups(self) -> int:
        """How many groups there are."""
        return int(self.groups.max()) + 1

    def members(self, group: int) -> tuple[Tensor, Tensor]:
        """Rows of a group, and their classes numbered from zero."""
        rows = (self.groups == group).nonzero().flatten()
        return rows, torch.unique(self.classes[rows], return_inverse=True)[1]


def describe(features: Tensor, labels: ProbeLabels) -> Tensor:
    """The descriptor of a source, (n_groups, N_MOMENTS): logarithms of scatter between, within, and of their ratio.

    Args:
        features: of the probe set by the source, (n, d).
        labels: of the probe set.
    """
    unit = normalize(features.double(), dim=1)
    rows = []
    for group in range(labels.n_groups):
        members, classes = labels.members(group)
        n_classes = int(classes.max()) + 1
        sizes = torch.bincount(classes, minlength=n_classes).double()[:, None]
        means = unit.new_zeros(n_classes, unit.shape[1]).index_add(0, classes, unit[members]) / sizes
        within = (unit[members] - means[classes]).square().sum(dim=1).mean().clamp(min=SMALLEST).log()
        between = (means - means.mean(dim=0)).square().sum(dim=1).mean().clamp(min=SMALLEST).log()
        rows.append(torch.stack([between, within, between - within]))
    return torch.stack(rows)
