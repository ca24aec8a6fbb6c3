"""The second term of a task's model: how far it opens units of a shared delta (multi-source paper, section 6).

    sum_m alpha_m (z_m * delta)

The delta and the masks z_m, a bank, are shared by all tasks; what a task keeps is alpha, or a gate for each unit.
"""

from dataclasses import dataclass

import numpy as np

from smatter.compose.residual import Elements
from smatter.errors import InvalidRecipe

MAX_EXPERTS = 1_000
TOLERANCE = 1e-4
"""How far above one the weights may sum, and gates may be open: they are rounded to float32."""


@dataclass(frozen=True)
class ExpertMix:
    """Weights of the experts of a bank.

    Args:
        bank: digest of the bank.
        alpha: weight of each expert, float32 values; what is missing to one is the null expert's.
        opened: how far each open unit is open, where a task has tuned them one by one; the experts' masks say it
            otherwise.
    """

    bank: str
    alpha: tuple[float, ...]
    opened: Elements | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.alpha) <= MAX_EXPERTS:
            raise InvalidRecipe(f"{len(self.alpha)} experts: a bank has 1 to {MAX_EXPERTS}")
        if not (min(self.alpha) >= 0 and sum(self.alpha) <= 1 + TOLERANCE):
            raise InvalidRecipe("the experts' weights must not be negative nor sum to more than one")
        if self.opened is not None:
            gates = self.opened.values
            if gates.size and not (float(gates.min()) >= 0 and float(gates.max()) <= 1 + TOLERANCE):
                raise InvalidRecipe("units must be open between 0 and 1")

    @property
    def is_idle(self) -> bool:
        """Whether no unit is open, so that the bank is not needed."""
        return not any(self.alpha) if self.opened is None else not np.any(self.opened.values)
