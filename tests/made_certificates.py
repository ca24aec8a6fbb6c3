"""Certificates of numbers that are made up."""

from typing import Any

import numpy as np

from smatter.route.certificates import Certificate
from smatter.route.class_sets import class_sets
from smatter.route.judged import Judged, bounds_of, selected_of


def judged(n: int, seed: int = 0) -> Judged:
    """Tasks whose score says much of their error."""
    generator = np.random.default_rng(seed)
    scores = generator.random(n)
    errors = generator.binomial(20, 0.05 + 0.5 * scores) / 20
    misses = tuple(generator.random((n, 4)))
    return Judged(errors, errors / 2, {"weight-entropy": scores, "support-loss": generator.random(n)}, misses)


def certificate(n: int = 60, **changes: Any) -> Certificate:
    """Of the rule `router`, on such tasks."""
    found = judged(n)
    facts: dict[str, Any] = {
        "rule": "router",
        "tasks": "some-list",
        "digest": "a" * 64,
        "n": n,
        "delta": 0.05,
        "domains": {"greek": ("alpha", "beta"), "latin": ("a",)},
        "router": "b" * 64,
        "sources": "c" * 64,
        "bounds": bounds_of(found, 0.05),
        "selected": selected_of(found, 0.05),
        "sets": class_sets(found.misses, ["greek", "latin"] * (n // 2), "some-list"),
        "watched": {name: tuple(values.tolist()) for name, values in found.scores.items()},
    }
    return Certificate(**(facts | changes))
