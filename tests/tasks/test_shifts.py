"""What holds for every shift: repeatable, its input untouched, aimed, storable, checked."""

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from smatter.errors import InvalidSuite
from smatter.tasks.episode import Episode, Examples
from smatter.tasks.shifts.catalogue import SHIFTS, apply, parse_shifts, table_of
from smatter.tasks.shifts.corruptions import Blur, GaussianNoise
from smatter.tasks.shifts.labels import LabelNoise
from smatter.tasks.shifts.renderings import Inverted
from smatter.tasks.shifts.shots import Imbalance

PIXELS = {
    "gaussian-noise", "blur", "jpeg", "occlusion", "low-contrast", "worn", "inverted", "outline", "textured-background",
    "strong-rotation", "gray-on-colour", "halftone", "stroke-thickness", "perspective", "grayscale", "colour-jitter",
}  # fmt: skip
TEXTS = {"template", "casing", "typos"}
COLUMNS = ("labels", "truth", "domains", "styles")
WORDS = ("quick", "brown", "fox", "jumps", "over", "lazy", "dog", "seven", "bright", "stars", "shine", "quiet", "hills")


def make_pictures(labels: np.ndarray, seed: int, size: tuple[int, int] = (32, 24)) -> np.ndarray:
    """On white, a bar that stands for the class and some dots that tell examples apart."""
    generator = np.random.default_rng(seed)
    pictures = np.full((len(labels), *size, 3), 255, np.uint8)
    for picture, label in zip(pictures, labels.tolist(), strict=True):
        picture[4:-4, 3 + 3 * (label % 6) : 6 + 3 * (label % 6)] = (20, 20, 60 + label)
        picture[generator.integers(4, size[0] - 4, 6), generator.integers(4, size[1] - 4, 6)] = 120
    return pictures


def make_texts(labels: np.ndarray, seed: int) -> tuple[str, ...]:
    words = np.random.default_rng(seed).choice(WORDS, (len(labels), 8)).tolist()
    return tuple(f"{' '.join(row)} {label} {seed}{i}" for i, (row, label) in enumerate(zip(words, labels, strict=True)))


def make_examples(shots: list[int], seed: int, kind: str) -> Examples:
    labels = np.repeat(np.arange(len(shots)), shots)
    inputs = make_pictures(labels, seed) if kind == "images" else make_texts(labels, seed)
    styles = np.concatenate([np.arange(n) % 4 for n in shots])
    return Examples(inputs, labels, labels.copy(), labels % 2, styles)


def make_episode(kind: str = "images", shots: tuple[int, ...] = (5,) * 5, n_query: int = 8) -> Episode:
    names = tuple(f"class {number}" for number in range(len(shots)))
    return Episode(make_examples(list(shots), 0, kind), make_examples([n_query] * len(shots), 1, kind), names)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def same(one: Examples, other: Examples) -> bool:
    inputs = one.inputs == other.inputs if isinstance(one.inputs, tuple) else np.array_equal(one.inputs, other.inputs)
    return bool(inputs) and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in COLUMNS)


def same_episode(one: Episode, other: Episode) -> bool:
    return same(one.support, other.support) and same(one.query, other.query) and one.class_names == other.class_names


def frozen(examples: Examples) -> Examples:
    """The same, with arrays that refuse to be written."""
    columns = {name: getattr(examples, name).copy() for name in COLUMNS}
    if not isinstance(examples.inputs, tuple):
        columns["inputs"] = examples.inputs.copy()
    for column in columns.values():
        column.flags.writeable = False
    return replace(examples, **columns)


def kinds_of(name: str) -> list[str]:
    """What a shift can be used on."""
    return (["images"] if name not in TEXTS else []) + (["texts"] if name not in PIXELS | {"spurious-cue"} else [])


EVERY = [(name, kind) for name in SHIFTS for kind in kinds_of(name)]
AIMED = [(name, kind) for name, kind in EVERY if any(field.name == "target" for field in fields(SHIFTS[name]))]


@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_the_same_generator_gives_the_same_task(name: str, kind: str) -> None:
    shift, episode = SHIFTS[name](), make_episode(kind)
    once = shift(episode, generator())
    assert same_episode(once, shift(episode, generator()))
    assert not same_episode(once, episode), "it does nothing"


@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_the_task_given_is_not_written_to(name: str, kind: str) -> None:
    episode = make_episode(kind)
    guarded = replace(episode, support=frozen(episode.support), query=frozen(episode.query))
    SHIFTS[name]()(guarded, generator())
    assert same_episode(guarded, episode)


@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_types_shapes_and_ranges_stay(name: str, kind: str) -> None:
    before = make_episode(kind, shots=(3, 5, 2, 4, 1))
    after = SHIFTS[name]()(before, generator())
    for part in ("support", "query"):
        old, new = getattr(before, part), getattr(after, part)
        for column in COLUMNS:
            assert getattr(new, column).shape == (len(new),) and getattr(new, column).dtype == np.int64
        assert len(new.inputs) == len(new) > 0 and type(new.inputs) is type(old.inputs)
        if kind == "images":
            assert new.inputs.dtype == np.uint8 and new.inputs.shape[1:] == old.inputs.shape[1:]
        assert new.truth.min() >= -1 and new.truth.max() < after.n_way
    assert after.support.labels.min() >= 0 and after.support.labels.max() < after.n_way
    assert np.array_equal(after.query.labels, after.query.truth), "labels of the query are the truth"


@pytest.mark.parametrize("target", ["support", "query"])
@pytest.mark.parametrize(("name", "kind"), AIMED)
def test_only_the_target_changes(name: str, kind: str, target: str) -> None:
    before = make_episode(kind)
    after = SHIFTS[name](target=target)(before, generator())
    assert same(after.support, before.support) == (target == "query")
    assert same(after.query, before.query) == (target == "support")


@pytest.mark.parametrize(("name", "kind"), AIMED)
def test_both_changes_both(name: str, kind: str) -> None:
    before = make_episode(kind)
    after = SHIFTS[name](target="both")(before, generator())
    assert not same(after.support, before.support) and not same(after.query, before.query)


@pytest.mark.parametrize("name", sorted(PIXELS | TEXTS))
def test_pixel_and_text_shifts_leave_labels_alone(name: str) -> None:
    before = make_episode(kinds_of(name)[0])
    after = SHIFTS[name]()(before, generator())
    for part in ("support", "query"):
        old, new = getattr(before, part), getattr(after, part)
        assert all(np.array_equal(getattr(old, column), getattr(new, column)) for column in COLUMNS)


@pytest.mark.parametrize("name", sorted(PIXELS | {"spurious-cue"}))
def test_pixel_shifts_refuse_texts_in_one_line(name: str) -> None:
    with pytest.raises(InvalidSuite, match=r"^[^\n]*pictures, but the task has texts: [^\n]*$"):
        SHIFTS[name]()(make_episode("texts"), generator())


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_text_shifts_refuse_pictures_in_one_line(name: str) -> None:
    with pytest.raises(InvalidSuite, match=r"^[^\n]*texts, but the task has pictures: [^\n]*$"):
        SHIFTS[name]()(make_episode(), generator())


@pytest.mark.parametrize(
    "name", ["blur", "jpeg", "low-contrast", "inverted", "outline", "grayscale", "template", "casing"]
)
def test_what_draws_no_random_numbers_ignores_the_order(name: str) -> None:
    episode = make_episode(kinds_of(name)[0])
    order = np.random.default_rng(5).permutation(len(episode.support))
    moved = replace(episode, support=episode.support.select(order))
    straight, other = (SHIFTS[name]()(each, generator(seed)) for seed, each in enumerate((episode, moved)))
    assert same(straight.support.select(order), other.support)


@pytest.mark.parametrize("name", SHIFTS)
def test_a_list_stores_every_shift(name: str) -> None:
    shift = SHIFTS[name]()
    stored = json.loads(json.dumps(table_of(shift)))
    assert all(isinstance(value, str | int | float) for value in stored.values())
    assert parse_shifts([stored]) == (shift,)


def test_settings_survive_storage() -> None:
    shifts = (GaussianNoise(target="query", severity=5), LabelNoise(rate=0.4, kind="pairs"), Imbalance(keep_total=True))
    assert parse_shifts([table_of(shift) for shift in shifts]) == shifts


@pytest.mark.parametrize("table", [{"shift": "sun"}, {}, {"shift": "blur", "sun": 1}, {"shift": "blur", "target": 3}])
def test_wrong_tables_are_refused(table: dict) -> None:
    with pytest.raises(InvalidSuite):
        parse_shifts([table])


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *((name, {"target": "all"}) for name, _ in AIMED),
        *(("blur", {"severity": value}) for value in (0, 6, 2.5, True, "3")),
        *(("label-noise", {"rate": value}) for value in (0, -0.1, 1.1, float("nan"), "much", True)),
        *((name, {"rate": 0}) for name in ("outliers", "near-duplicates", "typos")),
        ("label-noise", {"kind": "odd"}),
        ("imbalance", {"ratio": 0}),
        *(("imbalance", {"keep_total": value}) for value in (1, 0.5, "much")),
        ("missing-classes", {"n_classes": 0}),
        ("spurious-classes", {"n_classes": 1.5}),
        ("spurious-cue", {"strength": 0}),
        ("spurious-cue", {"query": "none"}),
        ("casing", {"case": "camel"}),
        ("template", {"template": "no place"}),
        ("template", {"template": "{} and {}"}),
        ("template", {"template": "{}"}),
    ],
)
def test_wrong_settings_are_refused_with_what_was_given(name: str, setting: dict) -> None:
    (value,) = setting.values()
    with pytest.raises(InvalidSuite) as caught:
        SHIFTS[name](**setting)
    assert str(value) in str(caught.value) and "\n" not in str(caught.value)


def test_shifts_come_one_after_the_other() -> None:
    episode = make_episode()
    shifts = (GaussianNoise(), Blur(), Inverted(), LabelNoise())
    shared = generator()
    by_hand = episode
    for shift in shifts:
        by_hand = shift(by_hand, shared)
    assert same_episode(apply(shifts, episode, generator()), by_hand)
    assert same_episode(apply((), episode, generator()), episode)
    assert same_episode(apply((Inverted(), Inverted()), episode, generator()), episode)


@pytest.mark.parametrize("left_out", ["forbidden-class", "forbidden-domain"])  # one class is forbidden once
def test_all_shifts_of_a_kind_can_follow_each_other(left_out: str) -> None:
    for kind in ("images", "texts"):
        shifts = [SHIFTS[name]() for name, each in EVERY if each == kind and name != left_out]
        for order in (shifts, shifts[::-1]):
            episode = apply(order, make_episode(kind, shots=(6,) * 6), generator())
            assert len(episode.support) > 0 and episode.support.labels.max() < episode.n_way
