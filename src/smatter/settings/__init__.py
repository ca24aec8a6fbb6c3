"""What commands can be told to do: frozen records that check themselves. Nothing here needs torch or numpy.

Settings of a method stand in the method's own file, those of training and of devices in files beside this one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from smatter.errors import InvalidSettings, SmatterError

HeadName = Literal["prototype", "ridge", "logistic", "linear"]
"""How classes are told apart: by a head fitted to the examples' features, or `linear`, the checkpoints' own."""

Mix = Literal["weights", "predictions", "both"]
"""What is averaged: the sources' weights, their predictions, or those and the predictions of the mixed network."""

MAX_STEPS = 10_000
"""Of a fit: each passes all examples through the network a few times, and a stranger's recipe may ask for them."""


def check_choices(settings: object, error: type[SmatterError] = InvalidSettings, **choices: Any) -> None:
    """Refuse what is not one of the words that a setting may be.

    Args:
        settings: the record.
        error: what is raised.
        choices: a `Literal` for each setting.
    """
    for name, choice in choices.items():
        if (value := getattr(settings, name)) not in get_args(choice):
            raise error(f"unknown {name} {str(value)[:80]!r}: use {', '.join(get_args(choice))}")


def check_shares(
    settings: object, *names: str, above_zero: bool = False, error: type[SmatterError] = InvalidSettings
) -> None:
    """Refuse what is no share of a whole.

    Args:
        settings: the record.
        names: of its settings that are shares.
        above_zero: whether 0 is refused too.
        error: what is raised.
    """
    for name in names:
        value = getattr(settings, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= 1 or (above_zero and value == 0):  # also rejects NaN
            wanted = "above 0 and up to 1" if above_zero else "between 0 and 1"
            raise error(f"{name} is {str(value)[:80]}: give a share {wanted}")


def check_at_least(least: float, /, **values: float) -> None:
    """Refuse numbers below a bound."""
    for name, value in values.items():
        if value is None or not least <= value < math.inf:  # also rejects NaN
            raise InvalidSettings(f"{name} is {value}: give {least:g} or more")


def check_steps(least: int, /, **values: int) -> None:
    """Refuse numbers of steps below a bound or above `MAX_STEPS`: a recipe that is fitted again says its own."""
    check_at_least(least, **values)
    for name, value in values.items():
        if value > MAX_STEPS:
            raise InvalidSettings(f"{name} is {value}: give at most {MAX_STEPS}")


def check_limits(**values: int | None) -> None:
    """Refuse limits below 1; None is no limit."""
    for name, value in values.items():
        if value is not None and not 1 <= value < math.inf:
            raise InvalidSettings(f"{name} is {value}: give 1 or more, or leave it out")


def check_positive(**values: float) -> None:
    """Refuse numbers that are not above zero."""
    for name, value in values.items():
        if value is None or not 0 < value < math.inf:
            raise InvalidSettings(f"{name} is {value}: give a number above 0")


def check_temperature(temperature: float | None) -> None:
    """Refuse what is no temperature; None is the default one."""
    if temperature is not None and not 0 < temperature < math.inf:
        raise InvalidSettings(f"temperature {temperature} is not a positive number: 1 is a good start")


def check_privacy(epsilon: float, delta: float) -> None:
    """Refuse what is no differential privacy."""
    if not (0 < epsilon < math.inf and 0 < delta < 1):  # also rejects NaN
        raise InvalidSettings(f"epsilon {epsilon} and delta {delta}: give a positive epsilon and a delta below 1")


@dataclass(frozen=True, kw_only=True)
class MixSettings:
    """What a method averages.

    Args:
        mix: weights makes one network of mixed weights; predictions averages what several sources say, each a network
            and a pass of its own; both does that with the mixed network as one of them.
        passes: the most passes of an input, through one network each; as many as are worth it by default.
        branch: the first module in which the networks differ; up to it they share the mixed weights, and a pass.
    """

    mix: Mix = "weights"
    passes: float | None = None
    branch: str | None = None

    def __post_init__(self) -> None:
        check_choices(self, mix=Mix)
        if self.passes is not None:
            check_at_least(1, passes=self.passes)
        if self.mix == "weights" and (self.passes or 1) > 1:
            raise InvalidSettings("mixed weights are one network and one pass: say --mix predictions or --mix both")
        if self.mix == "weights" and self.branch is not None:
            raise InvalidSettings("one network has no branches: say --mix predictions or --mix both")
