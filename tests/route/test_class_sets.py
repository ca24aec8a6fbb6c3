"""Limits of class sets: those of conformal prediction, by domain, rounded up; a choice among rules pays."""

import numpy as np
import pytest

from smatter.certify.conformal import conformal_limit_of_tasks
from smatter.route.class_sets import SET_COVERAGES, class_sets


def test_limits_are_conformal_for_all_tasks_and_for_each_domain() -> None:
    generator = np.random.default_rng(0)
    misses = [generator.random(4) ** (2 if index % 2 else 1) for index in range(60)]
    domains = [("greek", None, "latin")[index % 3] for index in range(60)]
    found = class_sets(misses, domains, "some-list")
    assert (found.n, found.tasks, set(found.domains)) == (60, "some-list", {"greek", "latin"})
    for coverage in SET_COVERAGES:
        for rows, limit in (
            (misses, found.limit(coverage)),
            (misses[::3], found.limit(coverage, "greek")),
            (misses[2::3], found.limit(coverage, "latin")),
        ):
            exact = min(1.0, conformal_limit_of_tasks(rows, 1 - coverage).value)
            assert exact <= limit == pytest.approx(exact, abs=1.1e-6)
    assert found.limit(0.99) == 1.0 and "every class is in each set" in found.promise(0.99)


def test_who_chooses_among_rules_gets_wider_sets() -> None:
    misses = list(np.random.default_rng(0).random((200, 4)))
    alone, chosen = (class_sets(misses, [None] * 200, "some-list", choices).limit(0.9) for choices in (1, 2))
    assert alone < chosen == class_sets(misses, [None] * 200, "some-list").limit(0.95)
