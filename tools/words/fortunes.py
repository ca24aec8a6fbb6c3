"""Quotations of the fortune packages: a class is a topic, which is a file."""

import re
from collections import Counter
from collections.abc import Iterator

from download import Cache
from passages import Domain, Found, choose

ENGLISH = ("fortunes", "fortunes-min", "fortunes-bofh-excuses", "fortunes-debian-hints", "fortune-anarchism")
GERMAN = ("fortunes-de",)
FOLDER = "usr/share/games/fortunes/"
NO_TOPIC = frozenset(
    [
        "ascii-art",
        "asciiart",
        "banner",
        "cookie",
        "ethnic",
        "fortunes",
        "men-women",
        "miscellaneous",
        "translate-me",
        "unfug",
        "zitate",
    ]
)
"""Files of pictures, of whatever there is, or of jokes at somebody's expense."""


def quotations(content: str) -> list[str]:
    """The quotations of a file, without those who said it, who would give the topic away."""
    plain = re.sub(".\b", "", content)  # a letter that another one was printed over
    parts = re.split(r"^%.*$", plain, flags=re.MULTILINE)
    return [re.split(r"^\s*--+ ?\S", part, maxsplit=1, flags=re.MULTILINE)[0] for part in parts]


def without_refrain(texts: list[str]) -> list[str]:
    """The same without the words that a third of them begin with, whatever the numbers in them."""
    split = [text.split() for text in texts]
    length = 0
    while True:
        starts = Counter(tuple(re.sub(r"\d+", "0", word) for word in words[: length + 1]) for words in split)
        start, times = starts.most_common(1)[0]
        if len(start) <= length or 3 * times < len(texts):
            break
        length, refrain = length + 1, start
    if length < 2:
        return texts
    same = [tuple(re.sub(r"\d+", "0", word) for word in words[:length]) == refrain for words in split]
    return [" ".join(words[length:]) if begins else " ".join(words) for words, begins in zip(split, same, strict=True)]


def _topics(cache: Cache, packages: tuple[str, ...], folder: str = FOLDER) -> Found:
    found: Found = {}
    for name in packages:
        package = cache.package("apt", name)
        for member in package:
            place, _, file = member.rpartition("/")
            topic = file.removesuffix(".fortunes")
            if f"{place}/" == folder and "." not in topic and topic not in NO_TOPIC:
                found.setdefault(topic, []).extend(quotations(package.read(member).decode()))
        package.close()
    return {topic: without_refrain(texts) for topic, texts in found.items()}


def fortune_domains(cache: Cache) -> Iterator[Domain]:
    """English quotations, and German ones, a language that networks for English do not know."""
    yield Domain("quotations", "Quotations by topic", "id", choose(_topics(cache, ENGLISH)), ENGLISH)
    german = choose(_topics(cache, GERMAN, f"{FOLDER}de/"))
    yield Domain("german", "German quotations by topic", "ood", german, GERMAN)
