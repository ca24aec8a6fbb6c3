"""Searches against all sets, on maximum coverage and on losses without diminishing returns."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smatter.errors import InvalidSettings
from smatter.posterior.search import (
    beam_search,
    brute_force,
    increasing_returns,
    random_points,
    random_search,
    swap_search,
)


def coverage_loss(sets: list[frozenset[int]], n_elements: int):
    """1 - share of a universe that the chosen sets cover (Bayes-routed paper, section 8)."""
    return lambda members: 1 - len(frozenset().union(*(sets[at] for at in members))) / n_elements


def table_loss(seed: int, n: int):
    """An arbitrary function of sets."""

    def loss(members: tuple[int, ...]) -> float:
        key = sum(2**at for at in members)
        return float(torch.rand(2**n, generator=torch.Generator().manual_seed(seed))[key])

    return loss


def best_of_all(loss, n: int, size: int) -> float:
    return min(loss(each) for count in range(1, size + 1) for each in itertools.combinations(range(n), count))


universes = st.lists(st.frozensets(st.integers(0, 11), max_size=6), min_size=2, max_size=8)


@given(universes, st.integers(1, 4))
@settings(deadline=None)
def test_greedy_covers_its_share_of_what_the_best_set_covers(sets: list[frozenset[int]], size: int) -> None:
    loss = coverage_loss(sets, 12)
    greedy, best = beam_search(loss, len(sets), size), brute_force(loss, len(sets), size)
    assert best.loss == best_of_all(loss, len(sets), size)
    assert 1 - greedy.loss >= (1 - 1 / math.e) * (1 - best.loss) - 1e-12
    assert greedy.loss >= best.loss


def test_greedy_can_miss_the_best_cover() -> None:
    """The large set that it takes first is covered by the other two, which together cover all."""
    sets = [frozenset({1, 2, 4, 5}), frozenset({0, 1, 2}), frozenset({3, 4, 5})]
    loss = coverage_loss(sets, 6)
    assert beam_search(loss, 3, 2).members[0] == 0 and beam_search(loss, 3, 2).loss == pytest.approx(1 / 6)
    for found in (beam_search(loss, 3, 2, width=3), brute_force(loss, 3, 2)):
        assert found.members == (1, 2) and found.loss == 0


@given(universes)
@settings(deadline=None, max_examples=30)
def test_coverage_has_diminishing_returns(sets: list[frozenset[int]]) -> None:
    if len(sets) > 2:
        assert increasing_returns(coverage_loss(sets, 12), len(sets), 50, torch.Generator().manual_seed(0)) == 0


def test_mixtures_have_increasing_returns() -> None:
    """The squared distance of the mean of some points from a target: no diminishing returns, and greedy may fail.

    Alone, 1 and 2 are far from the target at 0; together they are there. 0 is the best alone, and 1 helps it only
    where 2 is a member already.
    """
    points = torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, -3.0]])

    def loss(members: tuple[int, ...]) -> float:
        return float(points[list(members)].mean(dim=0).square().sum())

    small, large = loss((0,)) - loss((0, 1)), loss((0, 2)) - loss((0, 1, 2))
    assert small < 0 < large
    assert increasing_returns(loss, 3, 200, torch.Generator().manual_seed(0)) > 0.3
    assert beam_search(loss, 3, 2).members == (0,) and brute_force(loss, 3, 2).members == (1, 2)


@given(st.integers(0, 500), st.integers(2, 6), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_searches_agree_with_all_sets_where_they_try_all(seed: int, n: int, size: int) -> None:
    loss = table_loss(seed, n)
    best = best_of_all(loss, n, min(size, n))
    assert brute_force(loss, n, size).loss == best
    assert beam_search(loss, n, size, width=100).loss == best
    assert brute_force(loss, n, size).evaluations == sum(math.comb(n, count) for count in range(1, min(size, n) + 1))
    greedy = beam_search(loss, n, size)
    assert greedy.loss >= best and greedy.evaluations == sum(n - at for at in range(min(size, n)))
    assert greedy.loss == loss(greedy.members), "the best set on the way, not the last"


@given(st.integers(0, 500), st.integers(1, 30))
@settings(deadline=None, max_examples=40)
def test_no_search_evaluates_more_than_it_may(seed: int, evaluations: int) -> None:
    calls: list[tuple[int, ...]] = []
    plain = table_loss(seed, 6)

    def loss(members: tuple[int, ...]) -> float:
        calls.append(members)
        return plain(members)

    generator = torch.Generator().manual_seed(seed)
    for search in (
        lambda: beam_search(loss, 6, 3, width=2, evaluations=evaluations),
        lambda: brute_force(loss, 6, 3, evaluations=evaluations),
        lambda: random_search(loss, 6, 3, evaluations=evaluations, generator=generator),
        lambda: swap_search(loss, 6, (0, 1), evaluations=evaluations),
    ):
        calls.clear()
        found = search()
        assert len(calls) == found.evaluations <= evaluations
        assert len(set(calls)) == len(calls), "no set is evaluated twice"
        assert found.loss == min(map(plain, calls))
        assert all(members == tuple(sorted(members)) for members in calls)
    assert not brute_force(loss, 6, 3, evaluations=40).complete
    assert brute_force(loss, 6, 3, evaluations=41).complete


@given(st.integers(0, 500))
@settings(deadline=None, max_examples=30)
def test_no_exchange_helps_the_end_of_a_swap_search(seed: int) -> None:
    loss = table_loss(seed, 6)
    found = swap_search(loss, 6, (0, 1, 2))
    assert len(found.members) == 3 and found.loss <= loss((0, 1, 2))
    for old, new in itertools.product(found.members, set(range(6)) - set(found.members)):
        assert loss(tuple(sorted({*found.members, new} - {old}))) >= found.loss


def test_only_allowed_sets_are_tried_and_losses_without_a_number_are_worst() -> None:
    def loss(members: tuple[int, ...]) -> float:
        return math.nan if 0 in members else -float(sum(members))

    found = brute_force(loss, 4, 2, allowed=lambda members: 3 not in members)
    assert found.members == (1, 2)
    with pytest.raises(InvalidSettings, match="no set of routings is allowed"):
        beam_search(loss, 4, 2, allowed=lambda _: False)


def test_random_points_are_uniform_on_their_simplices_and_the_best_is_kept() -> None:
    seen: list[torch.Tensor] = []

    def loss(point: torch.Tensor) -> float:
        seen.append(point)
        return float((point - torch.tensor([0.2, 0.3, 0.5, 0.9, 0.1])).square().sum())

    found = random_points(loss, (3, 2), evaluations=4000, generator=torch.Generator().manual_seed(0))
    points = torch.stack(seen)
    assert found.evaluations == len(points) == 4000 and found.loss == min(map(loss, list(points)))
    torch.testing.assert_close(
        points.mean(dim=0), torch.tensor([1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2]).double(), atol=0.02, rtol=0
    )
    # A uniform point of a triangle has a first weight above 1/2 with probability 1/4.
    assert float((points[:, 0] > 0.5).double().mean()) == pytest.approx(0.25, abs=0.03)
    assert found.loss < 0.02
