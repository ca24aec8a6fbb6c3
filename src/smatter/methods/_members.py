"""From weights of the sources to networks whose predictions are averaged: who is a member, and what each counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smatter.backbones.branch import tail_modules
from smatter.compose.members import Member, branched
from smatter.compose.mixture import Mixture
from smatter.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        tail_modules(live.shares, settings.branch)


def as_members(
    live: LiveMixture, settings: MixSettings, weights: Tensor, mixed: Mixture | None = None
) -> tuple[Mixture, tuple[Member, ...]]:
    """The task's own network and its members.

    Args:
        live: the library's network.
        settings: what is averaged, in how many passes.
        weights: of the sources' predictions, (n_sources,).
        mixed: weights of the mixed network; not needed for predictions without a branch.
    """
    names = live.library.names
    tail = () if settings.branch is None else tail_modules(live.shares, settings.branch)
    n_networks = _n_networks(live, settings, tail)
    n_sources = min(len(names), n_networks - 1 if settings.mix == "both" else n_networks)
    if settings.mix == "weights" or n_sources < 1:
        assert mixed is not None
        return mixed, ()
    kept = sorted(range(len(names)), key=lambda number: (-float(weights[number]), names[number]))[:n_sources]
    kept = [number for number in kept if float(weights[number]) >= FAINT] or kept[:1]
    total = sum(float(weights[number]) for number in kept)
    shares = {names[number]: float(weights[number]) / total for number in kept}
    if settings.mix == "both":
        assert mixed is not None
        shares = {name: share * len(kept) / (len(kept) + 1) for name, share in shares.items()}
        return mixed, _members(shares, tail)
    first = next(iter(shares))
    del shares[first]
    own = Mixture.of({first: 1.0})
    if tail:
        assert mixed is not None
        own = branched(mixed, live.library.partition.modules, frozenset(tail), own)
    return own, _members(shares, tail)


def _members(shares: Mapping[str, float], tail: tuple[str, ...]) -> tuple[Member, ...]:
    return tuple(Member(share, Mixture.of({name: 1.0}), tail) for name, share in shares.items())


def _n_networks(live: LiveMixture, settings: MixSettings, tail: tuple[str, ...]) -> int:
    """How many networks fit the passes: the first takes one, each other as much as its tail."""
    if settings.passes is None:
        return len(live.library.names) + 1
    each = sum(live.shares[module] for module in tail) if tail else 1.0
    return 1 + int((settings.passes - 1) / each + 1e-9)
