"""Evidence: how well each frozen source explains the examples, how far to believe that, and what weights follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.algebra.luck import difference_error
from smatter.algebra.simplex import truncate_alike
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSupport
from smatter.live.mixture import LiveMixture
from smatter.live.objectives import Objective
from smatter.records import Progress, silent
from smatter.route.encode import Encoded, Routing, hear
from smatter.settings import check_temperature

TEMPERATURE = 1.0
CROWD = 4
"""Sources that the default temperature is meant for."""

POOLED_TEMPERATURE = 3.0
"""Standard errors by which a source may be worse before its predictions count less by e. Averaged predictions forgive
a poor member more than averaged weights do; chosen on validation tasks of Signs."""

PRIOR_POWER = 0.5
"""Of a router's weights beside the evidence, in prediction space; likewise."""

NEGLIGIBLE = 1e-4
"""Smaller weights become zero, so that a source which hardly matters need not be there to rebuild the model."""


@dataclass(frozen=True)
class Evidence:
    """The leave-one-out loss of each source and what follows from it.

    Args:
        sources: names of the sources.
        losses: leave-one-out loss of each frozen source on the support set.
        weights: softmax of minus the losses, in units of temperature times error; zero where negligible.
        error: standard error of the difference to the best source, the median over the others: what luck can do.
        temperature: how many of these a source may be worse before its weight falls by e.
        accuracies: share of the examples that prototypes of each source name rightly, without having seen them; None
            where no class has one to spare, and empty where that was not looked at.
    """

    sources: tuple[str, ...]
    losses: tuple[float, ...]
    weights: tuple[float, ...]
    error: float
    temperature: float
    accuracies: tuple[float | None, ...] = ()

    @classmethod
    def of(
        cls,
        sources: Sequence[str],
        losses: Tensor,
        temperature: float | None = None,
        accuracies: tuple[float | None, ...] = (),
    ) -> Evidence:
        """Route by given losses.

        Args:
            sources: names of the sources.
            losses: of each example by each source, (n_sources, n_examples).
            temperature: `default_temperature` by default.
            accuracies: of the sources on held-out examples, where they are known.

        >>> Evidence.of(("near", "far"), torch.tensor([[0.1, 0.2, 0.1], [2.0, 1.9, 2.2]])).weights
        (1.0, 0.0)
        """
        if temperature is None:
            temperature = default_temperature(len(sources))
        else:
            check_temperature(temperature)
        means = losses.double().mean(dim=1)
        usable = means.nan_to_num(nan=torch.inf, posinf=torch.inf)
        if not bool(torch.isfinite(usable).any()):
            raise InvalidSupport("no source gives a finite loss on these examples: check the inputs and the sources")
        error = float(difference_error(losses.double()))
        weights = torch.softmax(-usable / (temperature * error), dim=0)
        weights = torch.where(weights < NEGLIGIBLE, 0.0, weights)
        weights = weights / weights.sum()
        return cls(
            tuple(sources),
            tuple(means.tolist()),
            tuple(weights.tolist()),
            error=error,
            temperature=temperature,
            accuracies=accuracies,
        )

    @property
    def best(self) -> str:
        """The source of least loss."""
        return self.ranked[0]

    @property
    def ranked(self) -> tuple[str, ...]:
        """The sources from best to worst: by loss, then by name."""
        keys = {
            name: (math.inf if math.isnan(loss) else loss, name)
            for name, loss in zip(self.sources, self.losses, strict=True)
        }
        return tuple(sorted(self.sources, key=keys.__getitem__))

    @property
    def mixture(self) -> Mixture:
        """The routing as a mixture of the sources that matter."""
        return Mixture.of({name: weight for name, weight in zip(self.sources, self.weights, strict=True) if weight})


def gather_evidence(
    live: LiveMixture, objective: Objective, temperature: float | None = None, progress: Progress = silent
) -> Evidence:
    """One forward pass of each source of the library.

    Args:
        live: the network.
        objective: what the task asks of it.
        temperature: lower trusts the evidence more; towards zero the best source takes all. By default
            `default_temperature`.
        progress: told the share of the sources that is done.
    """
    names = live.library.names
    heard = hear(live, objective, names, progress)
    assert heard.losses is not None
    return Evidence.of(names, heard.losses, temperature, heard.accuracies)


@dataclass(frozen=True)
class ByEvidence:
    """Weighs the sources of a task by evidence alone, as a router would.

    Args:
        sources: their names.
        temperature: in standard errors; `default_temperature` by default.
        max_sources: the most sources with weight; all by default.
    """

    sources: tuple[str, ...]
    temperature: float | None = None
    max_sources: int | None = None

    def __call__(self, encoded: Encoded) -> Routing:
        """Route a task by its losses."""
        assert encoded.losses is not None
        evidence = Evidence.of(self.sources, encoded.losses, self.temperature)
        weights = truncate_alike(torch.tensor([evidence.weights], dtype=torch.float64), self.max_sources)
        return Routing(
            weights,
            weights.log(),
            torch.zeros(0),
            expert_scores=torch.zeros(1),
            attention=torch.zeros(0),
            trust=torch.ones(()),
        )


def pooled_weights(
    losses: Tensor, temperature: float | None = None, prior: Tensor | None = None, power: float | None = None
) -> Tensor:
    """Weights of the sources, (n_sources,), in proportion to prior^power exp(-loss / T error).

    Args:
        losses: of each example by each source, (n_sources, n_examples); a source that gives no number has no weight.
        temperature: T, in standard errors; POOLED_TEMPERATURE by default, that of predictions.
        prior: weights by a router that was told nothing of the losses, (n_sources,); equal ones by default.
        power: of the prior; PRIOR_POWER by default, that of predictions.

    >>> pooled_weights(torch.tensor([[0.1, 0.2, 0.1], [0.3, 0.3, 0.2]]))
    tensor([0.7914, 0.2086], dtype=torch.float64)
    """
    means = losses.double().mean(dim=1).nan_to_num(nan=torch.inf, posinf=torch.inf)
    if not bool(means.isfinite().any()):
        raise InvalidSupport("no source gives a finite loss on these examples: check the inputs and the sources")
    logits = -means / ((temperature or POOLED_TEMPERATURE) * difference_error(losses.double()))
    if prior is not None:
        logits = logits + (PRIOR_POWER if power is None else power) * prior.double().log()
    return logits.softmax(dim=0)


def default_temperature(n_sources: int) -> float:
    """One standard error for up to four sources, less for more: a crowd must not outvote a good source.

    Beside one good source, R mediocre ones together weigh R exp(-difference / temperature); lowering the temperature
    like 1 / log R holds that sum down.

    >>> default_temperature(4), round(default_temperature(20), 4)
    (1.0, 0.3832)
    """
    return TEMPERATURE / (1 + math.log(max(n_sources, CROWD) / CROWD))
