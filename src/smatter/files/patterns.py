"""Shell-style patterns on a stranger's names, matched in time linear in the name however many stars there are."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from smatter.errors import InvalidSettings

MAX_PATTERNS = 100
"""Also the most `[...]` in all of them. The longest name then takes some ten milliseconds at worst."""


class Patterns:
    """Patterns of `*`, `?` and `[...]`, as `fnmatch.fnmatchcase` reads them, matched all at once.

    Bit by bit: the state holds a bit for each number of tokens (all but stars) that each pattern may have matched so
    far. A letter moves a bit up where the next token takes it, and leaves it in place where a star stands.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        if len(patterns) > MAX_PATTERNS:
            raise InvalidSettings(f"{len(patterns)} patterns of names, above {MAX_PATTERNS}: use fewer, with more *")
        self._starts = self._ends = self._stars = self._any = 0
        self._letters: dict[str, int] = {}
        self._sets: list[tuple[str, int]] = []
        bit = 1
        for pattern in patterns:
            self._starts |= bit
            for token in _tokens(pattern):
                if token == "*":
                    self._stars |= bit
                    continue
                if token == "?":
                    self._any |= bit
                elif len(token) > 1:
                    self._sets.append((token, bit))
                else:
                    self._letters[token] = self._letters.get(token, 0) | bit
                bit <<= 1
            self._ends |= bit
            bit <<= 1
        if len(self._sets) > MAX_PATTERNS:
            raise InvalidSettings(f"patterns with {len(self._sets)} times [...], above {MAX_PATTERNS}: use ? or *")
        self._takes = lru_cache(maxsize=1_000)(self._tokens_that_take)

    def match(self, name: str) -> bool:
        """Whether one of them is the pattern of the whole name."""
        state = self._starts
        for letter in name:
            state = ((state & self._takes(letter)) << 1) | (state & self._stars)
        return bool(state & self._ends)

    def _tokens_that_take(self, letter: str) -> int:
        found = self._any | self._letters.get(letter, 0)
        for token, bit in self._sets:
            if fnmatchcase(letter, token):
                found |= bit
        return found


def _tokens(pattern: str) -> list[str]:
    """Letters, `?`, `*` and sets of letters; a bracket that is never closed is a letter."""
    tokens = []
    position = 0
    while position < len(pattern):
        stop = position + 1
        if pattern[position] == "[":
            first = stop + pattern.startswith("!", stop)
            closing = pattern.find("]", first + 1)  # a bracket that comes first belongs to the set
            stop = closing + 1 or stop
        tokens.append(pattern[position:stop])
        position = stop
    return tokens
