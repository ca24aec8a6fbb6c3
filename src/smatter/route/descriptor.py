"""What a source is good at, from its features of a small fixed probe set: no training data, no labels of tasks.

The probe set is some groups of classes, usually one from each domain. For every group the descriptor holds how far
apart the source's features of different classes are, and of the same class: second moments of unit features. A task is
compared with the groups in the base's feature space, so a source that was added later is judged like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize

from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.records import Progress, silent
from smatter.route.encode import ClassStatistics
from smatter.route.probe import Probe

N_MOMENTS = 3
SMALLEST = 1e-6


def describe(features: Tensor, probe: Probe) -> Tensor:
    """The descriptor of a source, (n_groups, N_MOMENTS): logarithms of scatter between, within, and of their ratio.

    Args:
        features: of the probe set by the source, (n, d).
        probe: whose features they are.
    """
    unit = normalize(features.double(), dim=1)
    rows = []
    for group in range(len(probe.names)):
        members, classes = probe.members(group)
        n_classes = int(classes.max()) + 1
        sizes = torch.bincount(classes, minlength=n_classes).double()[:, None]
        means = unit.new_zeros(n_classes, unit.shape[1]).index_add(0, classes, unit[members]) / sizes
        within = (unit[members] - means[classes]).square().sum(dim=1).mean().clamp(min=SMALLEST).log()
        between = (means - means.mean(dim=0)).square().sum(dim=1).mean().clamp(min=SMALLEST).log()
        rows.append(torch.stack([between, within, between - within]))
    return torch.stack(rows)


def describe_sources(live: LiveMixture, probe: Probe, sources: Sequence[str], progress: Progress = silent) -> Tensor:
    """The descriptor of each source, (n_sources, n_groups, n_moments): one pass of the probe set through each."""
    inputs = live.examples(probe.inputs)
    found = []
    for name in sources:
        live.compose(Mixture.of({name: 1.0}))
        found.append(describe(live.features(inputs), probe))
        progress(1)
    return torch.stack(found)


def probe_statistics(live: LiveMixture, probe: Probe) -> list[ClassStatistics]:
    """Class statistics of each group of the probe set in the base's features."""
    live.compose(Mixture.of({live.library.manifest.base: 1.0}))
    features = live.features(live.examples(probe.inputs))
    groups = (probe.members(group) for group in range(len(probe.names)))
    return [ClassStatistics.of(features[rows], classes, int(classes.max()) + 1) for rows, classes in groups]
