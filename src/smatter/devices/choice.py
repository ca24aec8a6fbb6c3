"""Which runtime is cheaper for a load, by a profile, and why.

    shared:  base(n) + sum over tasks t of x_t (p + (1 - p) n_t / m)
    merged:  sum over tasks t of base(n_t),  and what it takes to compose those that are not in memory

n_t rows of task t make a batch of n. x_t is what the task's deltas take with the m rows of the profile; of that a share
p falls to every task, however few its rows are, and the rest grows with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from smatter.devices.profile import Profile
from smatter.devices.stacks import Stack
from smatter.errors import InvalidProfile, InvalidSettings


@dataclass(frozen=True)
class TaskLoad:
    """One task in a batch.

    Args:
        n_rows: its rows.
        active: active fraction of each module, in the shared runtime.
        is_loaded: whether its merged network would be in memory already.
    """

    n_rows: int
    active: Stack
    is_loaded: bool = True

    def __post_init__(self) -> None:
        if self.n_rows < 1:
            raise InvalidSettings("a task of a load needs at least one row")


@dataclass(frozen=True)
class Choice:
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


def choose_runtime(profile: Profile, tasks: Sequence[TaskLoad]) -> Choice:
    """The cheaper runtime for a batch of some tasks' rows."""
    if not tasks:
        raise InvalidSettings("a load needs at least one task")
    n_rows, share = sum(task.n_rows for task in tasks), profile.per_task
    deltas = 0.0
    for task in tasks:
        alone = float(profile.predict(task.active)[0]) - profile.base
        deltas += alone * (share + (1 - share) * task.n_rows / profile.fingerprint.batch)
    base = profile.base_of(n_rows)
    shared = base + deltas
    passes = sum(profile.base_of(task.n_rows) for task in tasks)
    n_new = sum(not task.is_loaded for task in tasks)
    composing = n_new * _composing(profile) if n_new else 0.0
    merged = passes + composing
    parts = [f"{len(tasks)} passes {passes:.3g}"] + ([f"composing {n_new} networks {composing:.3g}"] if n_new else [])
    reason = f"shared: base {base:.3g} + deltas {deltas:.3g} {profile.unit}; merged: {' + '.join(parts)} {profile.unit}"
    return Choice("shared" if shared <= merged else "merged", shared, merged, reason)


def _composing(profile: Profile) -> float:
    """What it takes to compose one network of one source, corrected everywhere."""
    costs = profile.composing
    if costs is None or profile.unit != "ms":
        raise InvalidProfile("the profile does not say what composing costs: measure one with `smatter profile`")
    everything = list(costs.module_bytes)
    return costs.cost(dict.fromkeys(everything, 1), everything)
