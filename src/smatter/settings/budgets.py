"""How a router's experts are trained to serve budgets."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from smatter.errors import InvalidSettings
from smatter.settings import check_at_least, check_positive, check_shares


@dataclass(frozen=True)
class BudgetTraining:
    """How the shared change of a router's experts is trained to serve budgets; weights and masks stay as they are.

    Budgets are shares of what all that a task opens costs beyond the base.

    Args:
        n_steps: of the optimizer.
        n_tasks: tasks of a step; each is passed with everything open, at the tightest budget and at one between.
        rate: of the shared change, at its height.
        tightest: the smallest budget.
        imitation: share of the loss at smaller budgets that imitates the predictions with everything open.
        memory: how fast values of units follow what is seen: the part of the newest task in them.
        evidence_share: share of the tasks on which the router is told how each source does.
        warm_up: share of the steps in which the rate rises.
        validate_every: steps between two validations.
        patience: steps without a better validation after which training ends.
        seed: of tasks and budgets.
    """

    n_steps: int = 300
    n_tasks: int = 4
    rate: float = 5e-4
    tightest: float = 0.05
    imitation: float = 0.5
    memory: float = 0.05
    evidence_share: float = 0.5
    warm_up: float = 0.05
    validate_every: int = 100
    patience: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least(
            1, n_steps=self.n_steps, n_tasks=self.n_tasks, validate_every=self.validate_every, patience=self.patience
        )
        check_positive(rate=self.rate)
        check_shares(self, "tightest", "memory", above_zero=True)
        check_shares(self, "imitation", "evidence_share", "warm_up")
        if self.tightest == 1:
            raise InvalidSettings("the tightest budget must be below 1, which is everything")

    def to_dict(self) -> dict[str, Any]:
        """As router.json holds them."""
        return asdict(self)

    def budgets(self, chance: float) -> tuple[float, float]:
        """The tightest budget, and one between that and everything for a number in [0, 1): log-uniform.

        >>> BudgetTraining(tightest=0.01).budgets(0.5)
        (0.01, 0.1)
        """
        return self.tightest, math.pow(self.tightest, 1 - chance)
