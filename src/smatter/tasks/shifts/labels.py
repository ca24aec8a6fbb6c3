"""Wrong labels in the support."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from smatter.errors import InvalidSuite
from smatter.settings import check_choices, check_shares
from smatter.tasks.episode import Episode, Integers
from smatter.tasks.shifts.aim import choose_some, integers

Kind = Literal["random", "pairs"]


@dataclass(frozen=True)
class LabelNoise:
    """Some support examples are told to be of another class; what they are, `truth`, stays.

    Exactly `round(rate * n)` of n labels change. No class is left without an example that is told to be its own, where
    that can be avoided: one of each class changes last, and if such a one must, another takes its place.

    Args:
        rate: share of labels that change.
        kind: `random` draws the wrong class of each label alone; `pairs` takes each class for its partner and the
            partner for it (of an odd number of classes, three go round).
    """

    rate: float = 0.2
    kind: Kind = "random"

    def __post_init__(self) -> None:
        check_shares(self, "rate", above_zero=True, error=InvalidSuite)
        check_choices(self, InvalidSuite, kind=Kind)

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task with wrong labels."""
        if episode.n_way < 2:
            raise InvalidSuite("LabelNoise needs a second class to take the first for: draw more ways")
        labels = episode.support.labels
        change = {"random": _random, "pairs": _paired}[self.kind]
        changed = change(labels, round(self.rate * len(labels)), episode.n_way, generator)
        return replace(episode, support=replace(episode.support, labels=changed))


def _random(labels: Integers, n_wrong: int, n_way: int, generator: np.random.Generator) -> Integers:
    """Wrong classes drawn one by one; the last examples of their classes exchange labels."""
    keepers, others, by_size = _one_of_each(labels, n_way, generator)
    others = others[:n_wrong]
    last = keepers[by_size[::-1]]
    last = last[last >= 0][: n_wrong - len(others)]
    changed = labels.copy()
    free = np.concatenate([others, last])
    changed[free] = (labels[free] + 1 + integers(n_way - 1, len(free), generator)) % n_way
    if len(last) == 1:  # its class goes to an example of another class
        last = np.concatenate([last, others[labels[others] != labels[last]][:1]])
    if len(last) > 1:
        changed[last] = np.roll(labels[last], 1)
    return changed


def _paired(labels: Integers, n_wrong: int, n_way: int, generator: np.random.Generator) -> Integers:
    """Every class is taken for its partner; the last examples of their classes change pair by pair."""
    keepers, others, by_size = _one_of_each(labels, n_way, generator)
    groups = np.array_split(by_size, n_way // 2)  # pairs; the first group has three classes if their number is odd
    partner = np.empty(n_way, np.int64)
    for group in groups:
        partner[group] = np.roll(group, 1)
    turns = by_size[::-1]
    if (n_wrong - len(others)) % 2:  # an odd number: the three first, or one of the two largest classes
        first = groups[0][::-1][: 3 if n_way % 2 else 1]
        turns = np.concatenate([first, turns[~np.isin(turns, first)]])
    last = keepers[turns]
    wrong = np.concatenate([others, last[last >= 0]])[:n_wrong]
    changed = labels.copy()
    changed[wrong] = partner[labels[wrong]]
    return changed


def _one_of_each(labels: Integers, n_way: int, generator: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """An example of each class (-1 for none), all other examples in random order, and the classes, largest first."""
    order = choose_some(len(labels), len(labels), generator)
    classes, first = np.unique(labels[order], return_index=True)
    keepers = np.full(n_way, -1)
    keepers[classes] = order[first]
    shuffled = choose_some(n_way, n_way, generator)
    sizes = np.bincount(labels, minlength=n_way)[shuffled]
    return keepers, np.delete(order, first), shuffled[np.argsort(-sizes, kind="stable")]
