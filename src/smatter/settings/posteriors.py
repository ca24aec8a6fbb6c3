"""How a posterior over routings is learnt from tables: its family, its objective, its prior. No torch."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, cast

from smatter.errors import InvalidSettings
from smatter.settings import check_at_least, check_choices, check_positive

Family = Literal["categorical", "two-level", "concrete", "logistic-normal", "dirichlet"]
"""How q is parameterised; `posterior.families` says what each is."""

Target = Literal["average", "gibbs"]

LEAST_SHARE = 1e-6
MOST_PRIOR = 1e3
"""Of beta, in nats, and of a mean cost: beyond it nothing is left of dearer routings."""


@dataclass(frozen=True)
class PosteriorTraining:
    """How a posterior is trained.

    Args:
        target: the loss of the average prediction of the likeliest routings, or of one random routing.
        members: routings that are averaged, beside the point, which has half of the weight; for `average`. Families
            that are learnt from samples draw as many.
        cvar: rho, the worst share of the tasks that counts; all of them by default.
        kl: lambda, price of leaving the prior.
        window: tasks whose losses set the threshold of the worst share; none by default.
        n_steps: of the optimizer.
        n_tasks: tasks of a step.
        rate: of learning.
        seed: of the first weights and of the order of tasks.
    """

    target: Target = "average"
    members: int = 3
    cvar: float = 1.0
    kl: float = 0.01
    window: int = 0
    n_steps: int = 300
    n_tasks: int = 32
    rate: float = 1e-2
    seed: int = 0

    def __post_init__(self) -> None:
        check_choices(self, target=Target)
        check_at_least(1, members=self.members, n_steps=self.n_steps, n_tasks=self.n_tasks)
        check_at_least(0, kl=self.kl, window=self.window)
        check_positive(rate=self.rate)
        check_tail(self.cvar, self.n_tasks, self.window)


def check_tail(cvar: float, n_tasks: int, window: int) -> None:
    """Refuse a worst share of the tasks of a step that is less than one of them, and windows that have none.

    Args:
        cvar: rho, the share.
        n_tasks: tasks of a step.
        window: tasks whose losses set the threshold; none of 0.
    """
    if not LEAST_SHARE <= cvar <= 1:  # also rejects NaN
        raise InvalidSettings(
            f"the worst share of tasks is {cvar}: give --cvar above 0 and up to 1, {LEAST_SHARE:g} at least"
        )
    least = math.floor(1 / cvar) + 1
    if window and window < least:
        raise InvalidSettings(f"a window of {window} tasks has no worst {cvar:g}: give --window {least} or more")
    if cvar * n_tasks < 1 and not window:
        raise InvalidSettings(
            f"the worst {cvar:g} of the {n_tasks} tasks of a step is less than one of them: raise --cvar to "
            f"{1 / n_tasks:g} or more, or give --window {least} or more"
        )


PriorKind = Literal["uniform", "cost", "mean-cost"]


@dataclass(frozen=True)
class Prior:
    """What a posterior pays to leave.

    A routing costs as many networks as are read to compose it: its sources, and its open experts.

    Args:
        kind: `uniform`, all routings alike; `cost`, p in proportion to exp(-value cost); `mean-cost`, the same with the
            beta at which a random routing costs `value` on average.
        value: beta in nats, or that cost.
    """

    kind: PriorKind = "uniform"
    value: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Prior:
        """A prior as people write it.

        >>> Prior.parse("cost=0.5")
        Prior(kind='cost', value=0.5)
        """
        if text == "uniform":
            return cls()
        found = re.fullmatch(r"(cost|mean-cost)=(\d*\.?\d+)", text)
        if not found:
            raise InvalidSettings(f"unknown prior {text[:80]!r}: use uniform, cost=BETA or mean-cost=COST")
        if float(found[2]) > MOST_PRIOR:
            raise InvalidSettings(
                f"the prior {text[:80]!r} leaves nothing of dearer routings: give {MOST_PRIOR:g} at most"
            )
        return cls(cast(PriorKind, found[1]), float(found[2]))

    def __str__(self) -> str:
        return self.kind if self.kind == "uniform" else f"{self.kind}={self.value:g}"
