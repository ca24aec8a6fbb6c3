"""Tasks drawn from a suite: each is determined by the suite's contents, the settings, a seed and a number.

Random numbers come from NumPy, not torch, so that listing and showing tasks needs no torch; only plain uniform numbers
are used, whose stream NumPy keeps from version to version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from smatter.errors import InvalidSuite
from smatter.tasks.episode import Episode, Examples
from smatter.tasks.splits import SPLITS, Split
from smatter.tasks.suite import Inputs, Role, Suite, SuiteClass

Range = tuple[int, int]
MAX_WAY = 1000
MAX_TRIES = 100


@dataclass(frozen=True)
class SamplerSettings:
    """What tasks look like. Ranges are inclusive; a range of one number is fixed.

    Args:
        split: classes to draw from; `all` where nothing was trained on any of them.
        role: domains to draw from: those trained on, or those held out.
        n_way: classes of a task; fewer where its domain has fewer.
        n_shot: support examples of a class, drawn for each class alone, so that a range gives imbalanced tasks.
        n_query: query examples of a class, as far as there are any left.
        n_domains: domains that the classes of a task come from; above one, no single source is right.
        ood_fraction: gamma, the share of tasks from domains held out instead of `role`'s.
        domains: names of the domains to draw from; all of the role by default.
    """

    split: Split | Literal["all"] = "validation"
    role: Role = "id"
    n_way: Range = (5, 5)
    n_shot: Range = (5, 5)
    n_query: int = 10
    n_domains: Range = (1, 1)
    ood_fraction: float = 0.0
    domains: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.split not in (*SPLITS, "all"):
            raise InvalidSuite(f"unknown split {self.split!r}: use one of {', '.join(SPLITS)}, all")
        if self.role not in ("id", "ood"):
            raise InvalidSuite(f"unknown role {self.role!r}: use 'id' or 'ood'")
        for name, least in (("n_way", 2), ("n_shot", 1), ("n_domains", 1)):
            low, high = getattr(self, name)
            if not least <= low <= high <= MAX_WAY:
                raise InvalidSuite(f"{name} from {low} to {high}: give a range between {least} and {MAX_WAY}")
        if self.n_query < 1:
            raise InvalidSuite(f"n_query is {self.n_query}: give at least 1")
        if self.n_way[0] < self.n_domains[1]:
            raise InvalidSuite(f"{self.n_way[0]} classes cannot come from {self.n_domains[1]} domains: give more ways")
        if len(set(self.domains)) != len(self.domains):
            raise InvalidSuite("a domain to draw from is named twice: name each once")
        if not 0 <= self.ood_fraction <= 1:  # also rejects NaN
            raise InvalidSuite(f"ood_fraction is {self.ood_fraction}: give a share between 0 and 1")

    @property
    def key(self) -> str:
        """Tells settings apart."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class Draw:
    """One task by numbers alone.

    Args:
        classes: domain and class of each of its classes.
        support: example numbers within the domain, of each class.
        query: likewise.
    """

    classes: tuple[tuple[int, int], ...]
    support: tuple[tuple[int, ...], ...]
    query: tuple[tuple[int, ...], ...]


class Sampler:
    """Draws tasks from a suite.

    Args:
        suite: where from.
        settings: what they look like.
        seed: of the whole series.
    """

    def __init__(self, suite: Suite, settings: SamplerSettings, seed: int = 0) -> None:
        self.suite, self.settings, self.seed = suite, settings, seed
        for name in settings.domains:
            suite.domain(name)
        roles: list[Role] = ["ood"] if settings.ood_fraction > 0 else []
        if settings.ood_fraction < 1:
            roles.insert(0, settings.role)
        for role in roles:
            if len(self._pools[role]) < settings.n_domains[1]:
                raise InvalidSuite(
                    f"suite {suite.name!r} has {len(self._pools[role])} {role} domains with {self._fewest} classes of "
                    f"{settings.n_shot[1] + 1} examples in split {settings.split!r}, {settings.n_domains[1]} are "
                    "needed: ask for fewer ways, shots or domains, or for split 'all' if nothing was trained on them"
                )

    @property
    def _fewest(self) -> int:
        """Classes that a domain must have to take part."""
        return -(-self.settings.n_way[0] // self.settings.n_domains[0])

    @cached_property
    def _pools(self) -> dict[Role, list[tuple[int, list[int]]]]:
        """By role: number of each domain that can be drawn, and the numbers of its classes that can."""
        pools: dict[Role, list[tuple[int, list[int]]]] = {"id": [], "ood": []}
        for number, domain in enumerate(self.suite.domains):
            if self.settings.domains and domain.name not in self.settings.domains:
                continue
            allowed = {each.key for each in self.suite.classes(domain, self.settings.split)}
            usable = [i for i, each in enumerate(domain.classes) if each.key in allowed and self._has_enough(each)]
            if len(usable) >= self._fewest:
                pools[domain.role].append((number, usable))
        return pools

    @cached_property
    def most_drawn(self) -> int:
        """The most random numbers that one task can take: one for each class and example that it may choose from."""
        domains = self.suite.domains
        usable = [(domains[domain], classes) for pool in self._pools.values() for domain, classes in pool]
        n_classes = max(len(classes) for _, classes in usable) * self.settings.n_domains[1]
        n_examples = max(len(domain.classes[i]) for domain, classes in usable for i in classes)
        return n_classes + min(n_classes, self.settings.n_way[1]) * n_examples

    def _has_enough(self, each: SuiteClass) -> bool:
        return len(each) > self.settings.n_shot[1]

    def draw(self, index: int) -> Draw:
        """Task number `index`, as numbers."""
        settings = self.settings
        generator = self.generator(index)
        role: Role = "ood" if generator.random() < settings.ood_fraction else settings.role
        pools = self._pools[role]
        for _ in range(MAX_TRIES):  # domains that share most of their concepts may not give enough of them together
            n_domains = _between(settings.n_domains, generator)
            drawn = [pools[i] for i in _choose(len(pools), n_domains, generator)]
            n_way = _between(settings.n_way, generator)
            classes = self._classes(drawn, n_way, generator)
            if len(classes) >= settings.n_way[0] and len({domain for domain, _ in classes}) == n_domains:
                break
        else:
            raise InvalidSuite(
                f"domains of suite {self.suite.name!r} share so many concepts that no task of {settings.n_way[0]} "
                f"classes of {settings.n_domains[1]} domains was found: ask for fewer ways or domains"
            )
        support, query = [], []
        for domain_number, class_number in classes:
            each = self.suite.domains[domain_number].classes[class_number]
            n_shot = _between(settings.n_shot, generator)
            examples = [each.start + i for i in _choose(len(each), n_shot + settings.n_query, generator)]
            support.append(tuple(examples[:n_shot]))
            query.append(tuple(examples[n_shot:]))
        return Draw(tuple(classes), tuple(support), tuple(query))

    def episode(self, index: int) -> Episode:
        """Task number `index`, with its examples."""
        return materialise(self.suite, self.draw(index))

    def _classes(
        self, pools: Sequence[tuple[int, list[int]]], n_way: int, generator: np.random.Generator
    ) -> list[tuple[int, int]]:
        """Domain and class of each class of a task: spread evenly over the domains, no concept twice."""
        orders = [
            (domain, self.suite.domains[domain].classes, iter([usable[i] for i in _choose(n, n, generator)]))
            for domain, usable in pools
            for n in [len(usable)]
        ]
        by_key: dict[str, tuple[int, int]] = {}
        while orders:
            for turn in tuple(orders):
                if len(by_key) == n_way:
                    return list(by_key.values())
                domain, classes, rest = turn
                number = next((i for i in rest if classes[i].key not in by_key), None)
                if number is None:
                    orders.remove(turn)
                else:
                    by_key[classes[number].key] = (domain, number)
        return list(by_key.values())

    @cached_property
    def _series(self) -> str:
        """Tells this sampler's tasks from all others'."""
        return f"{self.suite.digest} {self.settings.key} {self.seed}"

    def generator(self, index: int, use: str = "draw") -> np.random.Generator:
        """The random numbers of one task and one use."""
        text = f"{self._series} {index} {use}"
        return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(text.encode()).digest())))


def materialise(suite: Suite, draw: Draw) -> Episode:
    """A task's examples, read from the suite."""
    names = [(suite.domains[d].name, suite.domains[d].classes[c].name) for d, c in draw.classes]
    mixed = len({domain for domain, _ in names}) > 1
    class_names = tuple(f"{domain}: {name}" if mixed else name for domain, name in names)
    return Episode(_examples(suite, draw, draw.support), _examples(suite, draw, draw.query), class_names)


def _examples(suite: Suite, draw: Draw, numbers: tuple[tuple[int, ...], ...]) -> Examples:
    labels = np.repeat(np.arange(len(numbers)), [len(each) for each in numbers])
    domains = np.array([domain for domain, _ in draw.classes])[labels]
    flat = np.array([number for each in numbers for number in each], dtype=np.int64)
    styles = np.empty(len(flat), np.int64)
    parts: list[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Inputs]] = []
    for number in dict.fromkeys(domain for domain, _ in draw.classes):
        places = np.flatnonzero(domains == number)
        domain = suite.domains[number]
        parts.append((places, domain.store.take(flat[places].tolist())))
        styles[places] = domain.style_numbers[flat[places]]
    return Examples(_joined(parts, len(flat)), labels, labels, domains, styles)


def _joined(parts: Sequence[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Inputs]], n_examples: int) -> Inputs:
    """The examples of all domains in their places."""
    first = parts[0][1]
    if len(parts) == 1:
        return first
    if isinstance(first, tuple):
        texts = {place: text for places, inputs in parts for place, text in zip(places.tolist(), inputs, strict=True)}
        return tuple(texts[place] for place in range(n_examples))
    pictures = np.empty((n_examples, *first.shape[1:]), np.uint8)
    for places, inputs in parts:
        pictures[places] = inputs
    return pictures


def _between(limits: Range, generator: np.random.Generator) -> int:
    low, high = limits
    return low + int(generator.random() * (high - low + 1))


def _choose(n: int, n_chosen: int, generator: np.random.Generator) -> list[int]:
    """Numbers below n in random order, each at most once."""
    order: list[int] = generator.random(n).argsort(kind="stable")[:n_chosen].tolist()
    return order
