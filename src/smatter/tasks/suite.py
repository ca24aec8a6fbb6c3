"""A suite: domains of classes of examples, dealt into splits, from which few-shot tasks are drawn."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from smatter.errors import InvalidSuite
from smatter.files.fields import NAME
from smatter.tasks.given import Kind
from smatter.tasks.splits import Split, deal

Role = Literal["id", "ood"]
Inputs = np.ndarray[Any, np.dtype[np.uint8]] | tuple[str, ...]
"""Pictures, (n, height, width, 3), or texts."""

MAX_DOMAINS = 1_000
MAX_CLASSES = 100_000
"""Of a domain."""
MAX_EXAMPLES = 200_000
"""Of a class."""
MAX_CHARACTERS = 200
"""Of the name of a class, and of its key."""


class Store(Protocol):
    """The examples of a domain, in order; read when they are asked for."""

    @property
    def digest(self) -> str:
        """Tells contents apart."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: Sequence[int]) -> Inputs:
        """Examples by number."""
        ...


@dataclass(frozen=True)
class SuiteClass:
    """A class of a domain.

    Args:
        name: what people call it.
        key: the concept it stands for. Classes of several domains that share it, a letter in two styles of writing
            say, always fall into the same split.
        start: number of its first example in the domain.
        stop: the number after its last.
    """

    name: str
    key: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Domain:
    """Classes that look alike in style.

    Args:
        name: short, for files and commands.
        title: for people.
        role: `id` where sources and routers may be trained on it, `ood` where it is held out as a whole.
        classes: in the order of their examples.
        store: the examples.
        styles: names of the hands, fonts or collections that the examples are from.
        style_of: number of each example's style.
        packages: names of the packages it is made of.
    """

    name: str
    title: str
    role: Role
    classes: tuple[SuiteClass, ...]
    store: Store
    styles: tuple[str, ...] = ()
    style_of: tuple[int, ...] = ()
    packages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_suite_name(self.name)
        if not self.classes:
            raise InvalidSuite(f"domain {self.name!r} has no classes: add some, or leave it out")
        if len({each.key for each in self.classes}) != len(self.classes):
            raise InvalidSuite(f"two classes of domain {self.name!r} have the same key: rename one")
        position = 0
        for each in self.classes:
            if each.start != position or each.stop <= each.start:
                raise InvalidSuite(f"class {each.name!r} of domain {self.name!r} is empty or out of order")
            position = each.stop
        if position != len(self.store):
            raise InvalidSuite(f"domain {self.name!r} lists {position} examples but holds {len(self.store)}")
        if self.styles and len(self.style_of) != position:
            raise InvalidSuite(f"domain {self.name!r} does not say the style of every example")

    @cached_property
    def style_numbers(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Style of each example, -1 where none is known."""
        return np.array(self.style_of if self.styles else [-1] * len(self.store), np.int64)


@dataclass(frozen=True)
class Suite:
    """Domains of one kind of input.

    Args:
        name: of the suite.
        kind: images or texts.
        domains: in a fixed order.
        packages: where the examples come from: registry, name, version, licence and use of each package.
    """

    name: str
    kind: Kind
    domains: tuple[Domain, ...]
    packages: tuple[dict[str, str], ...] = ()

    def __post_init__(self) -> None:
        check_suite_name(self.name)
        if not self.domains:
            raise InvalidSuite(f"suite {self.name!r} has no domains: give at least one")
        if len({domain.name for domain in self.domains}) != len(self.domains):
            raise InvalidSuite(f"two domains of suite {self.name!r} have the same name: rename one")

    @cached_property
    def digest(self) -> str:
        """Depends on every domain, role, class, style and example, and on their order; not on where the suite lies."""
        whole = hashlib.sha256(self.kind.encode())
        for domain in self.domains:
            classes = [[each.name, each.key, each.start, each.stop] for each in domain.classes]
            parts = [domain.name, domain.role, domain.store.digest, classes, domain.styles, domain.style_of]
            whole.update(json.dumps(parts).encode())
        return whole.hexdigest()

    @cached_property
    def split_of(self) -> dict[str, Split]:
        """The split of every key."""
        inside, outside = (
            [[each.key for each in domain.classes] for domain in self.domains if domain.role == role]
            for role in ("id", "ood")
        )
        return deal(inside, outside)

    def classes(self, domain: Domain, split: Split | Literal["all"]) -> tuple[SuiteClass, ...]:
        """Classes of a domain that belong to a split; a domain that is held out has none to train on."""
        if split == "all":
            return domain.classes
        if domain.role == "ood" and split not in ("validation", "test"):
            return ()
        return tuple(each for each in domain.classes if self.split_of[each.key] == split)

    def domain(self, name: str) -> Domain:
        """A domain by name."""
        for domain in self.domains:
            if domain.name == name:
                return domain
        names = ", ".join(domain.name for domain in self.domains)
        raise InvalidSuite(f"suite {self.name!r} has no domain {name!r}: it has {names}")


def check_suite_name(name: str) -> None:
    """Refuse what cannot name a suite, a domain or a list, and so a file."""
    if not re.fullmatch(NAME, name):
        raise InvalidSuite(
            f"{name[:120]!r} cannot name a suite, domain or list; use up to 100 letters, digits and .+_-, a letter or "
            "digit first"
        )
