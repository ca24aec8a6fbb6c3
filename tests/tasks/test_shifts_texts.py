"""Prompts, cases and typing errors."""

import numpy as np
import pytest
from test_shifts import generator, make_episode

from smatter.tasks.shifts.texts import Casing, Template, Typos, misspelt


def support_texts(shift, seed: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    episode = make_episode("texts")
    return episode.support.inputs, shift(episode, generator(seed)).support.inputs


@pytest.mark.parametrize("template", ["Ask: {}", "{} - which topic?", "a {} {0} %s b"])
def test_the_template_stands_around_the_text(template: str) -> None:
    before, after = support_texts(Template(template=template))
    head, tail = template.split("{}")
    assert after == tuple(head + text + tail for text in before)


def test_cases() -> None:
    before, upper = support_texts(Casing(case="upper"))
    assert all(new == old.upper() != old for old, new in zip(before, upper, strict=True))
    assert support_texts(Casing(case="title"))[1][0].split()[0][0].isupper()
    assert support_texts(Casing(case="lower"))[1] == before, "they are lower case"


def distance(one: str, other: str) -> int:
    """Insertions, deletions, replacements and exchanges of neighbours that turn one word into the other."""
    table = np.zeros((len(one) + 1, len(other) + 1), int)
    table[:, 0], table[0] = np.arange(len(one) + 1), np.arange(len(other) + 1)
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            options = [table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (one[i - 1] != other[j - 1])]
            if i > 1 and j > 1 and one[i - 2 : i] == other[j - 1] + other[j - 2]:
                options.append(table[i - 2, j - 2] + 1)
            table[i, j] = min(options)
    return int(table[-1, -1])


def test_a_typo_is_one_edit_of_one_word() -> None:
    kinds = set()
    for seed in range(200):
        for text in ("abracadabra", "one two  three", "a", "ll", "ab", "xx yy"):
            wrong = misspelt(text, generator(seed))
            kinds.add(len(wrong) - len(text))
            assert distance(text, wrong) <= 1 and wrong.count(" ") == text.count(" ")
            assert wrong != text or "  " in text, "an empty word has nothing to misspell"
    assert kinds == {-1, 0, 1} and misspelt("", generator()) == ""


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_the_share_of_misspelt_words(rate: float) -> None:
    pairs = [
        pair
        for seed in range(20)
        for texts in zip(*support_texts(Typos(rate=rate), seed), strict=True)
        for pair in zip(*(text.split(" ") for text in texts), strict=True)
    ]
    wrong = np.mean([old != new for old, new in pairs])
    assert abs(wrong - rate) <= 5 * np.sqrt(rate * (1 - rate) / len(pairs))
    assert max(distance(old, new) for old, new in pairs) == 1
