"""Splits: a concept is in one of them, wherever it occurs, and every split gets its share."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from small_suites import keys, text_suite, usual_suite

from smatter.tasks.splits import SPLITS, deal

NAMES = st.lists(st.text(max_size=3), max_size=30)
DOMAINS = st.lists(NAMES, max_size=4)


@settings(max_examples=50, deadline=None)
@given(DOMAINS, DOMAINS, st.randoms())
def test_order_within_a_domain_does_not_matter(inside, outside, random) -> None:
    dealt = deal(inside, outside)
    shuffled = [random.sample(domain, len(domain)) for domain in inside]
    assert deal(shuffled, outside) == dealt
    assert dealt.keys() == {key for domain in (*inside, *outside) for key in domain}


@settings(max_examples=50, deadline=None)
@given(DOMAINS, DOMAINS, DOMAINS)
def test_a_new_domain_moves_no_concept_of_the_others(inside, outside, more) -> None:
    before, after = deal(inside, []), deal([*inside, *more], outside)
    assert before.items() <= after.items()


def test_every_twenty_new_concepts_are_dealt_8_3_3_2_4() -> None:
    counts = Counter(deal([keys(0, 200), keys(150, 250)], []).values())
    wanted = {"source": 0.4, "router": 0.15, "validation": 0.15, "calibration": 0.1, "test": 0.2}
    assert all(abs(counts[split] / 250 - share) < 0.02 for split, share in wanted.items())


def test_no_class_and_no_example_is_in_two_splits() -> None:
    suite = usual_suite()
    concepts = {split: set() for split in SPLITS}
    texts = {split: set() for split in SPLITS}
    for domain in suite.domains:
        for split in SPLITS:
            for each in suite.classes(domain, split):
                concepts[split].add(each.key)
                texts[split] |= set(domain.store.take(range(each.start, each.stop)))
    for first in SPLITS:
        assert concepts[first] and texts[first]
        for second in set(SPLITS) - {first}:
            assert not concepts[first] & concepts[second]
            assert not texts[first] & texts[second]


def test_domains_held_out_are_only_validated_and_tested_on() -> None:
    suite = usual_suite()
    for domain in suite.domains:
        used = {split for split in SPLITS if suite.classes(domain, split)}
        assert used == ({"validation", "test"} if domain.role == "ood" else set(SPLITS))


def test_a_domain_held_out_shows_no_concept_that_was_trained_on() -> None:
    suite = text_suite({"print": ("id", keys(0, 40)), "masks": ("ood", keys(0, 40))})
    inside, outside = suite.domains
    trained = {each.key for split in ("source", "router", "calibration") for each in suite.classes(inside, split)}
    shown = {each.key for split in SPLITS for each in suite.classes(outside, split)}
    assert shown and not shown & trained
