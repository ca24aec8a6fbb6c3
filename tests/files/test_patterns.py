"""Patterns mean what fnmatch says, and no pattern and name keep anybody waiting."""

import time
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smatter.errors import InvalidSettings
from smatter.files.patterns import MAX_PATTERNS, Patterns

NAMES = st.text("ab]-[!^.é", max_size=8)
PATTERNS = st.text("ab*?[]!-^.é", max_size=10)


@given(st.lists(PATTERNS, max_size=4), NAMES)
@example(["[]a]b"], "]b")
@example(["[!]a]"], "b")
@example(["[b-a]*", "[!b-a]"], "a")
@example(["[ab", "a["], "a[")
@example([""], "")
def test_patterns_mean_what_fnmatch_says(patterns: list[str], name: str) -> None:
    assert Patterns(patterns).match(name) == any(fnmatchcase(name, pattern) for pattern in patterns)


@pytest.mark.parametrize(
    "pattern", ["*a" * 256, "*a?" * 170 + "b", "*" + "a" * 255 + "b", "*[a-z]" * (MAX_PATTERNS - 1) + "b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    patterns = Patterns([pattern])
    start = time.perf_counter()
    for number in range(100):
        assert not patterns.match("a" * 511 + chr(0x4E00 + number))
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("patterns", [["a"] * (MAX_PATTERNS + 1), ["[a]" * (MAX_PATTERNS + 1)]])
def test_too_many_patterns_are_refused(patterns: list[str]) -> None:
    with pytest.raises(InvalidSettings, match="above 100: use"):
        Patterns(patterns)
