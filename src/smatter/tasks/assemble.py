"""Examples by domain and class, however they were found, become a suite; what was left out on the way is told."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from smatter.errors import InvalidSuite, SmatterWarning
from smatter.tasks.given import Kind
from smatter.tasks.suite import MAX_CHARACTERS, MAX_CLASSES, MAX_DOMAINS, MAX_EXAMPLES, Domain, Store, Suite, SuiteClass

MAX_WARNINGS = 20
"""Omissions that are named; more than these are counted."""

Example = TypeVar("Example")


class Omissions:
    """What is left out of a suite while it is read."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.n_more = 0

    def add(self, reason: str) -> None:
        """Leave something out; the reason names it and says what to do."""
        if len(self.reasons) < MAX_WARNINGS:
            self.reasons.append(reason)
        else:
            self.n_more += 1

    def warn(self) -> None:
        """Warn of each; after the first few, of how many more there were."""
        for reason in self.reasons:
            warnings.warn(f"left out: {reason}", SmatterWarning, stacklevel=3)
        if self.n_more:
            warnings.warn(f"left out: {self.n_more} more files, classes or rows", SmatterWarning, stacklevel=3)


def assemble(
    name: str,
    kind: Kind,
    found: Mapping[str, Mapping[str, Sequence[Example]]],
    store: Callable[[Sequence[Example]], Store],
    place: str,
) -> Suite:
    """A suite of all that was found; the concept of a class is its name, whatever its case.

    Args:
        name: of the suite.
        kind: of its inputs.
        found: examples by domain and class, in the order they shall have; no class is empty.
        store: makes the store of one domain's examples.
        place: where they were found, for messages.
    """
    if len(found) > MAX_DOMAINS:
        raise InvalidSuite(f"{place} has {len(found)} domains, above {MAX_DOMAINS}; give fewer")
    _check_apart(found, short_name, f"domains of {place}")
    domains = []
    for title, classes in found.items():
        _check_classes(classes, f"domain {title!r} of {place}")
        numbered, examples = [], list[Example]()
        for label, each in classes.items():
            numbered.append(SuiteClass(label, key_of(label), len(examples), len(examples) + len(each)))
            examples += each
        domains.append(Domain(short_name(title), title, "id", tuple(numbered), store(examples)))
    return Suite(name, kind, tuple(domains))


def hold_out(suite: Suite, ood: Sequence[str]) -> Suite:
    """The same suite with these domains held out and no others."""
    names = {short_name(name) for name in ood}
    for name in names:
        suite.domain(name)
    domains = (replace(domain, role="ood" if domain.name in names else "id") for domain in suite.domains)
    return replace(suite, domains=tuple(domains))


def key_of(name: str) -> str:
    """The concept that a name stands for.

    >>> key_of("Red Fox") == key_of("red fox")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def short_name(title: str) -> str:
    """A name for files and commands.

    >>> short_name("Hand writing"), short_name("été"), short_name("漢字")
    ('Hand-writing', 'ete', 'u6f22u5b57')
    """
    plain = unicodedata.normalize("NFKD", title)
    kept = "".join(letter for letter in plain if not unicodedata.combining(letter))
    ascii_only = "".join(letter if letter.isascii() else f"u{ord(letter):x}" for letter in kept)
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", ascii_only).strip("-._+")[:100] or "suite"


def _check_apart(names: Mapping[str, object], short: Callable[[str], str], what: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not name.isprintable() or not 1 <= len(name) <= MAX_CHARACTERS:
            raise InvalidSuite(f"{name[:80]!r}, one of the {what}, is too long or unprintable; rename it")
        other = seen.setdefault(short(name).casefold(), name)
        if other != name:
            raise InvalidSuite(f"{other!r} and {name!r}, two {what}, have the same name but for its case; rename one")


def _check_classes(classes: Mapping[str, Sequence[object]], what: str) -> None:
    if len(classes) < 2:
        only = f"one class, {next(iter(classes))[:80]!r}" if classes else "no class"
        raise InvalidSuite(f"{what} has {only} with examples; give at least two, or take the domain out")
    if len(classes) > MAX_CLASSES:
        raise InvalidSuite(f"{what} has {len(classes)} classes, above {MAX_CLASSES}; give fewer")
    _check_apart(classes, key_of, f"classes of {what}")
    for label, examples in classes.items():
        if len(examples) > MAX_EXAMPLES:
            raise InvalidSuite(f"class {label!r} of {what} has {len(examples)} examples, above {MAX_EXAMPLES}")
