"""The sampler: what tasks look like, and that they are the same wherever and whenever they are drawn."""

import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_suites import keys, picture_suite, text_suite, usual_suite

from smatter.errors import InvalidSuite
from smatter.tasks.episode import Episode
from smatter.tasks.packed import read_packed, write_packed
from smatter.tasks.sampler import Draw, Sampler, SamplerSettings
from smatter.tasks.splits import SPLITS

SUITE = usual_suite()
PINNED = Draw(((0, 7), (0, 8), (0, 11)), ((85, 84), (104,), (137, 139)), ((93, 95), (103, 101), (133, 142)))
PROGRAM = """
import sys
from pathlib import Path
from smatter.tasks.packed import read_packed
from smatter.tasks.sampler import Sampler, SamplerSettings
sampler = Sampler(read_packed(Path(sys.argv[1])), SamplerSettings("all", n_way=(2, 4), n_shot=(1, 3)), 7)
print([sampler.draw(index) for index in range(20)])
"""


def draws(n: int = 200, seed: int = 0, **settings) -> list[Draw]:
    sampler = Sampler(SUITE, SamplerSettings(**settings), seed)
    return [sampler.draw(index) for index in range(n)]


def same(first: Episode, second: Episode) -> bool:
    columns = ("labels", "truth", "domains", "styles", "inputs")
    pairs = [
        (getattr(one, column), getattr(other, column))
        for one, other in ((first.support, second.support), (first.query, second.query))
        for column in columns
    ]
    return first.class_names == second.class_names and all(np.array_equal(one, other) for one, other in pairs)


def test_tasks_are_the_same_in_this_process_in_workers_and_in_another_program(tmp_path: Path) -> None:
    write_packed(tmp_path / "suite", picture_suite())
    sampler = Sampler(read_packed(tmp_path / "suite"), SamplerSettings("all", n_way=(2, 4), n_shot=(1, 3)), 7)
    wanted = [sampler.draw(index) for index in range(20)]
    episodes = [sampler.episode(index) for index in range(20)]
    assert [sampler.draw(index) for index in reversed(range(20))] == wanted[::-1]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(sampler.draw, range(20))) == wanted
        assert all(map(same, pool.map(sampler.episode, range(20)), episodes))
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "suite")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "5"})
    assert done.stdout.strip() == str(wanted)


def test_what_is_drawn_does_not_change_from_version_to_version() -> None:
    """If this fails, every frozen list is void: change it only on purpose."""
    suite = text_suite({"print": ("id", keys(0, 20))})
    sampler = Sampler(suite, SamplerSettings("all", n_way=(3, 3), n_shot=(1, 2), n_query=2), 1)
    assert sampler.draw(5) == PINNED


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SPLITS), st.integers(2, 4), st.integers(0, 6), st.integers(1, 3), st.integers(0, 6),
    st.integers(1, 20), st.integers(1, 2), st.integers(0, 10**6),
)  # fmt: skip
def test_support_and_query_are_disjoint_and_of_the_split(
    split, low_way, more_ways, low_shot, more_shots, n_query, n_domains, seed
) -> None:
    ways, shots = (low_way, low_way + more_ways), (low_shot, low_shot + more_shots)
    asked = SamplerSettings(split, "id", ways, shots, n_query, (n_domains, n_domains))
    sampler = Sampler(SUITE, asked, seed)
    for index in range(5):
        draw, episode = sampler.draw(index), sampler.episode(index)
        assert ways[0] <= episode.n_way == len(draw.classes) <= ways[1]
        assert len({domain for domain, _ in draw.classes}) == n_domains
        allowed = {each.key for domain in SUITE.domains for each in SUITE.classes(domain, split)}
        drawn = [SUITE.domains[d].classes[c].key for d, c in draw.classes]
        assert len(set(drawn)) == len(drawn) and set(drawn) <= allowed
        assert not set(episode.support.inputs) & set(episode.query.inputs)
        assert len(set(episode.query.inputs)) == len(episode.query)
        for support, query in zip(draw.support, draw.query, strict=True):
            assert shots[0] <= len(support) <= shots[1]
            assert len(query) == min(n_query, 12 - len(support))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(1, 1), (2, 3)]))
def test_labels_domains_and_inputs_belong_together(seed: int, n_domains: tuple[int, int]) -> None:
    episode = Sampler(SUITE, SamplerSettings("test", n_domains=n_domains), seed).episode(seed % 7)
    for examples in (episode.support, episode.query):
        assert (examples.labels == examples.truth).all() and (examples.styles == -1).all()
        for text, label, number in zip(examples.inputs, examples.labels, examples.domains, strict=True):
            domain, key, _ = text.split("/")
            assert SUITE.domains[number].name == domain
            assert episode.class_names[label] == (key if n_domains == (1, 1) else f"{domain}: {key}")


def test_pictures_and_styles_belong_together() -> None:
    suite = picture_suite()
    sampler = Sampler(suite, SamplerSettings("all", n_way=(3, 4), n_shot=(2, 2), ood_fraction=0.5))
    for index in range(10):
        draw, episode = sampler.draw(index), sampler.episode(index)
        numbers = [number for each in draw.support for number in each]
        domain = suite.domains[draw.classes[0][0]]
        assert np.array_equal(episode.support.inputs, domain.store.take(numbers))
        assert episode.support.styles.tolist() == [domain.style_of[number] for number in numbers]


def test_mixed_tasks_have_classes_of_two_or_three_domains_evenly() -> None:
    seen = Counter()
    for draw in draws(split="test", n_way=(6, 6), n_domains=(2, 3)):
        counts = Counter(domain for domain, _ in draw.classes)
        seen[len(counts)] += 1
        assert len(set(counts.values())) == 1, "six classes of two or three domains are three or two of each"
    assert set(seen) == {2, 3} and min(seen.values()) > 60


def test_domains_that_share_every_concept_still_mix() -> None:
    suite = text_suite({"print": ("id", keys(0, 40)), "hand": ("id", keys(0, 40))})
    sampler = Sampler(suite, SamplerSettings("validation", n_way=(4, 4), n_domains=(2, 2)))
    for index in range(100):
        draw = sampler.draw(index)
        assert Counter(domain for domain, _ in draw.classes) == {0: 2, 1: 2}
        assert len({suite.domains[d].classes[c].key for d, c in draw.classes}) == 4


def test_domains_that_cannot_mix_are_refused_not_looped_over() -> None:
    suite = text_suite({"print": ("id", ["a", "b"]), "hand": ("id", ["a", "b"])})
    sampler = Sampler(suite, SamplerSettings("all", n_way=(4, 4), n_domains=(2, 2)))
    with pytest.raises(InvalidSuite, match="share so many concepts"):
        sampler.draw(0)


def test_varied_tasks_use_the_whole_range() -> None:
    varied = draws(400, split="test", n_way=(5, 10), n_shot=(1, 10))
    assert {len(draw.classes) for draw in varied} == set(range(5, 11))
    shots = [len(support) for draw in varied for support in draw.support]
    assert set(shots) == set(range(1, 11))
    assert abs(np.mean(shots) - 5.5) < 0.3
    assert any(len({len(support) for support in draw.support}) > 1 for draw in varied), "shots are imbalanced"


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_the_share_of_tasks_from_domains_held_out_is_gamma(gamma: float) -> None:
    n = 1000
    n_outside = sum(SUITE.domains[draw.classes[0][0]].role == "ood" for draw in draws(n, ood_fraction=gamma))
    assert abs(n_outside / n - gamma) <= 4 * (gamma * (1 - gamma) / n) ** 0.5


def test_every_domain_class_and_example_is_drawn_alike() -> None:
    drawn = draws(3000, split="test", n_way=(5, 5), n_shot=(2, 2))
    domains = Counter(draw.classes[0][0] for draw in drawn)
    assert set(domains) == {0, 1, 2, 3}
    assert all(abs(count / 3000 - 1 / 4) < 0.04 for count in domains.values())
    places = Counter(
        (number - SUITE.domains[d].classes[c].start) for draw in drawn
        for (d, c), support in zip(draw.classes, draw.support, strict=True) for number in support
    )  # fmt: skip
    total = sum(places.values())
    assert all(abs(places[place] / total - 1 / 12) < 0.01 for place in range(12))


def test_seed_index_settings_and_suite_all_matter() -> None:
    one = draws(20)
    assert one == draws(20) and len(set(one)) == 20
    assert not set(one) & set(draws(20, seed=1))
    assert [d.classes for d in one] != [d.classes for d in draws(20, n_query=9)]
    other = Sampler(usual_suite(11), SamplerSettings(), 0)
    assert [other.draw(index).classes for index in range(20)] != [d.classes for d in one]


def test_only_the_domains_asked_for() -> None:
    drawn = draws(50, split="test", domains=("hand", "flags"))
    assert {SUITE.domains[d].name for draw in drawn for d, _ in draw.classes} == {"hand", "flags"}


def test_shifts_have_random_numbers_of_their_own() -> None:
    sampler = Sampler(SUITE, SamplerSettings(), 0)
    assert sampler.generator(0).random() != sampler.generator(0, "shifts").random()
    assert sampler.generator(0).random() == sampler.generator(0).random()


IMPOSSIBLE = {
    "unknown split": ({"split": "train"}, "unknown split"),
    "unknown role": ({"role": "in"}, "unknown role"),
    "one way": ({"n_way": (1, 5)}, "n_way from 1"),
    "reversed": ({"n_shot": (5, 1)}, "n_shot from 5 to 1"),
    "no shots": ({"n_shot": (0, 1)}, "n_shot"),
    "too many ways": ({"n_way": (5, 10**9)}, "n_way"),
    "no query": ({"n_query": 0}, "n_query"),
    "fewer ways than domains": ({"n_way": (2, 5), "n_domains": (1, 3)}, "cannot come from"),
    "nan": ({"ood_fraction": float("nan")}, "ood_fraction"),
    "unknown domain": ({"domains": ("nowhere",)}, "no domain 'nowhere'"),
    "more ways than classes": ({"n_way": (30, 30)}, "0 id domains with 30 classes"),
    "more shots than examples": ({"n_shot": (1, 12)}, "13 examples"),
    "training on what is held out": ({"role": "ood", "split": "source"}, "0 ood domains"),
    "more domains than there are": ({"n_way": (9, 9), "n_domains": (5, 5), "split": "test"}, "5 are needed"),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible_tasks_are_refused_before_any_is_drawn(case: str) -> None:
    asked, message = IMPOSSIBLE[case]
    with pytest.raises(InvalidSuite, match=message):
        Sampler(SUITE, SamplerSettings(**asked))
