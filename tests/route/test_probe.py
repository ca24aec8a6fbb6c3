"""The probe set: which classes it has, and that it is the same every time."""

import numpy as np
import pytest
from small_suites import keys, picture_suite, text_suite, usual_suite

from smatter.errors import InvalidSuite
from smatter.route.probe import N_CLASSES, N_EXAMPLES, draw_probe


def test_a_group_of_every_domain_inside_of_classes_that_no_source_has_seen() -> None:
    suite = usual_suite()
    probe = draw_probe(suite)
    assert probe.names == ("print", "hand", "icons", "flags")
    sizes = [min(N_CLASSES, len(suite.classes(suite.domain(name), "router"))) for name in probe.names]
    for group, (name, size) in enumerate(zip(probe.names, sizes, strict=True)):
        rows, classes = probe.members(group)
        allowed = {each.key for each in suite.classes(suite.domain(name), "router")}
        texts = [str(probe.inputs[row]).split("/") for row in rows.tolist()]
        assert {domain for domain, _, _ in texts} == {name} and {key for _, key, _ in texts} <= allowed
        assert len(texts) == size * N_EXAMPLES
        by_class = {(key, int(label)) for (_, key, _), label in zip(texts, classes, strict=True)}
        assert len(by_class) == size and {label for _, label in by_class} == set(range(size))


def test_it_is_the_same_every_time_and_pictures_work_too() -> None:
    suite = picture_suite(n_classes=30, n_examples=12)
    with pytest.raises(InvalidSuite, match="2 are needed"):
        draw_probe(suite)
    one, two = draw_probe(usual_suite()), draw_probe(usual_suite())
    assert one.inputs == two.inputs and bool((one.classes == two.classes).all())


def test_domains_with_too_few_classes_are_left_out() -> None:
    suite = text_suite({"a": ("id", keys(0, 40)), "b": ("id", keys(40, 80)), "tiny": ("id", ["only"])})
    probe = draw_probe(suite)
    assert probe.names == ("a", "b") and np.array_equal(np.unique(probe.groups.numpy()), [0, 1])
