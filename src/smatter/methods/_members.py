"""From weights of the sources to networks whose predictions are averaged: who is a member, and what each counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smatter.compose.members import Member, tail
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings

if TYPE_CHECKING:
    from torch import Tensor

    from smatter.live.mixture import LiveMixture
    from smatter.settings import MixSettings

FAINT = 0.02
"""Members of less weight are not worth a pass."""


def check_passes(live: LiveMixture, settings: MixSettings) -> None:
    """Refuse more passes than there can be networks, and branches at no module."""
    most = len(live.library.names) + (settings.mix == "both")
    if settings.mix != "weights" and (settings.passes or 1) > most:
        raise InvalidSettings(
            f"{settings.passes:g} passes are more than the {most} networks that can be averaged here: give --passes "
            f"{most}, or leave it out"
        )
    if settings.branch is not None:
        tail(live.library.partition.modules, settings.branch)


def as_members(
    live: LiveMixture, settings: MixSettings, weights: Tensor, mixed: Mixture
) -> tuple[Mixture, tuple[Member, ...]]:
    """The task's own network and its members.

    Args:
        live: the library's network.
        settings: what is averaged, in how many passes.
        weights: of the sources' predictions, (n_sources,).
        mixed: weights of the mixed network.
    """
    names = live.library.names
    n_networks = _n_networks(live, settings)
    n_sources = min(len(names), n_networks - 1 if settings.mix == "both" else n_networks)
    if settings.mix == "weights" or (settings.mix == "both" and not n_sources):
        return mixed, ()
    kept = sorted(range(len(names)), key=lambda number: (-float(weights[number]), names[number]))[:n_sources]
    kept = [number for number in kept if float(weights[number]) >= FAINT] or kept[:1]
    total = sum(float(weights[number]) for number in kept)
    shares = {names[number]: float(weights[number]) / total for number in kept}
    if settings.mix == "both":
        return mixed, tuple(
            _member(name, share * len(kept) / (len(kept) + 1), settings.branch) for name, share in shares.items()
        )
    (first, _), *others = shares.items()
    own = Mixture.of({first: 1.0})
    return own, tuple(_member(name, share, settings.branch) for name, share in others)


def _member(name: str, weight: float, branch: str | None) -> Member:
    return Member(weight, Mixture.of({name: 1.0}), branch)


def _n_networks(live: LiveMixture, settings: MixSettings) -> int:
    """How many networks fit the passes."""
    if settings.passes is None:
        return len(live.library.names) + 1
    return int(settings.passes)
