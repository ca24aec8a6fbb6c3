"""Bad shots: outliers, near-duplicates, few of some classes and many of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smatter.errors import InvalidSuite
from smatter.settings import check_choices, check_shares
from smatter.tasks.episode import Episode, Examples, Integers
from smatter.tasks.shifts.aim import (
    Pictures,
    Target,
    aim,
    choose_some,
    integers,
    rounded,
)
from smatter.tasks.shifts.texts import misspelt
from smatter.tasks.suite import Inputs

PATCHES = 4
"""Patches along a side of a picture that outliers are put together of."""


@dataclass(frozen=True)
class Outliers:
    """Examples that belong to no class replace some; their label stays as told, their `truth` is -1.

    A task knows no classes but its own, so an outlier is made of its examples: a picture is a mosaic of patches, a text
    a row of words, each from a random place of a random example. It has the colours, strokes or words of the task but
    no class: easier to tell than a real picture of another class. `MissingClasses` gives such for the query.

    Args:
        target: which part gets them. In the query, where labels are the truth, they are labelled -1.
        rate: share of examples replaced, `round(rate * n)` of n; one of each class stays as long as possible.
    """

    target: Target = "support"
    rate: float = 0.2

    def __post_init__(self) -> None:
        check_choices(self, InvalidSuite, target=Target)
        check_shares(self, "rate", above_zero=True, error=InvalidSuite)

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task with outliers."""
        changed = aim(episode, self.target, lambda examples: self._with_outliers(examples, generator))
        return replace(changed, query=replace(changed.query, labels=changed.query.truth))

    def _with_outliers(self, examples: Examples, generator: np.random.Generator) -> Examples:
        order = choose_some(len(examples), len(examples), generator)
        _, keepers = np.unique(examples.truth[order], return_index=True)
        places = np.concatenate([np.delete(order, keepers), order[keepers]])[: round(self.rate * len(examples))]
        truth, styles = examples.truth.copy(), examples.styles.copy()
        truth[places], styles[places] = -1, -1
        inputs = _scrambled(examples.inputs, places, generator)
        return replace(examples, inputs=inputs, truth=truth, styles=styles)


@dataclass(frozen=True)
class NearDuplicates:
    """Shots of a class become copies of one of them, a pixel aside and slightly noisy, or with a slip of the pen.

    Args:
        target: which part gets them.
        rate: share of each class's examples that become copies; one is the original, and stays.
    """

    target: Target = "support"
    rate: float = 1.0

    def __post_init__(self) -> None:
        check_choices(self, InvalidSuite, target=Target)
        check_shares(self, "rate", above_zero=True, error=InvalidSuite)

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task with copies."""
        return aim(episode, self.target, lambda examples: self._with_copies(examples, generator))

    def _with_copies(self, examples: Examples, generator: np.random.Generator) -> Examples:
        origin = np.arange(len(examples))
        for members in members_of_classes(examples):
            shuffled = members[choose_some(len(members), len(members), generator)]
            copies = shuffled[1 : 1 + round(self.rate * len(members))]
            origin[copies] = shuffled[0]
        copied = examples.select(origin)
        places = np.flatnonzero(origin != np.arange(len(examples)))
        return copied.with_inputs(_jittered(copied.inputs, places, generator))


@dataclass(frozen=True)
class Imbalance:
    """Classes, in random order, become rarer step by step.

    In the support this is shot imbalance; in the query, label shift. Both have an order of their own. Examples are
    left out, so that their number falls too. `keep_total` keeps the number of shots, to see what imbalance does by
    itself: classes that get more shots take them from their own queries, which are asked no more, and the others lose
    some. Every class that has queries keeps one, so that a class of few examples gets fewer shots than is its due.

    Args:
        target: which part loses examples.
        ratio: size of the rarest class relative to the commonest, if both had as many before; between them sizes fall
            geometrically. Every class keeps an example.
        keep_total: whether the support stays as large as it was; for the support alone.
    """

    target: Target = "support"
    ratio: float = 0.2
    keep_total: bool = False

    def __post_init__(self) -> None:
        check_choices(self, InvalidSuite, target=Target)
        check_shares(self, "ratio", above_zero=True, error=InvalidSuite)
        if not isinstance(self.keep_total, bool):
            raise InvalidSuite(f"keep_total is {str(self.keep_total)[:80]!r}: give true or false")
        if self.keep_total and self.target != "support":
            raise InvalidSuite(f"keep_total of {self.target!r}: only shots can be replaced, by queries; aim at support")

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task with fewer examples, or others."""
        if self.keep_total:
            return self._exchanged(episode, generator)
        return aim(episode, self.target, lambda examples: self._thinned(examples, generator))

    def _thinned(self, examples: Examples, generator: np.random.Generator) -> Examples:
        classes = members_of_classes(examples)
        is_kept = examples.labels < 0
        for members, share in zip(classes, self._shares(len(classes), generator), strict=True):
            n_kept = max(1, round(share * len(members)))
            is_kept[members[choose_some(len(members), n_kept, generator)]] = True
        return examples.select(np.flatnonzero(is_kept))

    def _exchanged(self, episode: Episode, generator: np.random.Generator) -> Episode:
        support, query = episode.support, episode.query
        classes = members_of_classes(support)
        spare = [np.flatnonzero(query.truth == support.labels[members[0]]) for members in classes]
        sizes = [len(members) for members in classes]
        most = [size + max(0, len(own) - 1) for size, own in zip(sizes, spare, strict=True)]
        wanted = apportion(self._shares(len(classes), generator), sum(sizes), most)
        is_kept, is_moved = support.labels < 0, np.zeros(len(query), bool)
        for members, own, n_wanted in zip(classes, spare, wanted, strict=True):
            is_kept[members[choose_some(len(members), n_wanted, generator)]] = True
            is_moved[own[choose_some(len(own), max(0, n_wanted - len(members)), generator)]] = True
        shots = support.select(np.flatnonzero(is_kept)).joined(query.select(np.flatnonzero(is_moved)))
        return replace(episode, support=shots, query=query.select(np.flatnonzero(~is_moved)))

    def _shares(self, n_classes: int, generator: np.random.Generator) -> list[float]:
        """Size of each class relative to the commonest."""
        ranks = choose_some(n_classes, n_classes, generator) / max(1, n_classes - 1)
        return [self.ratio**rank for rank in ranks.tolist()]


def apportion(shares: Sequence[float], total: int, most: Sequence[int]) -> list[int]:
    """Whole numbers with a given sum, each from 1 to its own bound, as near to the shares as they can be.

    One by one they go to the class with the largest share / (2 size + 1) (Webster's method): of all such numbers these
    have the least sum of (size - quota)^2 / quota, where a quota is the exact part of the total.

    >>> apportion([1.0, 0.5, 0.25], 14, [20, 20, 20]), apportion([1.0, 0.5, 0.25], 14, [6, 20, 20])
    ([8, 4, 2], [6, 5, 3])
    """
    sizes = [1] * len(shares)
    for _ in range(total - len(shares)):
        free = [number for number, size in enumerate(sizes) if size < most[number]]
        sizes[max(free, key=lambda number: shares[number] / (2 * sizes[number] + 1))] += 1
    return sizes


def members_of_classes(examples: Examples) -> list[Integers]:
    """Numbers of the examples told to be of each class; those of no class are left out."""
    labels = examples.labels
    return [np.flatnonzero(labels == label) for label in np.unique(labels[labels >= 0]).tolist()]


def _scrambled(inputs: Inputs, places: Integers, generator: np.random.Generator) -> Inputs:
    """Inputs with those in some places put together of pieces of all."""
    if isinstance(inputs, tuple):
        words = [word for text in inputs for word in text.split()]
        texts = list(inputs)
        for place in places.tolist():
            drawn = integers(len(words), len(inputs[place].split()), generator)
            texts[place] = " ".join(words[number] for number in drawn.tolist())
        return tuple(texts)
    n, height, width, _ = inputs.shape
    down, across = -(-height // PATCHES), -(-width // PATCHES)
    scrambled = inputs.copy()
    for top in range(0, height, down):
        for left in range(0, width, across):
            rows, columns = (np.arange(min(down, height - top)), np.arange(min(across, width - left)))
            picture = integers(n, (len(places), 1, 1), generator)
            row = integers(height - len(rows) + 1, (len(places), 1, 1), generator) + rows[:, None]
            column = integers(width - len(columns) + 1, (len(places), 1, 1), generator) + columns
            scrambled[places, top : top + down, left : left + across] = inputs[picture, row, column]
    return scrambled


def _jittered(inputs: Inputs, places: Integers, generator: np.random.Generator) -> Inputs:
    """Inputs with those in some places slightly changed."""
    if isinstance(inputs, tuple):
        texts = list(inputs)
        for place in places.tolist():
            texts[place] = misspelt(texts[place], generator)
        return tuple(texts)
    jittered = inputs.copy()
    jittered[places] = _moved(inputs[places], generator)
    return jittered


def _moved(pictures: Pictures, generator: np.random.Generator) -> Pictures:
    """Pictures moved by up to a pixel in 32 and with noise of up to 4 of 255."""
    n, height, width, _ = pictures.shape
    reach = max(1, min(height, width) // 32)
    down, across = integers(2 * reach + 1, (2, n, 1, 1), generator) - reach
    rows = (np.arange(height)[:, None] + down).clip(0, height - 1)
    columns = (np.arange(width) + across).clip(0, width - 1)
    moved = pictures[np.arange(n)[:, None, None], rows, columns]
    return rounded(moved + 8 * generator.random(pictures.shape, np.float32) - 4)
