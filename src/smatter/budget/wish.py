"""What a user allows, as words: 8ms, 8ms@p95, 1.1x, 90mJ, 12MB. Nothing here needs torch or numpy."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from smatter.errors import InvalidSettings

UNITS = {
    "ms": ("ms", 1.0), "s": ("ms", 1e3), "us": ("ms", 1e-3), "mJ": ("mJ", 1.0), "J": ("mJ", 1e3), "x": ("x", 1.0),
    "kB": ("bytes", 1e3), "MB": ("bytes", 1e6), "GB": ("bytes", 1e9),
}  # fmt: skip
"""The unit of a profile that each word stands for, and how many of it. x is a multiple of the base's own cost."""

EXAMPLES = "8ms, 8ms@p95, 1.1x, 90mJ or 12MB"


@dataclass(frozen=True)
class BudgetWish:
    """The most that one forward pass may cost.

    Args:
        value: how much of the unit.
        unit: ms, mJ, bytes, or x: a multiple of the base.
        quantile: of the times or energies that must not be above; the profile's own if none is named.
    """

    value: float
    unit: str
    quantile: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in {unit for unit, _ in UNITS.values()}:
            raise InvalidSettings(f"unknown unit {self.unit[:40]!r} of a budget: write {EXAMPLES}")
        if not 0 < self.value < math.inf:  # also rejects NaN
            raise InvalidSettings(f"a budget of {self.value} {self.unit} is not positive and finite: write {EXAMPLES}")
        if self.quantile is not None and not 0 < self.quantile < 1:
            raise InvalidSettings(f"quantile {self.quantile} of a budget is not between 0 and 1: write 8ms@p95")
        if self.quantile is not None and self.unit == "bytes":
            raise InvalidSettings("bytes do not vary from run to run: write 12MB without a quantile")

    def __str__(self) -> str:
        value, unit = (self.value / 1e6, "MB") if self.unit == "bytes" else (self.value, self.unit)
        return f"{value:g}{unit}" + (f"@p{100 * self.quantile:g}" if self.quantile is not None else "")


def parse_budget(words: str) -> BudgetWish:
    """Read a budget.

    >>> parse_budget("8ms@p95")
    BudgetWish(value=8.0, unit='ms', quantile=0.95)
    >>> parse_budget("12MB")
    BudgetWish(value=12000000.0, unit='bytes', quantile=None)
    """
    number, _, quantile = words.strip().partition("@")
    match = re.fullmatch(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf))\s*([A-Za-z]*)", number.strip())
    if match is None:
        raise InvalidSettings(f"{words[:40]!r} is no budget: write {EXAMPLES}")
    amount, unit = float(match[1]), match[2]
    if not unit:
        raise InvalidSettings(f"the budget {words[:40]!r} has no unit: write {EXAMPLES}")
    if unit not in UNITS:
        raise InvalidSettings(f"unknown unit {unit[:40]!r} of a budget: write {EXAMPLES}")
    name, factor = UNITS[unit]
    if "@" not in words:
        return BudgetWish(amount * factor, name)
    percent = re.fullmatch(r"\s*p(\d+\.?\d*)\s*", quantile)
    if percent is None:
        raise InvalidSettings(f"{quantile[:40]!r} is no quantile of a budget: write 8ms@p95")
    return BudgetWish(amount * factor, name, float(percent[1]) / 100)
