"""Catalogues check themselves; builders against every set of small tables."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smatter.algebra.tail import tail_risk
from smatter.errors import BudgetInfeasible, InvalidSettings, InvalidWeights
from smatter.posterior.catalogue import AverageMember, BestMember, Catalogue, choose_members

N_TASKS, N_ROUTINGS, N_QUERIES = 8, 6, 5
seeds = st.integers(0, 1000)


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_catalogue(**changes) -> Catalogue:
    fields = {
        "names": ("a", "b", "a+b"),
        "weights": torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]),
        "experts": torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]),
        "costs": torch.tensor([1.0, 1.0, 2.0]),
    }
    return Catalogue(**(fields | changes))


def every_set(size: int):
    return itertools.chain.from_iterable(
        itertools.combinations(range(N_ROUTINGS), count) for count in range(1, size + 1)
    )


def test_points_lie_side_by_side_and_subsets_keep_their_names() -> None:
    catalogue = make_catalogue()
    assert catalogue.points[2].tolist() == [0.5, 0.5, 0.5, 0.5]
    part = catalogue.subset([2, 0])
    assert part.names == ("a+b", "a") and part.costs.tolist() == [2, 1]
    assert part.points.tolist() == catalogue.points[[2, 0]].tolist()
    assert catalogue.affordable(1.0).names == ("a", "b") and len(catalogue) == 3
    catalogue.check_total(4.0)


def test_bad_catalogues_say_what_to_mend() -> None:
    empty = torch.zeros(0, 2)
    for error, text, changes in (
        (InvalidSettings, "empty", {"names": (), "weights": empty, "experts": empty, "costs": torch.zeros(0)}),
        (InvalidSettings, "2 costs", {"costs": torch.ones(2)}),
        (InvalidSettings, "called 'a'", {"names": ("a", "b", "a")}),
        (InvalidWeights, "sources of routing 'b'", {"weights": torch.tensor([[1.0, 0], [0.6, 0.6], [0, 1]])}),
        (InvalidWeights, "experts of routing 'a'", {"experts": torch.tensor([[1.2, -0.2], [1, 0], [0, 1]])}),
        (InvalidWeights, "'a.b'", {"weights": torch.tensor([[1.0, 0], [0, 1], [torch.nan, 1]])}),
        (InvalidSettings, "finite cost", {"costs": torch.tensor([1.0, torch.nan, 1])}),
    ):
        with pytest.raises(error, match=text):
            make_catalogue(**changes)
    with pytest.raises(BudgetInfeasible, match="the cheapest 1: raise the limit"):
        make_catalogue().affordable(0.5)
    with pytest.raises(BudgetInfeasible, match="cost 4 together, above 3"):
        make_catalogue().check_total(3.0)


@given(seeds, st.sampled_from([1.0, 0.25]))
@settings(deadline=None, max_examples=30)
def test_losses_of_sets_are_what_they_say(seed: int, rho: float) -> None:
    losses, logs = rand(N_TASKS, N_ROUTINGS, seed=seed), rand(N_TASKS, N_ROUTINGS, N_QUERIES, seed=seed).log()
    companion = rand(N_TASKS, N_QUERIES, seed=seed + 1).log()
    for members in ((0,), (1, 4), (0, 2, 5)):
        best = torch.stack([losses[:, at] for at in members]).amin(dim=0)
        assert BestMember(losses, rho)(members) == pytest.approx(float(tail_risk(best, rho)))
        mean = sum(logs[:, at].exp() for at in members) / len(members)
        assert AverageMember(logs, rho=rho)(members) == pytest.approx(float(tail_risk(-mean.log().mean(dim=1), rho)))
        half = -(0.5 * mean + 0.5 * companion.exp()).log().mean(dim=1)
        assert AverageMember(logs, companion=companion, rho=rho)(members) == pytest.approx(float(tail_risk(half, rho)))


def test_queries_that_a_task_does_not_have_count_nothing() -> None:
    logs, weights = rand(3, 4, 5).log(), torch.ones(3, 5).double()
    weights[1, 3:] = 0
    padded = logs.clone()
    padded[1, :, 3:] = torch.nan
    alone = [AverageMember(logs[task : task + 1, :, :n])((0, 2)) for task, n in enumerate((5, 3, 5))]
    assert AverageMember(padded, weights)((0, 2)) == pytest.approx(sum(alone) / 3)
    impossible = logs.clone()
    impossible[0, 1, 2] = -torch.inf
    assert AverageMember(impossible)((1,)) > 30 > AverageMember(impossible)((0, 1))


def test_numbers_that_are_missing_from_a_table_are_named() -> None:
    losses, logs = rand(3, 4), rand(3, 4, 5).log()
    losses[2, 1] = logs[2, 1, 0] = torch.nan
    for make in (lambda: BestMember(losses), lambda: AverageMember(logs)):
        with pytest.raises(InvalidSettings, match="task 2 and routing 1"):
            make()


@given(seeds, st.integers(1, 4))
@settings(deadline=None, max_examples=30)
def test_builders_come_close_to_the_best_set(seed: int, size: int) -> None:
    losses, costs = rand(N_TASKS, N_ROUTINGS, seed=seed), torch.ones(N_ROUTINGS)
    for loss in (BestMember(losses), AverageMember(-3 * rand(N_TASKS, N_ROUTINGS, N_QUERIES, seed=seed))):
        best = min(map(loss, every_set(size)))
        found = {name: choose_members(loss, costs, size, builder=name) for name in ("greedy", "beam", "medoids")}
        for each in found.values():
            assert len(each.members) <= size and each.loss == loss(each.members)
            assert each.loss >= best
        assert found["medoids"].loss <= found["greedy"].loss
        assert found["medoids"].evaluations > found["greedy"].evaluations
    # Gains over having nothing, a loss of 1 on each task, are monotone and diminish: greedy gets 1 - 1/e of them.
    loss = BestMember(losses)
    gain = 1 - min(map(loss, every_set(size)))
    assert 1 - choose_members(loss, costs, size).loss >= 0.632 * gain


def test_more_members_of_an_average_can_harm_and_are_then_left_out() -> None:
    logs = torch.tensor([0.9, 0.1, 0.1]).log().expand(2, 3).unsqueeze(-1)
    loss = AverageMember(logs)
    assert choose_members(loss, torch.ones(3), 3).members == (0,)
    assert loss((0,)) - loss((0, 1)) < loss((0, 2)) - loss((0, 1, 2)), "and so its gains do not diminish"


def test_an_average_wants_other_members_than_a_choice() -> None:
    """Two routings that are best on half of the tasks each, and two that are right about different queries of all."""
    probs = torch.tensor(
        [
            [[0.9, 0.9], [0.01, 0.01], [0.95, 0.3], [0.3, 0.95]],
            [[0.01, 0.01], [0.9, 0.9], [0.95, 0.3], [0.3, 0.95]],
        ]
    )
    costs = torch.ones(4)
    assert choose_members(BestMember(-probs.log().mean(dim=2)), costs, 2, builder="medoids").members == (0, 1)
    assert choose_members(AverageMember(probs.log()), costs, 2, builder="medoids").members == (2, 3)


@given(seeds, st.floats(1.0, 3.0))
@settings(deadline=None, max_examples=30)
def test_no_builder_spends_more_than_the_limit(seed: int, limit: float) -> None:
    loss, costs = BestMember(rand(N_TASKS, N_ROUTINGS, seed=seed)), rand(N_ROUTINGS, seed=seed + 1)
    affordable = [each for each in every_set(4) if float(costs[list(each)].sum()) <= limit]
    best = min(map(loss, affordable))
    for builder in ("greedy", "beam", "medoids"):
        found = choose_members(loss, costs, 4, builder=builder, limit=limit)
        assert float(costs[list(found.members)].sum()) <= limit + 1e-9
        assert found.loss >= best
    with pytest.raises(BudgetInfeasible, match="every routing costs more than 0"):
        choose_members(loss, costs, 4, limit=0.0)


def test_unknown_builders_and_sizes_are_refused() -> None:
    loss = BestMember(rand(2, 3))
    with pytest.raises(InvalidSettings, match="use greedy, beam, medoids"):
        choose_members(loss, torch.ones(3), 2, builder="best")
    with pytest.raises(InvalidSettings, match="size is 0"):
        choose_members(loss, torch.ones(3), 0)
