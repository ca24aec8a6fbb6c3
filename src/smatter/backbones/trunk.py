"""Networks that share their first weights, as one: a batch passes through the shared part once, then through each tail.

A model's own code runs for every member, so nothing here depends on the family. Parts of it whose tensors no member
changes answer from memory when they are given what they were given before, and compute when they are not. So features
are those of whole networks to the bit, even where a model uses a shared part after a changed one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from smatter.backbones.network import Inputs, Network, chunks, names_in_memory
from smatter.backbones.replay import Memory
from smatter.errors import IncompatibleSource, InvalidSettings, UnknownModule
from smatter.records import Partition


def tail_tensors(
    network: Network, tensors: Mapping[str, Tensor], partition: Partition, tail: Collection[str]
) -> dict[str, Tensor]:
    """The part of a network's tensors in which a member differs from others, as `Members` takes it.

    Args:
        network: live.
        tensors: the member's, by name on disk; others than those of the tail are not looked at. They are not copied
            unless the network has another dtype, so they must keep their values.
        partition: the network's modules.
        tail: modules from the branch on: see `tail_modules`.

    Returns:
        By name in memory; without tensors that the backbone does not use.
    """
    names = [disk for members in partition.modules.values() for disk in members]
    memory, own = names_in_memory(network.model, names).memory, network.model.state_dict()
    return {
        memory[disk]: tensors[disk].to(own[memory[disk]].dtype)
        for module in tail
        for disk in partition.modules[module]
        if disk in memory
    }


class Members:
    """Several networks that differ in some tensors, in the memory of one network and of these tensors.

    A pass changes the network, which is as before in the end, whatever is raised: no other thread may use it meanwhile,
    nor this object. Weights that are written to in place, as `Resident.compose` does, count from the next batch on.

    Args:
        network: live, in evaluation mode.
        tails: the tensors in which each member differs from the network, by name in memory: see `tail_tensors`. An
            empty mapping is the network as it is.
    """

    def __init__(self, network: Network, tails: Sequence[Mapping[str, Tensor]]) -> None:
        self.network, self.tails = network, tuple(tails)
        self._own = _named_tensors(network.model)
        _check(network.model, self._own, self.tails)
        self._trunk = Trunk(network.model, set().union(*self.tails))

    def __len__(self) -> int:
        return len(self.tails)

    def features(self, inputs: Inputs) -> Tensor:
        """Features that each member gives to all rows, (n_members, n, d), without gradient.

        Memory is bounded: the trunk's activations are kept for one chunk of rows at a time.
        """
        # Not in torch's inference mode, where tensors do not count how often they were written to.
        with torch.inference_mode(False), torch.no_grad(), _without_cache(self.network.model):
            return torch.cat([self._pass_through(part) for part in chunks(inputs)], dim=1)

    def _pass_through(self, inputs: Inputs) -> Tensor:
        features = []
        with self._trunk.shared():
            for tail in self.tails:
                with _exchanged(self._own, tail):
                    features.append(self.network.features(inputs))
        return torch.stack(features)


class Trunk:
    """The parts of a network whose tensors all members have in common.

    Args:
        model: live.
        changed: names in its `state_dict` of the tensors in which members differ. What is tied to one of them differs
            too.
    """

    def __init__(self, model: nn.Module, changed: Collection[str]) -> None:
        own = _named_tensors(model)
        differing = {id(own[name]) for name in changed}
        self._branching = [
            part
            for part in model.modules()
            if any(id(each) in differing for each in chain(part.parameters(False), part.buffers(False)))
        ]
        apart = set(self._branching)
        self._common = {
            part
            for part in model.modules()
            if apart.isdisjoint(part.modules()) and next(part.parameters(), None) is not None
        }

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While this lasts, passes of one batch compute the trunk once, outside of torch's inference mode.

        The first pass is remembered up to the first part with a changed tensor.
        """
        memory = Memory()
        with ExitStack() as stack:
            for part in self._common:
                stack.enter_context(_replaced(part, partial(memory.common, part, part.forward)))
            for part in self._branching:
                has_common = not self._common.isdisjoint(part.modules())
                stack.enter_context(_replaced(part, partial(memory.branching, has_common, part.forward)))
            yield


def _named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by all of their names."""
    return dict(chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)))


def _check(model: nn.Module, own: Mapping[str, Tensor], tails: Sequence[Mapping[str, Tensor]]) -> None:
    if not tails:
        raise InvalidSettings("a set of networks needs at least one member: give {} for the network as it is")
    for name, tensor in chain.from_iterable(tail.items() for tail in tails):
        if name not in own:
            raise UnknownModule(f"{type(model).__name__} has no tensor {name[:100]!r}: give names in memory")
        if (tensor.shape, tensor.dtype) != (own[name].shape, own[name].dtype):
            raise IncompatibleSource(
                f"{name!r} of a member is {tensor.dtype} {list(tensor.shape)} but {type(model).__name__} has "
                f"{own[name].dtype} {list(own[name].shape)}: members must be of the network's own architecture"
            )


@contextmanager
def _exchanged(own: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> Iterator[None]:
    """Some tensors of a network have other data meanwhile."""
    before = {name: own[name].data for name in others}
    try:
        for name, tensor in others.items():
            own[name].data = tensor
        yield
    finally:
        for name, tensor in before.items():
            own[name].data = tensor


@contextmanager
def _replaced(part: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """A part computes something else meanwhile; one that did so already does as it did afterwards."""
    before = vars(part).get("forward")
    part.forward = forward
    try:
        yield
    finally:
        if before is None:
            del part.forward
        else:
            part.forward = before


@contextmanager
def _without_cache(model: nn.Module) -> Iterator[None]:
    """A decoder keeps no keys and values meanwhile: features need none, and a part that writes some is not shared."""
    config: Any = getattr(model, "config", None)
    is_used = getattr(config, "use_cache", False)
    try:
        if is_used:
            config.use_cache = False
        yield
    finally:
        if is_used:
            config.use_cache = is_used
