"""What keeps residual experts apart while they learn, so that none does everything and none does nothing.

Clean tasks have the null expert, of which the router is told. At first it is also told which variant a task is of, and
each has its expert. While that fades, what the router chooses over many tasks is held near the shares in which it meets
them, and now and then the expert of most weight is closed, so that others learn to stand in.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from smatter.settings.training import Parting
from smatter.train.curriculum import Series
from smatter.train.lessons import Lesson

MEMORY = 0.9
"""Of the running mean of choices, from step to step: a step has few tasks."""


def expert_of(variant: int | None, n_experts: int) -> int:
    """The expert that a variant begins with; the last is the null expert, for clean tasks.

    >>> [expert_of(variant, 2) for variant in (0, 1, 2, None)]
    [0, 1, 0, 2]
    >>> expert_of(1, 0)  # there is no other
    0
    """
    return n_experts if variant is None or not n_experts else variant % n_experts


def expert_names(variants: Sequence[str], n_experts: int) -> list[str]:
    """What to call each expert: by the variants that it begins with.

    >>> expert_names(["inverted", "outline", "halftone"], 2)
    ['inverted, halftone', 'outline']
    >>> expert_names(["worn", "worn"], 2)  # two severities
    ['worn', 'worn 2']
    """
    found = [
        [name for number, name in enumerate(variants) if expert_of(number, n_experts) == each]
        for each in range(n_experts)
    ]
    told: list[str] = []
    for number, names in enumerate(found, 1):
        name = ", ".join(names) or "expert"
        told.append(name if names and name not in told else f"{name} {number}")
    return told


def expected_load(series: Sequence[Series], n_experts: int) -> Tensor:
    """The share of the tasks that each expert begins with, (n_experts + 1,); none has nothing."""
    load = torch.full((n_experts + 1,), 1e-3)
    for each in series:
        load[expert_of(each.variant, n_experts)] += each.share
    return load / load.sum()


class Keeper:
    """Keeps experts apart in one training.

    Args:
        settings: how much.
        expected: the share of the tasks for each expert and the null expert, (n_experts + 1,).
    """

    def __init__(self, settings: Parting, expected: Tensor) -> None:
        self.settings, self.expected = settings, expected
        self.load = expected.clone()
        """What was chosen of late, which changes from step to step."""

    def closed(self, n_tasks: int, generator: torch.Generator) -> list[bool]:
        """For each task of a step whether its first choice is closed."""
        return (torch.rand(n_tasks, generator=generator) < self.settings.dropout).tolist()

    def price(self, scores: Sequence[Tensor], lessons: Sequence[Lesson], done: float) -> Tensor:
        """What to add to the loss of a step.

        Args:
            scores: of experts and null expert for each task, (n_experts + 1,) each.
            lessons: the tasks.
            done: share of the steps before this one.
        """
        stacked = torch.stack(list(scores))
        labels = torch.tensor([expert_of(each.variant, len(self.expected) - 1) for each in lessons])
        left = max(0.0, 1 - done / self.settings.labelled)
        prices = torch.tensor([1.0 if each.variant is None else left for each in lessons])
        told = self.settings.labels * (prices * cross_entropy(stacked, labels, reduction="none")).mean()
        load = MEMORY * self.load + (1 - MEMORY) * stacked.softmax(dim=1).mean(dim=0)
        self.load.copy_(load.detach())
        balance = (self.expected * (self.expected / load.clamp(min=1e-6)).log()).sum()
        return told + self.settings.balance / (1 - MEMORY) * balance


def first_choice_closed(scores: Tensor) -> Tensor:
    """Scores, (n_experts + 1,), with the expert of most weight closed; the null expert stays.

    >>> first_choice_closed(torch.tensor([1.0, 2.0, 5.0]))
    tensor([1., -inf, 5.])
    """
    first = scores[:-1].argmax()
    return scores.masked_fill(torch.arange(len(scores)) == first, -torch.inf)
