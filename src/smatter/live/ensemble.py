"""The networks of a recipe in memory: its own, and its members. Those that share a trunk pass it once."""

from __future__ import annotations

import threading
from functools import cached_property

from torch import Tensor

from smatter.backbones.arithmetic import module_shares
from smatter.backbones.branch import passes_of
from smatter.backbones.network import Inputs
from smatter.backbones.trunk import Members, tail_tensors
from smatter.compose.recipe import Recipe
from smatter.live.mixture import Resident


class Ensemble:
    """Networks whose predictions are averaged; one, mostly. Safe to use from several threads.

    Args:
        resident: has the weights of the recipe's own network, and must keep them.
        recipe: the task.
    """

    def __init__(self, resident: Resident, recipe: Recipe) -> None:
        self.resident, self.recipe = resident, recipe
        self._tails = [frozenset(member.modules) for member in recipe.members if member.modules]
        self._places, self._others, tails = [], [], []
        self._lock = threading.Lock()
        library = resident.library
        for number, one in enumerate(library.networks(recipe)[1:]):
            other = Resident(library, resident.dtype, one)
            if modules := recipe.members[number].modules:  # its tail is kept, on the trunk of the task's own network
                own = tail_tensors(resident.network, other.arena.tensors(), library.partition, modules)
                tails.append({name: tensor.clone() for name, tensor in own.items()})
                self._places.append(number)
            else:
                self._others.append((number, other))
        self._branches = Members(resident.network, [{}, *tails]) if tails else None

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the networks' scores."""
        return self.recipe.network_weights

    def features(self, inputs: Inputs) -> list[Tensor]:
        """What each network makes of all rows, (n, d) each, in bounded memory."""
        found: dict[int, Tensor] = {number: other.features(inputs) for number, other in self._others}
        if self._branches is None:
            own = self.resident.features(inputs)
        else:
            with self._lock:  # while branches pass, the network has their weights
                own, *tails = self._branches.features(inputs)
            found |= zip(self._places, tails, strict=True)
        return [own, *(found[number] for number in range(len(found)))]

    @cached_property
    def n_passes(self) -> float:
        """Passes of each input, counted in multiply-accumulates of a whole network."""
        whole = 1.0 + len(self._others)
        if not self._tails:
            return whole
        library = self.resident.library
        with self._lock:
            shares = module_shares(self.resident.network, library.partition)
        return len(self._others) + passes_of(shares, [(), *self._tails])

    @property
    def n_bytes(self) -> int:
        """Memory of the weights."""
        n_bytes = self.resident.n_bytes + sum(other.n_bytes for _, other in self._others)
        if self._branches is not None:
            n_bytes += sum(
                each.numel() * each.element_size() for tail in self._branches.tails for each in tail.values()
            )
        return n_bytes
