"""The average of the sources' predictions for a task, for a router to learn from: one pass of each, nothing is solved.

    p = softmax(sum_r v_r s_r),        v_r proportional to exp(-loss_r / (TEMPERATURE * error))

s_r are the scores of the queries by the prototypes of source r, and the loss and its error are those of evidence. The
average is better than any mixture of the sources' weights, and takes a pass of each source for every query; a router
that learns from it is to come near it with one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.compose.mixture import Mixture
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Objective, Queries
from smatter.route.encode import source_losses
from smatter.route.evidence import Evidence
from smatter.train.teacher import Teaching

TEMPERATURE = 3.0
"""In standard errors: predictions are averaged over more sources than weights are."""


@dataclass(frozen=True)
class EnsembleTeacher:
    """The sources that take part in a task as its teacher.

    Args:
        temperature: by how many standard errors a source may be worse before its weight falls by e.
    """

    temperature: float = TEMPERATURE

    def teach(
        self,
        live: LiveMixture,
        sources: Sequence[str],
        objective: Objective,
        queries: Queries,
        losses: Tensor | None = None,
    ) -> Teaching:
        """Average the predictions of some sources for the queries, whose labels are not used.

        Args:
            live: the network.
            sources: their names.
            objective: what the examples ask, which weighs the sources.
            queries: of the task.
            losses: of each example by each source, where they are known; (n_sources, n_examples).
        """
        if losses is None:
            losses = source_losses(live, objective, sources)
        weights = Evidence.of(sources, losses, self.temperature).weights
        scores = torch.zeros(len(queries.classes), queries.n_classes)
        for name, weight in zip(sources, weights, strict=True):
            if weight:  # one without any may give no number
                live.compose(Mixture.of({name: 1.0}))
                scores += weight * queries.logits(live.read(queries))
        return Teaching(torch.tensor(weights), scores.softmax(dim=1))
