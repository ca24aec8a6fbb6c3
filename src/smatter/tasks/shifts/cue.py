"""A cue that gives the class away in the support and misleads in the query."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from smatter.errors import InvalidSuite
from smatter.settings import check_choices, check_shares
from smatter.tasks.episode import Episode, Integers
from smatter.tasks.shifts.aim import Pictures, as_pictures, choose_some, integers

QueryCue = Literal["shuffled", "reversed"]


@dataclass(frozen=True)
class SpuriousCue:
    """A patch in the upper left corner whose colour tells the class of support pictures.

    Args:
        strength: share of support pictures, each by chance, whose colour is their class's; others get a random one.
        query: `shuffled` deals the colours of the queries at random, so that they tell nothing; `reversed` gives every
            class the colour of another one.
    """

    strength: float = 1.0
    query: QueryCue = "shuffled"

    def __post_init__(self) -> None:
        check_shares(self, "strength", above_zero=True, error=InvalidSuite)
        check_choices(self, InvalidSuite, query=QueryCue)

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task with patches."""
        n_way = episode.n_way
        cue_of = choose_some(n_way, n_way, generator)
        told = episode.support.labels
        is_random = generator.random(len(told)) >= self.strength
        shown = np.where(is_random, integers(n_way, len(told), generator), cue_of[told])
        truth = episode.query.truth
        if self.query == "shuffled":
            asked = cue_of[truth][choose_some(len(truth), len(truth), generator)]
        else:
            asked = (cue_of[truth] + 1) % n_way
        asked = np.where(truth < 0, integers(n_way, len(truth), generator), asked)
        support, query = (
            examples.with_inputs(_patched(as_pictures(examples, "SpuriousCue"), cues, n_way))
            for examples, cues in ((episode.support, shown), (episode.query, asked))
        )
        return replace(episode, support=support, query=query)


def _patched(pictures: Pictures, cues: Integers, n_cues: int) -> Pictures:
    """Pictures with a patch of a fifth of their side, of a hue for each cue."""
    hues = [colorsys.hsv_to_rgb(number / n_cues, 0.9, 0.9) for number in range(n_cues)]
    colours = np.rint(255 * np.array(hues)).astype(np.uint8)
    patched = pictures.copy()
    height, width = pictures.shape[1:3]
    patched[:, : max(1, height // 5), : max(1, width // 5)] = colours[cues][:, None, None, :]
    return patched
