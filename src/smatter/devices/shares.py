"""What each module takes of a forward pass, by a profile."""

from __future__ import annotations

from smatter.devices.profile import Profile
from smatter.errors import InvalidProfile
from smatter.records import Partition
from smatter.units.numbering import REST


def profiled_shares(profile: Profile, partition: Partition) -> dict[str, float]:
    """Share of each module in the cost of all, each at full activity; they sum to 1, in the partition's order.

    A profile measures what deltas add to the base, not the base's own modules. A delta of a whole module passes through
    operators of the same shapes, so the proportions between modules are taken for those of a pass; what no delta has,
    such as activations and the products of attention, is left out. Modules that the profile does not name cost nothing.

    Args:
        profile: of groups with the rests of their modules, or of rank components, whose operators are summed.
        partition: modules of the profiled network.
    """
    totals = dict.fromkeys(partition.modules, 0.0)
    owners = {tensor: module for module, tensors in partition.modules.items() for tensor in tensors}
    for name, numbers in profile.costs.items():
        module = owners.get(name, name.removesuffix(REST))
        if module not in totals:
            raise InvalidProfile(f"the library has no module {module[:100]!r}: profile this network")
        totals[module] += sum(numbers)
    whole = sum(totals.values())
    if not whole > 0:
        raise InvalidProfile("all modules of the profile are free, so they have no shares: measure one that is not")
    return {module: total / whole for module, total in totals.items()}
