"""Describe the sources of a library by what their features make of a probe set."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.records import Progress, silent
from smatter.route.descriptor import describe
from smatter.route.probe import Probe
from smatter.route.summary import ClassStatistics


def describe_sources(live: LiveMixture, probe: Probe, sources: Sequence[str], progress: Progress = silent) -> Tensor:
    """The descriptor of each source, (n_sources, n_groups, n_moments): one pass of the probe set through each."""
    inputs = live.examples(probe.inputs)
    found = []
    for name in sources:
        live.compose(Mixture.of({name: 1.0}))
        found.append(describe(live.features(inputs), probe.labels))
        progress(1)
    return torch.stack(found)


def probe_statistics(live: LiveMixture, probe: Probe) -> list[ClassStatistics]:
    """Class statistics of each group of the probe set in the base's features."""
    live.compose(Mixture.of({live.library.manifest.base: 1.0}))
    features = live.features(live.examples(probe.inputs))
    groups = (probe.labels.members(group) for group in range(probe.labels.n_groups))
    return [ClassStatistics.of(features[rows], classes, int(classes.max()) + 1) for rows, classes in groups]
