"""Tasks whose support and query disagree: on classes, or on styles."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from smatter.errors import InvalidSuite
from smatter.tasks.episode import Episode, Examples, Integers
from smatter.tasks.sampler import MAX_WAY
from smatter.tasks.shifts.aim import check_count, choose_some


@dataclass(frozen=True)
class MissingClasses:
    """Classes that queries belong to but that the support does not show and the task does not list.

    Their queries stay, labelled -1: no answer is right, and saying so is all that a method can do. The classes that
    are left are numbered anew.

    Args:
        n_classes: how many; two must be left.
    """

    n_classes: int = 1

    def __post_init__(self) -> None:
        check_count("n_classes", self.n_classes, MAX_WAY)

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task without them."""
        gone = _some_classes(episode, self.n_classes, 2, "MissingClasses", generator)
        left = np.setdiff1d(np.arange(episode.n_way), gone)
        number = np.full(episode.n_way + 1, -1)  # the last is for examples that were of no class before
        number[left] = np.arange(len(left))
        shown = episode.support.select(np.flatnonzero(~np.isin(episode.support.labels, gone)))
        support = replace(shown, labels=number[shown.labels], truth=number[shown.truth])
        truth = number[episode.query.truth]
        query = replace(episode.query, labels=truth, truth=truth)
        return Episode(support, query, tuple(episode.class_names[each] for each in left.tolist()))


@dataclass(frozen=True)
class SpuriousClasses:
    """Classes that the support shows but no query belongs to.

    Args:
        n_classes: how many; one must be left that queries belong to.
    """

    n_classes: int = 1

    def __post_init__(self) -> None:
        check_count("n_classes", self.n_classes, MAX_WAY)

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task without their queries."""
        gone = _some_classes(episode, self.n_classes, 1, "SpuriousClasses", generator)
        return replace(episode, query=episode.query.select(np.flatnonzero(~np.isin(episode.query.truth, gone))))


@dataclass(frozen=True)
class StyleMismatch:
    """Support of some styles, query of others.

    The styles of each domain are divided in two, and the examples of a class are dealt again: those of one half are
    shots, at most as many as before, those of the other half queries; what is too much is left out. A class stays as it
    is where its styles are not known or lie in one half only. Use it before shifts that change labels or examples.
    """

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task dealt again."""
        pool = episode.support.joined(episode.query)
        in_support = np.arange(len(pool)) < len(episode.support)
        is_shot_style = _half_of_styles(pool, generator)
        to_support, to_query = in_support.copy(), ~in_support
        for label in range(episode.n_way):
            members = pool.truth == label
            shots, queries = members & is_shot_style, members & ~is_shot_style
            if shots.any() and queries.any() and (pool.styles[members] >= 0).all():
                to_support[members], to_query[members] = False, False
                to_support[_first(shots, int((members & in_support).sum()))] = True
                to_query[_first(queries, int((members & ~in_support).sum()))] = True
        query = pool.select(np.flatnonzero(to_query))
        support = pool.select(np.flatnonzero(to_support))
        return replace(episode, support=support, query=replace(query, labels=query.truth))


def _some_classes(episode: Episode, n_classes: int, n_left: int, name: str, generator: np.random.Generator) -> Integers:
    if episode.n_way < n_classes + n_left:
        raise InvalidSuite(
            f"{name} cannot take {n_classes} of {episode.n_way} classes and leave {n_left}: draw more ways"
        )
    return choose_some(episode.n_way, n_classes, generator)


def _half_of_styles(pool: Examples, generator: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each example is of a style that shots have: of each domain, styles with about half of the examples."""
    chosen = np.zeros(len(pool), bool)
    for domain in np.unique(pool.domains).tolist():
        known = (pool.domains == domain) & (pool.styles >= 0)
        styles, counts = np.unique(pool.styles[known], return_counts=True)
        order = choose_some(len(styles), len(styles), generator)
        before = np.cumsum(counts[order]) - counts[order]
        n_chosen = min(len(styles) - 1, int((before < counts.sum() / 2).sum()))
        chosen |= known & np.isin(pool.styles, styles[order[: max(0, n_chosen)]])
    return chosen


def _first(mask: np.ndarray[tuple[int], np.dtype[np.bool_]], n: int) -> Integers:
    return np.flatnonzero(mask)[:n]
