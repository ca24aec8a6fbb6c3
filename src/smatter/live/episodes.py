"""Episodes of a suite as a live network takes them."""

from __future__ import annotations

import numpy as np
import torch

from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Queries
from smatter.tasks.episode import Episode
from smatter.tasks.support import Support


def prepared_support(live: LiveMixture, episode: Episode) -> Support:
    """The support set, with pictures prepared."""
    inputs = episode.support.inputs
    given = inputs if isinstance(inputs, tuple) else live.pictures(inputs)
    return Support.of(given, episode.support.labels.tolist())


def episode_queries(live: LiveMixture, episode: Episode) -> Queries:
    """Support set and queries as the network takes them; the queries' labels are the truth."""
    support, query = episode.support.inputs, episode.query.inputs
    labels = torch.from_numpy(np.concatenate([episode.support.labels, episode.query.truth]))
    values = (*support, *query) if isinstance(support, tuple) else np.concatenate([support, np.asarray(query)])
    return Queries(live.examples(values), labels, len(episode.support), episode.n_way)
