"""Texts of a domain: made plain, none of them in two classes, so many of each class and no more."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LONGEST = 240
"""Characters; more than a short text's worth of tokens would only cost time."""
LEAST, MOST = 20, 120
"""Texts of a class: with fewer it is left out, of more these are taken."""
FEWEST_WORDS = 3
SHORTEST, STEM = 3, 5
"""Letters of a word that can name a class, and how many of them count."""
_GRAMMAR = frozenset({"and", "due", "for", "from", "not", "other", "the", "with", "without"})
"""Words that name nothing."""

Found = dict[str, list[str]]
"""Texts by the name of their class."""


@dataclass(frozen=True)
class Domain:
    """Texts of one kind.

    Args:
        name: short, for files and commands.
        title: for people.
        role: `id` where sources may be trained on it, `ood` where it is held out.
        classes: texts of each class.
        packages: names of the packages that they are from.
    """

    name: str
    title: str
    role: str
    classes: Mapping[str, tuple[str, ...]]
    packages: tuple[str, ...]

    def count(self) -> int:
        """How many texts there are."""
        return sum(map(len, self.classes.values()))


def tidy(text: str) -> str:
    """One line of printable characters that ends with a word.

    >>> tidy("  a \\tline\\nand   another ")
    'a line and another'
    """
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if len(plain) <= LONGEST:
        return plain
    return plain[: LONGEST + 1].rpartition(" ")[0].rstrip(" ,;:-") or plain[:LONGEST]


def choose(found: Mapping[str, Iterable[str]], least: int = LEAST, most: int = MOST) -> dict[str, tuple[str, ...]]:
    """The texts that a domain keeps.

    A text that two classes have is in neither, whatever its case and punctuation. One that names its class is left out,
    as it needs no understanding. Of what remains of a class `most` are taken, in an order that looks random but depends
    on the texts alone.

    Args:
        found: texts by class.
        least: texts that a class must have.
        most: texts that it may have.
    """
    tidied = {label: {_bare(text): text for text in sorted(map(tidy, texts))} for label, texts in found.items()}
    times = Counter(bare for texts in tidied.values() for bare in texts)
    kept = {}
    for label in sorted(tidied):
        own = [
            text
            for bare, text in tidied[label].items()
            if times[bare] == 1 and bare.count(" ") + 1 >= FEWEST_WORDS and not names(bare, label)
        ]
        if len(own) >= least:
            kept[label] = tuple(sorted(sorted(own, key=_shuffled)[:most]))
    return kept


def names(text: str, label: str) -> bool:
    """Whether a text has a word of a label in it, or one that begins like it.

    >>> names("a malignant growth", "Malignancies of the lung"), names("a growth of it", "Malignancies of the lung")
    (True, False)
    """
    stems = {word[:STEM] for word in _bare(label).split() if len(word) >= SHORTEST and word not in _GRAMMAR}
    return any(word[:STEM] in stems for word in text.casefold().split())


def _bare(text: str) -> str:
    """Words alone."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _shuffled(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
