"""Labelled texts to train on, and how they are varied while a network sees them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from smatter.backbones.network import Inputs
from smatter.backbones.texts import Tokenizer
from smatter.errors import InvalidSettings
from smatter.tasks.splits import Split
from smatter.tasks.suite import Suite
from smatter.train.examples import ByClass, choose_classes

PART = 64


@dataclass(frozen=True)
class TrainingTexts(ByClass):
    """Texts as token numbers, class after class, domain after domain.

    Args:
        ids: token numbers, (n, length).
        mask: 1 where there is text, (n, length).
        first: number of the first text of each class, (n_classes + 1,); the last entry is n.
        domain_of: domain of each class, (n_classes,).
        shares: how often a text of each domain is drawn, (n_domains,), summing to one.
    """

    ids: Tensor
    mask: Tensor
    first: Tensor
    domain_of: Tensor
    shares: Tensor

    @classmethod
    def of(
        cls, suite: Suite, split: Split, shares: Mapping[str, float], tokenizer: Tokenizer, every: int = 1
    ) -> TrainingTexts:
        """The texts of a split of some domains, cut to the tokenizer's length; see `choose_classes`."""
        chosen = choose_classes(suite, split, shares, every)
        texts = [
            str(text) for domain, each in chosen.classes for text in domain.store.take(range(each.start, each.stop))
        ]
        tokens = tokenizer.tokens(texts)
        return cls(tokens["input_ids"], tokens["attention_mask"], chosen.first, chosen.domain_of, chosen.shares)

    @property
    def key(self) -> dict[str, Any]:
        """Tells what a run learnt from, for its state."""
        tokens = hashlib.sha256((self.ids * self.mask).numpy().tobytes()).hexdigest()
        return {"n_classes": self.n_classes, "n_texts": len(self.ids), "tokens": tokens}

    @property
    def variation(self) -> type:
        """What can vary these examples."""
        return Omission

    def draw(self, n: int, generator: torch.Generator) -> tuple[Inputs, Tensor]:
        """Tokens of n texts, and their classes."""
        places, labels = self.places(n, generator)
        return {"input_ids": self.ids[places], "attention_mask": self.mask[places]}, labels

    def parts(self) -> Iterator[Inputs]:
        """All texts in order, some at a time."""
        for ids, mask in zip(self.ids.split(PART), self.mask.split(PART), strict=True):
            yield {"input_ids": ids, "attention_mask": mask}

    def prepared(self, drawn: Inputs) -> Inputs:
        """Tokens need no preparation."""
        return drawn


@dataclass(frozen=True)
class Omission:
    """Some tokens are left out of sight: neither attended to nor averaged.

    Args:
        rate: how many of them; the first of a text is always seen.
    """

    rate: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:  # also rejects NaN
            raise InvalidSettings(f"a rate of {self.rate}: leave out a share of the tokens below 1")

    def __call__(self, tokens: Inputs, generator: torch.Generator) -> Inputs:
        """The same tokens with another mask."""
        seen = torch.rand(tokens["attention_mask"].shape, generator=generator) >= self.rate
        seen[:, 0] = True
        return tokens | {"attention_mask": tokens["attention_mask"] * seen}
