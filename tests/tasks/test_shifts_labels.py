"""Label noise: how many labels change, to what, and that no class vanishes where it need not."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from test_shifts import generator, make_episode

from smatter.errors import InvalidSuite
from smatter.tasks.shifts.labels import LabelNoise

SHOTS = [
    (5,) * 5,
    (1,) * 5,
    (1,) * 7,
    (1,) * 20,
    (1, 1, 1, 1, 2),
    (1, 1, 1, 3),
    (2, 1),
    (1, 4, 2, 9, 1),
    (3, 3),
    (1,) * 3,
]


@pytest.mark.parametrize("kind", ["random", "pairs"])
@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4, 0.7, 1.0])
@pytest.mark.parametrize("shots", SHOTS)
def test_exactly_the_share_asked_for_changes(kind: str, rate: float, shots: tuple[int, ...]) -> None:
    before = make_episode(shots=shots)
    for seed in range(20):
        after = LabelNoise(rate=rate, kind=kind)(before, generator(seed))
        changed = after.support.labels != before.support.labels
        assert changed.sum() == round(rate * sum(shots))
        assert np.array_equal(after.support.truth, before.support.truth)
        assert after.query is before.query and after.support.inputs is before.support.inputs


@pytest.mark.parametrize("shots", [(5,) * 5, (1,) * 5, (4, 1, 2, 3), (1,) * 6, (2, 2, 2)])
def test_pairs_have_one_wrong_class_for_each_class(shots: tuple[int, ...]) -> None:
    before = make_episode(shots=shots).support.labels
    for seed in range(20):
        after = LabelNoise(rate=1.0, kind="pairs")(make_episode(shots=shots), generator(seed)).support.labels
        partner = dict(zip(before.tolist(), after.tolist(), strict=True))
        assert [partner[label] for label in before.tolist()] == after.tolist()
        back = sum(partner[partner[label]] == label for label in partner)
        assert back == len(shots) - 3 * (len(shots) % 2), "all but three of an odd number are pairs"


def test_random_noise_reaches_every_wrong_class() -> None:
    before = make_episode().support.labels
    seen = set()
    for seed in range(60):
        after = LabelNoise(rate=0.4)(make_episode(), generator(seed)).support.labels
        seen |= set(zip(before.tolist(), after.tolist(), strict=True))
    assert seen == set(product(range(5), range(5)))


def test_every_example_is_as_likely_to_change() -> None:
    episode = make_episode(shots=(4, 4, 4))
    counts = sum(
        LabelNoise(rate=0.25)(episode, generator(seed)).support.labels != episode.support.labels for seed in range(2000)
    )
    assert np.abs(counts / 2000 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 2000)


def can_keep_all(labels: np.ndarray, n_wrong: int, n_way: int) -> bool:
    """Whether some choice of wrong labels leaves every class told; by trying all."""
    others = [[label for label in range(n_way) if label != old] for old in range(n_way)]
    for places in combinations(range(len(labels)), n_wrong):
        kept = set(np.delete(labels, places).tolist())
        for wrong in product(*(others[labels[place]] for place in places)):
            if len(kept | set(wrong)) == n_way:
                return True
    return False


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4, 0.6])
@pytest.mark.parametrize("shots", [(1,) * 5, (1, 1, 1, 1, 2), (1, 1, 1, 3), (2, 1), (2, 2, 2), (3, 1, 1), (1, 2, 1)])
def test_random_noise_keeps_every_class_told_if_that_is_possible(rate: float, shots: tuple[int, ...]) -> None:
    episode = make_episode(shots=shots)
    possible = can_keep_all(episode.support.labels, round(rate * sum(shots)), len(shots))
    for seed in range(40):
        told = LabelNoise(rate=rate)(episode, generator(seed)).support.labels
        assert (len(set(told.tolist())) == len(shots)) == possible


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("shots", SHOTS)
def test_pairs_lose_a_class_only_where_one_lone_shot_must_change(rate: float, shots: tuple[int, ...]) -> None:
    episode = make_episode(shots=shots)
    n_wrong = round(rate * sum(shots))
    for seed in range(40):
        told = LabelNoise(rate=rate, kind="pairs")(episode, generator(seed)).support.labels
        lost = len(shots) - len(set(told.tolist()))
        only_lone_shots = max(shots) == 1
        odd = n_wrong % 2 == 1 and (len(shots) % 2 == 0 or n_wrong == 1)
        assert lost == (only_lone_shots and odd)


def test_the_order_of_examples_does_not_matter() -> None:
    """In a support whose order is turned round, as many labels change and every class is still told."""
    episode = make_episode(shots=(1, 5, 2, 3))
    turned = replace(episode, support=episode.support.select(np.arange(len(episode.support))[::-1]))
    for seed in range(20):
        support = LabelNoise(rate=0.4)(turned, generator(seed)).support
        assert (support.labels != support.truth).sum() == round(0.4 * 11) and len(set(support.labels.tolist())) == 4


def test_one_class_cannot_be_confused() -> None:
    with pytest.raises(InvalidSuite, match="more ways"):
        LabelNoise()(make_episode(shots=(5,)), generator())


@pytest.mark.parametrize(("kind", "told"), [("random", "001121020"), ("pairs", "001120020")])
def test_later_versions_change_the_same_labels(kind: str, told: str) -> None:
    """Frozen lists do not notice a changed shift; this does."""
    labels = LabelNoise(rate=0.4, kind=kind)(make_episode(shots=(2, 3, 4)), generator(1)).support.labels
    assert "".join(map(str, labels.tolist())) == told
