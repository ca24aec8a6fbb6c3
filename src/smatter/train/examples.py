"""What a network learns from: labelled examples of some domains, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from smatter.backbones.network import Inputs
from smatter.errors import InvalidSuite
from smatter.tasks.splits import Split
from smatter.tasks.suite import Domain, Suite, SuiteClass


class TrainingExamples(Protocol):
    """Labelled examples, drawn as they are, varied by the training settings, then prepared."""

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        ...

    @property
    def labels(self) -> Tensor:
        """Class of every example, (n,)."""
        ...

    @property
    def key(self) -> dict[str, Any]:
        """Tells what a run learnt from, for its state."""
        ...

    @property
    def variation(self) -> type:
        """What can vary these examples."""
        ...

    def draw(self, n: int, generator: torch.Generator) -> tuple[Any, Tensor]:
        """Examples and their classes."""
        ...

    def parts(self) -> Iterator[Any]:
        """All examples in order, as `draw` gives them, some at a time."""
        ...

    def prepared(self, drawn: Any) -> Inputs:
        """Examples as arguments of the forward pass."""
        ...


class ByClass:
    """Examples that lie class after class, domain after domain.

    `first` is the number of the first example of each class, (n_classes + 1,), its last entry how many there are;
    `domain_of` the domain of each class, (n_classes,); `shares` how often an example of each domain is drawn,
    (n_domains,), summing to one.
    """

    first: Tensor
    domain_of: Tensor
    shares: Tensor

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self.domain_of)

    @property
    def labels(self) -> Tensor:
        """Class of every example, (n,)."""
        return torch.repeat_interleave(torch.arange(len(self.first) - 1), self.first.diff())

    def places(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Numbers of drawn examples, and their classes: domain by share, then class, then example."""
        weight = (self.shares / torch.bincount(self.domain_of).double())[self.domain_of]
        labels = torch.multinomial(weight, n, replacement=True, generator=generator)
        sizes = self.first.diff()[labels]
        return self.first[labels] + (torch.rand(n, generator=generator, dtype=torch.float64) * sizes).long(), labels


@dataclass(frozen=True)
class Chosen:
    """Classes to learn from, in order.

    Args:
        classes: each with its domain.
        first: see `ByClass`.
        domain_of: see `ByClass`.
        shares: see `ByClass`.
    """

    classes: tuple[tuple[Domain, SuiteClass], ...]
    first: Tensor
    domain_of: Tensor
    shares: Tensor


def choose_classes(suite: Suite, split: Split, shares: Mapping[str, float], every: int = 1) -> Chosen:
    """The classes of a split of some domains.

    Args:
        suite: where they are.
        split: whose classes are taken.
        shares: how often an example of each domain is drawn, in proportion.
        every: take every n-th class.
    """
    chosen, domain_of = [], []
    for number, name in enumerate(shares):
        domain = suite.domain(name)
        classes = suite.classes(domain, split)[::every]
        if not classes:
            raise InvalidSuite(f"domain {name!r} has no classes in split {split!r}: leave it out")
        chosen += [(domain, each) for each in classes]
        domain_of += [number] * len(classes)
    first = torch.tensor([0, *(len(each) for _, each in chosen)]).cumsum(0)
    share = torch.tensor(list(shares.values()), dtype=torch.float64)
    return Chosen(tuple(chosen), first, torch.tensor(domain_of), share / share.sum())


def domain_shares(names: Sequence[str]) -> dict[str, float]:
    """Equal shares."""
    return dict.fromkeys(names, 1 / len(names))
