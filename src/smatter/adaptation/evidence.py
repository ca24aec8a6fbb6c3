"""Evidence routing: weight the sources by how well each, frozen, explains the support set. No training, no gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings, InvalidSupport
from smatter.live.mixture import LiveMixture, Rows
from smatter.records import Progress, silent
from smatter.route.evidence import difference_error

TEMPERATURE = 1.0
CROWD = 4
"""Sources that the default temperature is meant for."""

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
    """

    sources: tuple[str, ...]
    losses: tuple[float, ...]
    weights: tuple[float, ...]
    error: float
    temperature: float

    @classmethod
    def of(cls, sources: Sequence[str], losses: Tensor, temperature: float | None = None) -> Evidence:
        """Route by given losses.

        Args:
            sources: names of the sources.
            losses: of each example by each source, (n_sources, n_examples).
            temperature: `default_temperature` by default.

        >>> Evidence.of(("near", "far"), torch.tensor([[0.1, 0.2, 0.1], [2.0, 1.9, 2.2]])).weights
        (1.0, 0.0)
        """
        temperature = default_temperature(len(sources)) if temperature is None else temperature
        check_temperature(temperature)
        means = losses.double().mean(dim=1)
        usable = means.nan_to_num(nan=torch.inf, posinf=torch.inf)
        if not bool(torch.isfinite(usable).any()):
            raise InvalidSupport("no source gives a finite loss on these examples: check the inputs and the sources")
        error = float(difference_error(losses.double()))
        weights = torch.softmax(-usable / (temperature * error), dim=0)
        weights = torch.where(weights < NEGLIGIBLE, 0.0, weights)
        weights = weights / weights.sum()
        return cls(tuple(sources), tuple(means.tolist()), tuple(weights.tolist()), error, temperature)

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
    live: LiveMixture,
    rows: Rows,
    temperature: float | None = None,
    progress: Progress = silent,
) -> Evidence:
    """One forward pass for each source of the library.

    Args:
        live: the network.
        rows: the support set.
        temperature: lower trusts the evidence more; towards zero the best source takes all. By default
            `default_temperature`.
        progress: told each source.
    """
    check_temperature(temperature)
    names = live.library.names
    return Evidence.of(names, source_losses(live, rows, names, progress), temperature)


def source_losses(live: LiveMixture, rows: Rows, sources: Sequence[str], progress: Progress = silent) -> Tensor:
    """The leave-one-out loss of each example by each of some frozen sources, (n_sources, n_examples)."""
    losses = []
    for name in sources:
        live.compose(Mixture.of({name: 1.0}))
        losses.append(rows.losses(live.features(rows.inputs)))
        progress(1)
    return torch.stack(losses).double()


def default_temperature(n_sources: int) -> float:
    """One standard error for up to four sources, less for more: a crowd must not outvote a good source.

    Beside one good source, R mediocre ones together weigh R exp(-difference / temperature); lowering the temperature
    like 1 / log R holds that sum down.

    >>> default_temperature(4), round(default_temperature(20), 4)
    (1.0, 0.3832)
    """
    return TEMPERATURE / (1 + math.log(max(n_sources, CROWD) / CROWD))


def check_temperature(temperature: float | None) -> None:
    """Refuse what is no temperature; None is the default one."""
    if temperature is not None and not 0 < temperature < math.inf:  # also rejects NaN
        raise InvalidSettings(f"temperature {temperature} is not a positive number: 1 is a good start")
