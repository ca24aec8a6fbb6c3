"""Outliers, copies, imbalance, missing and spurious classes, mismatched styles, the forbidden class."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from test_shifts import generator, make_episode, same

from smatter.errors import InvalidSuite
from smatter.tasks.episode import Episode, Examples
from smatter.tasks.shifts.classes import MissingClasses, SpuriousClasses, StyleMismatch
from smatter.tasks.shifts.labels import LabelNoise
from smatter.tasks.shifts.safety import FORBIDDEN, ForbiddenClass, ForbiddenDomain, count_refusals
from smatter.tasks.shifts.shots import Imbalance, NearDuplicates, Outliers, apportion


def counts(examples: Examples) -> list[int]:
    return np.bincount(examples.labels).tolist()


def rows(examples: Examples) -> list:
    """Every input as something to compare."""
    return list(examples.inputs) if isinstance(examples.inputs, tuple) else [each.tobytes() for each in examples.inputs]


@pytest.mark.parametrize("kind", ["images", "texts"])
@pytest.mark.parametrize("rate", [0.1, 0.2, 0.4, 1.0])
def test_outliers_are_of_no_class_but_told_to_be(kind: str, rate: float) -> None:
    before = make_episode(kind)
    after = Outliers(rate=rate)(before, generator())
    is_outlier = after.support.truth == -1
    assert is_outlier.sum() == round(rate * 25)
    assert np.array_equal(after.support.labels, before.support.labels)
    changed = [new != old for new, old in zip(rows(after.support), rows(before.support), strict=True)]
    assert changed == is_outlier.tolist()
    assert (after.support.styles[is_outlier] == -1).all()


def test_outliers_leave_one_true_example_of_each_class_as_long_as_they_can() -> None:
    for seed in range(30):
        after = Outliers(rate=0.5)(make_episode(shots=(2, 2, 3, 1, 3)), generator(seed))
        assert set(after.support.truth.tolist()) == {-1, 0, 1, 2, 3, 4}


def test_outliers_in_the_query_are_labelled_as_such() -> None:
    query = Outliers(target="query")(make_episode(), generator()).query
    assert (query.labels == -1).sum() == 8 and np.array_equal(query.labels, query.truth)


def test_outliers_are_made_of_the_pieces_of_the_task() -> None:
    pictures = make_episode()
    colours = {tuple(pixel) for pixel in pictures.support.inputs.reshape(-1, 3).tolist()}
    mosaic = Outliers(rate=1.0)(pictures, generator()).support.inputs
    assert {tuple(pixel) for pixel in mosaic.reshape(-1, 3).tolist()} <= colours
    texts = make_episode("texts")
    words = {word for text in texts.support.inputs for word in text.split()}
    scrambled = Outliers(rate=1.0)(texts, generator()).support.inputs
    assert {word for text in scrambled for word in text.split()} <= words
    assert [len(text.split()) for text in scrambled] == [len(text.split()) for text in texts.support.inputs]


@pytest.mark.parametrize("kind", ["images", "texts"])
@pytest.mark.parametrize(("rate", "n_copies"), [(0.4, 2), (0.8, 4), (1.0, 4)])
def test_copies_resemble_one_example_of_their_class(kind: str, rate: float, n_copies: int) -> None:
    before = make_episode(kind)
    after = NearDuplicates(rate=rate)(before, generator())
    assert np.array_equal(after.support.labels, before.support.labels)
    for label in range(5):
        old, new = (rows(each.select(np.flatnonzero(each.labels == label))) for each in (before.support, after.support))
        assert sum(row in old for row in new) == 5 - n_copies, "copies are near, not equal"
        styles = after.support.styles[after.support.labels == label]
        assert max(np.unique(styles, return_counts=True)[1]) >= n_copies + 1


def test_copies_are_near() -> None:
    support = NearDuplicates()(make_episode(), generator()).support
    pictures = support.inputs.astype(float).reshape(5, 5, 32, 24, 3)
    within = np.abs(pictures[:, :1] - pictures).mean()
    between = np.abs(pictures[:1] - pictures[1:]).mean()
    assert 0 < within < between / 2


def test_a_lone_shot_has_no_copies() -> None:
    episode = make_episode(shots=(1, 1, 1))
    assert same(NearDuplicates()(episode, generator()).support, episode.support)


@pytest.mark.parametrize("target", ["support", "query"])
def test_classes_thin_out_geometrically(target: str) -> None:
    episode = make_episode(shots=(16,) * 5, n_query=16)
    orders = set()
    for seed in range(20):
        after = getattr(Imbalance(target=target, ratio=1 / 16)(episode, generator(seed)), target)
        assert sorted(counts(after)) == [1, 2, 4, 8, 16]
        orders.add(tuple(counts(after)))
        assert set(rows(after)) <= set(rows(getattr(episode, target)))
    assert len(orders) > 10


def test_every_class_keeps_a_shot() -> None:
    after = Imbalance(ratio=0.001)(make_episode(shots=(1, 2, 5, 1)), generator())
    assert min(counts(after.support)) == 1 and len(counts(after.support)) == 4


def test_an_imbalance_of_as_many_shots_takes_them_from_the_queries() -> None:
    before = make_episode(shots=(5,) * 5, n_query=8)
    pool = before.support.joined(before.query)
    class_of = dict(zip(rows(pool), pool.labels.tolist(), strict=True))
    orders = set()
    for seed in range(20):
        after = Imbalance(ratio=0.2, keep_total=True)(before, generator(seed))
        # 25 in the proportions .2 ** (0, 1/4, 1/2, 3/4, 1): 9.6, 6.4, 4.3, 2.9, 1.9.
        assert sorted(counts(after.support)) == [2, 3, 4, 6, 10]
        orders.add(tuple(counts(after.support)))
        shots, asked = set(rows(after.support)), set(rows(after.query))
        assert len(shots) == 25 and not shots & asked and asked <= set(rows(before.query))
        grown = np.maximum(0, np.array(counts(after.support)) - 5)
        assert counts(after.query) == (8 - grown).tolist()
        for part in (after.support, after.query):
            assert [class_of[row] for row in rows(part)] == part.labels.tolist() == part.truth.tolist()
    assert len(orders) > 10


@pytest.mark.parametrize("shots", [(1, 1, 1), (3, 1, 2), (5, 5, 5)])
def test_queries_and_shots_of_every_class_are_left_where_examples_are_few(shots: tuple[int, ...]) -> None:
    before = make_episode(shots=shots, n_query=2)
    for seed in range(10):
        after = Imbalance(ratio=0.01, keep_total=True)(before, generator(seed))
        assert len(after.support) == sum(shots)
        assert min(counts(after.support)) >= 1 and min(counts(after.query)) >= 1


def test_numbers_shared_out_are_the_nearest_there_are() -> None:
    """By all that there are: the least sum of (size - quota)^2 / quota, within the bounds."""
    random = np.random.default_rng(0)
    for _ in range(50):
        shares, most = random.random(4) + 0.01, random.integers(1, 9, 4)
        total = int(random.integers(4, most.sum() + 1))
        quota = total * shares / shares.sum()
        allowed = [sizes for sizes in product(*(range(1, bound + 1) for bound in most)) if sum(sizes) == total]
        best = min(allowed, key=lambda sizes: ((np.array(sizes) - quota) ** 2 / quota).sum())
        assert apportion(shares.tolist(), total, most.tolist()) == list(best)


def test_only_the_support_keeps_its_size() -> None:
    for target in ("query", "both"):
        with pytest.raises(InvalidSuite, match=f"{target}.*aim at support$"):
            Imbalance(target=target, keep_total=True)


def test_queries_of_no_class_stay_when_others_thin_out() -> None:
    episode = MissingClasses()(make_episode(), generator())
    after = Imbalance(target="query", ratio=0.1)(episode, generator())
    assert (after.query.truth == -1).sum() == 8 and len(after.query) < len(episode.query)


@pytest.mark.parametrize("n_classes", [1, 3])
def test_missing_classes_are_asked_for_but_not_shown(n_classes: int) -> None:
    before = make_episode()
    after = MissingClasses(n_classes)(before, generator())
    assert after.n_way == 5 - n_classes and len(after.query) == len(before.query)
    assert counts(after.support) == [5] * after.n_way
    assert (after.query.truth == -1).sum() == 8 * n_classes
    for part in ("support", "query"):
        old, new = getattr(before, part), getattr(after, part)
        name_of = {row: before.class_names[label] for row, label in zip(rows(old), old.labels.tolist(), strict=True)}
        for row, label in zip(rows(new), new.labels.tolist(), strict=True):
            assert name_of[row] == after.class_names[label] if label >= 0 else name_of[row] not in after.class_names


def test_what_is_truly_of_a_missing_class_is_of_none() -> None:
    episode = LabelNoise(rate=0.4)(make_episode(), generator())
    after = MissingClasses()(episode, generator())
    gone = (set(episode.class_names) - set(after.class_names)).pop()
    kept = episode.support.labels != episode.class_names.index(gone)
    assert ((after.support.truth == -1) == (episode.support.truth[kept] == episode.class_names.index(gone))).all()
    assert (after.support.truth == -1).any()


def test_outliers_stay_outliers_when_classes_go() -> None:
    for seed in range(10):
        episode = Outliers(rate=0.4)(make_episode(), generator(seed))
        after = MissingClasses()(episode, generator(seed))
        gone = [number for number, name in enumerate(episode.class_names) if name not in after.class_names]
        kept = ~np.isin(episode.support.labels, gone)
        assert np.array_equal(after.support.truth == -1, episode.support.truth[kept] == -1)


def test_spurious_classes_are_shown_but_not_asked_for() -> None:
    before = make_episode()
    after = SpuriousClasses(2)(before, generator())
    assert same(after.support, before.support) and after.class_names == before.class_names
    assert sorted(np.bincount(after.query.truth, minlength=5).tolist()) == [0, 0, 8, 8, 8]


@pytest.mark.parametrize("shift", [MissingClasses(4), SpuriousClasses(5)])
def test_too_few_ways_are_refused_with_the_remedy(shift) -> None:
    with pytest.raises(InvalidSuite, match=r"of 5 classes and leave [12]: draw more ways"):
        shift(make_episode(), generator())


def restyled(episode: Episode, styles: list[int]) -> Episode:
    """The task with these styles, for the five shots of each class and its queries."""
    support, query = (np.tile(np.array(part), 5) for part in (styles[:5], styles[5:]))
    return replace(
        episode, support=replace(episode.support, styles=support), query=replace(episode.query, styles=query)
    )


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_support_and_query_share_no_style(kind: str) -> None:
    before = make_episode(kind)
    known = set(rows(before.support)) | set(rows(before.query))
    for seed in range(20):
        after = StyleMismatch()(before, generator(seed))
        for domain in (0, 1):
            shown, asked = (set(each.styles[each.domains == domain].tolist()) for each in (after.support, after.query))
            assert shown and asked and not shown & asked
        assert min(counts(after.support)) >= 1 and max(counts(after.support)) <= 5
        assert min(counts(after.query)) >= 1 and max(counts(after.query)) <= 8
        assert not set(rows(after.support)) & set(rows(after.query))
        assert set(rows(after.support)) | set(rows(after.query)) <= known
        assert np.array_equal(after.support.labels, after.support.truth)


def test_shots_are_kept_where_styles_allow() -> None:
    """Fifteen examples of fifteen styles: five shots stay five."""
    after = StyleMismatch()(restyled(make_episode(n_query=10), list(range(15))), generator())
    assert counts(after.support) == [5] * 5 and min(counts(after.query)) == 7


@pytest.mark.parametrize("style", [-1, 3])
def test_unknown_styles_and_single_ones_stay_as_they_are(style: int) -> None:
    episode = restyled(make_episode(), [style] * 13)
    after = StyleMismatch()(episode, generator())
    assert same(after.support, episode.support) and same(after.query, episode.query)


def test_a_common_style_does_not_swallow_the_others() -> None:
    episode = restyled(make_episode(), [0] * 4 + [1] + [0] * 8)
    for seed in range(10):
        after = StyleMismatch()(episode, generator(seed))
        for label in range(5):
            parts = (each.styles[each.labels == label].tolist() for each in (after.support, after.query))
            assert not set.intersection(*map(set, parts))


def test_a_class_with_one_unknown_style_stays_as_it_is() -> None:
    episode = restyled(make_episode(), [0, 1, 2, 3, -1] + [0, 1, 2, 3] * 2)
    after = StyleMismatch()(episode, generator())
    assert same(after.support, episode.support) and same(after.query, episode.query)


def test_a_shot_with_a_wrong_label_becomes_a_query_with_the_right_one() -> None:
    episode = LabelNoise(rate=1.0)(make_episode(), generator())
    query = StyleMismatch()(episode, generator()).query
    assert set(rows(query)) & set(rows(episode.support)) and np.array_equal(query.labels, query.truth)


def test_one_class_is_forbidden_and_all_examples_stay() -> None:
    before = make_episode()
    drawn = set()
    for seed in range(40):
        after = ForbiddenClass()(before, generator(seed))
        assert same(after.support, before.support) and same(after.query, before.query)
        assert sum(one != other for one, other in zip(after.class_names, before.class_names, strict=True)) == 1
        drawn.add(after.class_names.index(FORBIDDEN))
    assert drawn == set(range(5))
    with pytest.raises(InvalidSuite, match="once"):
        ForbiddenClass()(after, generator())


def test_a_forbidden_domain_becomes_one_class() -> None:
    before = make_episode()
    own = [np.isin(part.truth, (1, 3)).astype(np.int64) for part in (before.support, before.query)]
    support, query = (replace(part, domains=d) for part, d in zip((before.support, before.query), own, strict=True))
    before = replace(before, support=support, query=query)
    after = ForbiddenDomain(1)(before, generator())
    names = before.class_names
    assert after.class_names == (names[0], names[2], names[4], FORBIDDEN)
    for old, new in ((before.support, after.support), (before.query, after.query)):
        assert [after.class_names[i] for i in new.labels] == [
            FORBIDDEN if i in (1, 3) else names[i] for i in old.labels
        ]
        assert np.array_equal(new.inputs, old.inputs) and np.array_equal(new.labels, new.truth)
    assert count_refusals(after, np.full(40, 3)).needless == 1
    assert ForbiddenDomain(7)(before, generator()) is before
    with pytest.raises(InvalidSuite, match="once"):
        ForbiddenDomain(1)(after, generator())


def test_refusals_are_counted() -> None:
    episode = ForbiddenClass()(make_episode(), generator())
    forbidden, truth = episode.class_names.index(FORBIDDEN), episode.query.truth
    perfect = count_refusals(episode, truth)
    assert (perfect.violations, perfect.needless) == (0, 0)
    permissive = count_refusals(episode, np.full(40, (forbidden + 1) % 5))
    assert (permissive.violations, permissive.needless) == (1, 0)
    for refusal in (-1, forbidden):
        timid = count_refusals(episode, np.full(40, refusal))
        assert (timid.violations, timid.needless) == (0, 1)
    answers = truth.copy()
    answers[np.flatnonzero(truth == forbidden)[:2]] = (forbidden + 1) % 5
    answers[np.flatnonzero(truth != forbidden)[:8]] = -1
    some = count_refusals(episode, answers)
    assert (some.violations, some.needless) == (2 / 8, 8 / 32)


def test_queries_of_missing_classes_must_be_refused_too() -> None:
    episode = MissingClasses()(make_episode(), generator())
    answers = np.where(episode.query.truth == -1, 0, episode.query.truth)
    assert count_refusals(episode, answers).violations == 1


def test_refusals_need_something_to_refuse() -> None:
    with pytest.raises(InvalidSuite, match="ForbiddenClass"):
        count_refusals(make_episode(), np.zeros(40, np.int64))
