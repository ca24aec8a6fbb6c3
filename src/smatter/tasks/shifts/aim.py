"""What all shifts share: which part of a task they touch, checks of their settings, and plain random choices.

Only uniform random numbers are drawn, as in the sampler: NumPy keeps their stream from version to version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from smatter.errors import InvalidSuite
from smatter.settings import check_choices
from smatter.tasks.episode import Episode, Examples, Integers

Target = Literal["support", "query", "both"]
Pictures = np.ndarray[Any, np.dtype[np.uint8]]
Number = TypeVar("Number", np.uint8, np.float32)
Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class InputShift:
    """Changes inputs and nothing else.

    Args:
        target: the part of the task whose inputs change.
    """

    target: Target = "both"

    def __post_init__(self) -> None:
        check_choices(self, InvalidSuite, target=Target)


@dataclass(frozen=True)
class PictureShift(InputShift, ABC):
    """Changes pictures and nothing else."""

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task with other pictures."""
        name = type(self).__name__
        return aim(episode, self.target, lambda each: each.with_inputs(self.change(as_pictures(each, name), generator)))

    @abstractmethod
    def change(self, pictures: Pictures, generator: np.random.Generator) -> Pictures:
        """Other pictures of the same shape, (n, height, width, 3)."""


@dataclass(frozen=True)
class TextShift(InputShift, ABC):
    """Changes texts and nothing else."""

    def __call__(self, episode: Episode, generator: np.random.Generator) -> Episode:
        """The task with other texts."""
        return aim(episode, self.target, lambda each: each.with_inputs(self._changed(each, generator)))

    def _changed(self, examples: Examples, generator: np.random.Generator) -> tuple[str, ...]:
        if not isinstance(examples.inputs, tuple):
            raise InvalidSuite(f"{type(self).__name__} changes texts, but the task has pictures: leave it out")
        return tuple(self.change(text, generator) for text in examples.inputs)

    @abstractmethod
    def change(self, text: str, generator: np.random.Generator) -> str:
        """Another text."""


def aim(episode: Episode, target: Target, change: Callable[[Examples], Examples]) -> Episode:
    """The task with its support, its query or both changed."""
    support = episode.support if target == "query" else change(episode.support)
    query = episode.query if target == "support" else change(episode.query)
    return replace(episode, support=support, query=query)


def as_pictures(examples: Examples, name: str) -> Pictures:
    """The pictures, or an error that names the shift that wants them."""
    if isinstance(examples.inputs, tuple):
        raise InvalidSuite(f"{name} changes pictures, but the task has texts: leave it out, or use Typos")
    return examples.inputs


def rounded(values: np.ndarray[Any, np.dtype[Any]]) -> Pictures:
    """Numbers as pixels."""
    pixels: Pictures = np.rint(values).clip(0, 255).astype(np.uint8)
    return pixels


def largest_channel(pictures: np.ndarray[Any, np.dtype[Number]]) -> np.ndarray[Any, np.dtype[Number]]:
    """The maximum over the colours, (n, height, width, 1); NumPy's own is slow along so short an axis."""
    red, green, blue = np.split(pictures, 3, axis=-1)
    largest: np.ndarray[Any, np.dtype[Number]] = np.maximum(np.maximum(red, green), blue)
    return largest


def lightness(pictures: Pictures) -> Floats:
    """How light each pixel looks, from 0 to 1, by the weights of ITU-R BT.601, (n, height, width, 1)."""
    return np.asarray(pictures @ np.array([0.299, 0.587, 0.114], np.float32), np.float32)[..., None] / np.float32(255)


def border_colour(pictures: Pictures) -> Floats:
    """What the ground of each picture most likely is: the median of its outermost pixels, (n, 1, 1, 3)."""
    sides = (pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1])
    median = np.median(np.concatenate(sides, axis=1), axis=1)
    return np.asarray(median, np.float32)[:, None, None, :]


def distance_from(ground: Floats, pictures: Pictures) -> Floats:
    """How far each pixel is from the colour of its ground, 0 to 255, (n, height, width, 1)."""
    return largest_channel(np.abs(pictures - ground))


def choose_some(n: int, n_chosen: int, generator: np.random.Generator) -> Integers:
    """Numbers below n in random order, each at most once."""
    return generator.random(n).argsort(kind="stable")[:n_chosen]


def integers(n: int, shape: int | tuple[int, ...], generator: np.random.Generator) -> Integers:
    """Random numbers below n."""
    return (generator.random(shape) * n).astype(np.int64)


def check_count(what: str, value: object, most: int) -> None:
    """Refuse what is not a whole number from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidSuite(f"{what} is {str(value)[:80]!r}: give a whole number from 1 to {most}")
