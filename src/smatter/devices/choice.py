"""Which runtime is cheaper for a load, by a profile, and why.

    shared:  base(n) + sum over tasks t of x_t (p + (1 - p) n_t / m),  and packing those that are not in memory
    merged:  sum over tasks t of base(n_t),  and composing those that are not in memory

n_t rows of task t make a batch of n. x_t is what the task's deltas take with the m rows of the profile; of that a share
p falls to every task, however few its rows are, and the rest grows with them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from smatter.devices.profile import Composing, Profile
from smatter.devices.stacks import Stack
from smatter.errors import InvalidProfile, InvalidSettings
from smatter.units.numbering import REST


@dataclass(frozen=True)
class TaskLoad:
    """One task in a batch.

    Args:
        n_rows: its rows.
        active: active fraction of each module, in the shared runtime.
        is_packed: whether its deltas would be in memory already, in the shared runtime.
        is_merged: whether its network would be, in the merged one.
        n_sources: of its mixture.
    """

    n_rows: int
    active: Stack
    is_packed: bool = True
    is_merged: bool = True
    n_sources: int = 1

    def __post_init__(self) -> None:
        if self.n_rows < 1 or self.n_sources < 1:
            raise InvalidSettings("a task of a load needs at least one row and one source")


@dataclass(frozen=True)
class RuntimeChoice:
    """A runtime for a load.

    Args:
        runtime: the cheaper one.
        shared, merged: what a batch takes in each, in the profile's unit.
        reason: in words.
    """

    runtime: Literal["shared", "merged"]
    shared: float
    merged: float
    reason: str


def choose_runtime(profile: Profile, tasks: Sequence[TaskLoad]) -> RuntimeChoice:
    """The cheaper runtime for a batch of some tasks' rows."""
    if not tasks:
        raise InvalidSettings("a load needs at least one task")
    n_rows, share = sum(task.n_rows for task in tasks), profile.per_task
    deltas = 0.0
    for task in tasks:
        alone = float(profile.predict(task.active)[0]) - profile.base
        deltas += alone * (share + (1 - share) * task.n_rows / profile.fingerprint.batch)
    shared = {"base": profile.base_of(n_rows), "deltas": deltas}
    merged = {_several(len(tasks), "pass", "passes"): sum(profile.base_of(task.n_rows) for task in tasks)}
    if new := [task for task in tasks if not task.is_packed]:
        name = f"packing {_several(len(new), 'task', 'tasks')}"
        shared[name] = sum(_composing(profile).packing_cost(_corrected(profile, task)) for task in new)
    if new := [task for task in tasks if not task.is_merged]:
        costs, name = _composing(profile), f"composing {_several(len(new), 'network', 'networks')}"
        merged[name] = sum(
            costs.cost(dict.fromkeys(costs.module_bytes, task.n_sources), _corrected(profile, task)) for task in new
        )
    one, other = sum(shared.values()), sum(merged.values())
    words = [" + ".join(f"{name} {cost:.3g}" for name, cost in parts.items()) for parts in (shared, merged)]
    reason = f"shared: {words[0]} {profile.unit}; merged: {words[1]} {profile.unit}"
    return RuntimeChoice("shared" if one <= other else "merged", one, other, reason)


def _several(n: int, one: str, more: str) -> str:
    return f"{n} {one if n == 1 else more}"


def _corrected(profile: Profile, task: TaskLoad) -> Collection[str]:
    """Modules with anything active; all of them where units are rank components, which are active by operators."""
    if profile.fingerprint.rank is not None:
        return _composing(profile).module_bytes.keys() if task.active else ()
    return {name.removesuffix(REST) for name in task.active}


def _composing(profile: Profile) -> Composing:
    if profile.composing is None or profile.unit != "ms":
        raise InvalidProfile("the profile does not say what composing costs: measure one with `smatter profile`")
    return profile.composing
