"""Texts asked for, set or typed in another way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from smatter.errors import InvalidSuite
from smatter.settings import check_choices, check_shares
from smatter.tasks.shifts.aim import TextShift

Case = Literal["upper", "lower", "title"]
CASES: dict[str, Callable[[str], str]] = {"upper": str.upper, "lower": str.lower, "title": str.title}


@dataclass(frozen=True)
class Template(TextShift):
    """Words around every text.

    Args:
        template: with `{}` where the text goes, so that it can stand before, behind or around it.
    """

    template: str = "Which of the topics fits this text best? {}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.template, str) or self.template.count("{}") != 1 or self.template == "{}":
            raise InvalidSuite(f"template {str(self.template)[:80]!r} needs words and one {{}} where the text goes")

    def change(self, text: str, generator: np.random.Generator) -> str:  # noqa: ARG002
        """The text in the template."""
        return self.template.replace("{}", text)


@dataclass(frozen=True)
class Casing(TextShift):
    """Capitals or small letters throughout.

    Args:
        case: `upper`, `lower` or `title`, which begins every word with a capital.
    """

    case: Case = "upper"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, InvalidSuite, case=Case)

    def change(self, text: str, generator: np.random.Generator) -> str:  # noqa: ARG002
        """The text in another case."""
        return CASES[self.case](text)


@dataclass(frozen=True)
class Typos(TextShift):
    """Misspelt words: two neighbouring letters exchanged, one left out or one doubled.

    Args:
        rate: share of the words, each by chance, that have a typing error.
    """

    rate: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "rate", above_zero=True, error=InvalidSuite)

    def change(self, text: str, generator: np.random.Generator) -> str:
        """The text with errors; what separates words stays."""
        words = text.split(" ")
        hit = generator.random(len(words)) < self.rate
        return " ".join(_typo(word, generator) if here else word for word, here in zip(words, hit, strict=True))


def misspelt(text: str, generator: np.random.Generator) -> str:
    """The text with an error in one of its words."""
    words = text.split(" ")
    place = int(generator.random() * len(words))
    return " ".join([*words[:place], _typo(words[place], generator), *words[place + 1 :]])


def _typo(word: str, generator: np.random.Generator) -> str:
    """A word with one error; a single letter, or the first of a double one, can only be doubled."""
    kind, place = (generator.random(2) * (3, max(1, len(word) - 1))).astype(int).tolist()
    letter, follower = word[place : place + 1], word[place + 1 : place + 2]
    instead = (letter * 2 + follower, follower, follower + letter)[kind if follower not in ("", letter) else 0]
    return word[:place] + instead + word[place + 2 :]
