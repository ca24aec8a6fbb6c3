"""Evidence routing: weight the sources by how well each, frozen, explains the support set. No training, no gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from smatter.adaptation.live import LiveMixture, Rows
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings, InvalidSupport

TEMPERATURE = 0.2
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
        weights: softmax of minus the losses over the temperature; zero where negligible.
        temperature: of the softmax.
    """

    sources: tuple[str, ...]
    losses: tuple[float, ...]
    weights: tuple[float, ...]
    temperature: float

    @classmethod
    def of(
        cls,
        sources: tuple[str, ...],
        losses: tuple[float, ...],
        temperature: float | None = None,
    ) -> Evidence:
        """Route by given losses; the temperature is `default_temperature` by default.

        >>> Evidence.of(("near", "far"), (0.1, 2.0)).weights
        (1.0, 0.0)
        """
        temperature = default_temperature(len(sources)) if temperature is None else temperature
        check_temperature(temperature)
        usable = torch.tensor(losses, dtype=torch.float64).nan_to_num(nan=torch.inf, posinf=torch.inf)
        if not bool(torch.isfinite(usable).any()):
            raise InvalidSupport("no source gives a finite loss on these examples: check the inputs and the sources")
        weights = torch.softmax(-usable / temperature, dim=0)
        weights = torch.where(weights < NEGLIGIBLE, 0.0, weights)
        return cls(sources, losses, tuple((weights / weights.sum()).tolist()), temperature)

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
    progress: Callable[[int], None] | None = None,
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


def source_losses(
    live: LiveMixture, rows: Rows, sources: Sequence[str], progress: Callable[[int], None] | None = None
) -> tuple[float, ...]:
    """The leave-one-out loss of each of some frozen sources."""
    losses = []
    for name in sources:
        live.compose(Mixture.of({name: 1.0}))
        losses.append(live.loss(rows))
        if progress:
            progress(1)
    return tuple(losses)


def default_temperature(n_sources: int) -> float:
    """0.2 for up to four sources, lower for more: a crowd of mediocre sources must not outvote a good one.

    Beside one good source, R mediocre ones together weigh R exp(-difference / temperature); lowering the temperature
    like 1 / log R holds that sum down.

    >>> default_temperature(4), round(default_temperature(20), 4)
    (0.2, 0.0766)
    """
    return TEMPERATURE / (1 + math.log(max(n_sources, CROWD) / CROWD))


def check_temperature(temperature: float | None) -> None:
    """Refuse what is no temperature; None is the default one."""
    if temperature is not None and not 0 < temperature < math.inf:  # also rejects NaN
        raise InvalidSettings(f"temperature {temperature} is not a positive number: 0.2 is a good start")
