"""What is asked of a posterior over routings: a decision rule, when it is too unsure, and what is done then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from smatter.errors import InvalidSettings

RuleName = Literal["point", "mean", "map", "gibbs", "top", "half"]
SIZED = ("gibbs", "top", "half")
USUAL = "half:3"
"""The decision of a posterior, unless another is asked for."""


@dataclass(frozen=True)
class Rule:
    """How a posterior becomes networks.

    Args:
        name: `point`, the router's own routing; `mean`, one network at the expected routing; `map`, the likeliest
            routing; `gibbs`, random routings, averaged; `top`, the likeliest, averaged by their probabilities; `half`,
            the router's own with half of the weight and the likeliest others with the other half.
        n_members: routings that are drawn or taken, beside the router's own.
    """

    name: RuleName
    n_members: int = 1

    def __post_init__(self) -> None:
        if self.name not in get_args(RuleName):
            raise InvalidSettings(f"unknown decision {self.name!r}: use {', '.join(get_args(RuleName))}")
        if not 1 <= self.n_members <= 1_000:
            raise InvalidSettings(f"a decision over {self.n_members} routings: give from 1 to 1000")

    @classmethod
    def parse(cls, text: str) -> Rule:
        """A rule as people write it, such as `mean` or `half:3`.

        >>> Rule.parse("half:3")
        Rule(name='half', n_members=3)
        """
        name, _, count = text.partition(":")
        is_sized = name in SIZED
        if name not in get_args(RuleName) or not re.fullmatch(r"\d{1,4}" if is_sized else "", count) or text[-1] == ":":
            forms = ", ".join(f"{name}:K" if name in SIZED else name for name in get_args(RuleName))
            raise InvalidSettings(f"unknown decision {text[:80]!r}: use one of {forms}")
        return cls(cast(RuleName, name), int(count) if is_sized else 1)

    @property
    def passes(self) -> int:
        """Passes of a query, at most."""
        return {"half": self.n_members + 1}.get(self.name, self.n_members)

    def __str__(self) -> str:
        return f"{self.name}:{self.n_members}" if self.name in SIZED else self.name


LimitKind = Literal["coverage", "risk"]

COVERAGE = 0.8
"""Share of the calibration tasks that is answered where a limit names a score and nothing else."""


@dataclass(frozen=True)
class Limit:
    """When a routing is too unsure.

    Args:
        score: of uncertainty, by name.
        kind: whether the threshold follows from the share of tasks that is answered, or from their mean error.
        value: that share or error.
    """

    score: str
    kind: LimitKind
    value: float

    @classmethod
    def parse(cls, text: str) -> Limit:
        """A limit as people write it; a score alone is one at which `COVERAGE` of the tasks are answered.

        >>> Limit.parse("entropy@risk=0.3"), Limit.parse("entropy").value
        (Limit(score='entropy', kind='risk', value=0.3), 0.8)
        """
        found = re.fullmatch(r"([a-z-]{1,40})@(coverage|risk)=(\d*\.?\d+)", text)
        if re.fullmatch("[a-z-]{1,40}", text):
            return cls(text, "coverage", COVERAGE)
        if not found or not 0 < float(found[3]) <= 1:
            raise InvalidSettings(
                f"{text[:80]!r} is no limit: give a score, alone or with a share, such as entropy, "
                "entropy@coverage=0.8 or entropy@risk=0.3"
            )
        return cls(found[1], cast(LimitKind, found[2]), float(found[3]))


ESCALATE, BASE, PRIOR_MEAN = "escalate", "base", "prior-mean"
"""What is done where a routing is too unsure: all sources are averaged beside it, or the base, or the mixture of the
router's weights without evidence, is taken instead; or a source, by its name."""


def check_fallback(name: str, sources: tuple[str, ...]) -> None:
    """Refuse a fallback that does not exist."""
    known = dict.fromkeys((ESCALATE, BASE, PRIOR_MEAN, *sources))
    if name not in known:
        raise InvalidSettings(f"unknown fallback {name[:80]!r}: use one of {', '.join(known)}")
