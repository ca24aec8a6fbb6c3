"""Which classes are for what: no class that trains a source trains a router, none of these is ever tested on.

Concepts are dealt, not classes: a letter that occurs in four styles of writing is in the same split in all of them.
"""

import hashlib
from collections.abc import Sequence
from itertools import cycle
from typing import Literal, get_args

Split = Literal["source", "router", "validation", "calibration", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
"""Training of sources, training of routers, choices while they train, thresholds and certificates, tests."""

_INSIDE: tuple[Split, ...] = (
    "source", "test", "source", "router", "source", "validation", "test", "source", "calibration", "source",
    "router", "validation", "source", "test", "source", "validation", "router", "source", "calibration", "test",
)  # fmt: skip
_OUTSIDE: tuple[Split, ...] = ("test", "validation")


def deal(inside: Sequence[Sequence[str]], outside: Sequence[Sequence[str]]) -> dict[str, Split]:
    """Deal the keys of classes into splits, the same way every time.

    Every domain's keys that no earlier domain had are dealt in an order that looks random: of twenty, 8 train sources,
    3 routers, 3 are for validation, 2 for calibration and 4 for tests. Keys that occur only in domains that are held
    out are for validation and tests in turn.

    Args:
        inside: keys of each domain that may be trained on.
        outside: keys of each domain that is held out.

    >>> [deal(["abcdefghijklmnopqrst"], []).get(key) for key in "abc"]
    ['router', 'source', 'test']
    """
    split_of: dict[str, Split] = {}
    for domains, pattern in ((inside, _INSIDE), (outside, _OUTSIDE)):
        for keys in domains:
            new = sorted(set(keys) - split_of.keys(), key=lambda key: hashlib.sha256(key.encode()).digest())
            split_of |= dict(zip(new, cycle(pattern), strict=False))
    return split_of
