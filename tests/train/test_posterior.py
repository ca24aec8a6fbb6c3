"""A posterior learnt from tables: it finds what is planted, keeps to its prior, and no order matters."""

import math
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch.nn.functional import cross_entropy

from smatter.backbones.heads import prototype_temperature
from smatter.errors import InvalidSettings
from smatter.posterior.amortised import N_FACTS, N_QUERY_FACTS, Amortised, PosteriorSettings, facts_of
from smatter.posterior.task_table import TaskTable
from smatter.settings.posteriors import Family, PosteriorTraining
from smatter.train.posterior import (
    Exercise,
    average_loss,
    half_weights,
    task_risk,
    train_posterior,
)

N_ROUTINGS, N_CLASSES, N_SHOT, N_QUERIES = 7, 3, 4, 12
PRIOR = torch.zeros(N_ROUTINGS, dtype=torch.float64).log_softmax(dim=0)


def planted(seed: int, good: int | None = None) -> TaskTable:
    """A task on which one routing, another from task to task, names examples and queries rightly more often."""
    generator = torch.Generator().manual_seed(seed)
    good = 1 + seed % (N_ROUTINGS - 1) if good is None else good
    labels = torch.arange(N_CLASSES).repeat_interleave(N_SHOT)
    truth = torch.randint(N_CLASSES, (N_QUERIES,), generator=generator)
    held_out = torch.randn(N_ROUTINGS, len(labels), N_CLASSES, generator=generator)
    scores = torch.randn(N_ROUTINGS, N_QUERIES, N_CLASSES, generator=generator)
    held_out[good, torch.arange(len(labels)), labels] += 2.5
    scores[good, torch.arange(N_QUERIES), truth] += 2.5
    points = torch.rand(N_ROUTINGS, 5, generator=torch.Generator().manual_seed(0))
    points = torch.cat([points / points.sum(dim=1, keepdim=True), torch.ones(N_ROUTINGS, 1)], dim=1)
    return TaskTable(points, held_out, labels, torch.arange(len(labels)), scores, truth, torch.full((5,), 0.2))


@pytest.mark.parametrize("target", ["average", "gibbs"])
def test_the_routing_that_explains_the_examples_is_found_on_new_tasks(target) -> None:
    how = PosteriorTraining(target=target, n_steps=60, members=1, kl=0.0)
    found = train_posterior([planted(seed) for seed in range(60)], PRIOR, how)
    hits = [int(found(planted(seed), PRIOR).logits[1:].argmax()) == seed % (N_ROUTINGS - 1) for seed in range(100, 130)]
    assert sum(hits) >= 27


@pytest.mark.parametrize("target", ["average", "gibbs"])
@pytest.mark.parametrize("family", get_args(Family))
def test_every_family_finds_it(family: Family, target) -> None:
    how = PosteriorTraining(target=target, n_steps=40, n_tasks=16, members=2, kl=0.0, rate=3e-2)
    tables = [planted(seed) for seed in range(40)]
    found = train_posterior(tables, PRIOR, how, PosteriorSettings(family=family))
    new = [planted(seed) for seed in range(200, 230)]
    right = sum(int(found(each, PRIOR).logits[1:].argmax()) == seed % 6 for seed, each in enumerate(new, 200))
    assert right > 20  # of 30, and 5 by luck
    assert all(bool(parameter.isfinite().all()) for parameter in found.parameters())


def test_a_high_price_keeps_the_posterior_at_the_prior() -> None:
    tables = [planted(seed) for seed in range(20)]
    prior = torch.tensor([0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], dtype=torch.float64).log()
    hows = [PosteriorTraining(target="gibbs", n_steps=40, kl=price) for price in (0.0, 100.0)]
    free, bound = (train_posterior(tables, prior, how) for how in hows)
    for table in tables[:5]:
        assert float((bound(table, prior).probs - prior.exp()).abs().max().detach()) < 0.05
        assert float(free(table, prior).probs.max().detach()) > 0.6


def test_routings_that_the_prior_excludes_are_never_chosen() -> None:
    prior = PRIOR.clone()
    prior[3] = -math.inf
    found = train_posterior([planted(seed, 3) for seed in range(10)], prior, PosteriorTraining(n_steps=5))
    assert float(found(planted(50, 3), prior).probs[3].detach()) == 0
    assert float(half_weights(found(planted(50, 3), prior), planted(50, 3), 3)[3].detach()) == 0


def test_an_untrained_posterior_is_the_prior() -> None:
    untrained = Amortised(PosteriorSettings(), torch.Generator().manual_seed(0))
    torch.testing.assert_close(untrained(planted(0), PRIOR).probs, PRIOR.exp().float())


def test_half_of_the_weight_is_the_points_and_the_likeliest_share_the_rest() -> None:
    posterior = Amortised(PosteriorSettings(), torch.Generator())(planted(0), PRIOR)
    posterior = replace(posterior, logits=torch.tensor([9.0, 1.0, 3.0, 2.0, -1.0, 0.0, -2.0]))
    weights = half_weights(posterior, planted(0), 2)
    shares = torch.tensor([3.0, 2.0]).softmax(dim=0) / 2
    torch.testing.assert_close(weights, torch.tensor([0.5, 0, float(shares[0]), float(shares[1]), 0, 0, 0]))


def test_the_loss_of_an_average_is_that_of_averaged_scores_and_leaves_out_queries_of_no_class() -> None:
    table = planted(3)
    weights = torch.rand(N_ROUTINGS, generator=torch.Generator().manual_seed(0)).softmax(dim=0)
    scores = torch.stack([w * s for w, s in zip(weights, table.scores, strict=True)]).sum(dim=0)
    cool = prototype_temperature(N_SHOT, 2)
    torch.testing.assert_close(average_loss(table, weights), cross_entropy(scores / cool, table.truth))
    unknown = table.truth.clone()
    unknown[:4] = -1
    torch.testing.assert_close(
        average_loss(replace(table, truth=unknown), weights), cross_entropy(scores[4:] / cool, table.truth[4:])
    )


def test_the_gibbs_loss_is_the_expected_one() -> None:
    table = planted(4)
    posterior = Amortised(PosteriorSettings(), torch.Generator())(table, PRIOR)
    exercise = Exercise.of(table, False)
    cool = prototype_temperature(N_SHOT)
    expected = sum(float(cross_entropy(each / cool, table.truth)) for each in table.scores) / N_ROUTINGS
    assert float(task_risk(posterior, exercise, PosteriorTraining(target="gibbs")).detach()) == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("queries", [False, True])
def test_facts_do_not_depend_on_any_order(queries: bool) -> None:
    table, generator = planted(5), torch.Generator().manual_seed(2)
    facts = facts_of(table, queries)
    assert facts.shape == (N_ROUTINGS, N_FACTS + N_QUERY_FACTS * queries)
    others = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(N_ROUTINGS - 1, generator=generator)])
    rows, asked = (torch.randperm(n, generator=generator) for n in (len(table.labels), N_QUERIES))
    moved = TaskTable(
        points=table.points[others],
        held_out=table.held_out[others][:, rows],
        labels=table.labels[rows],
        examples=torch.arange(len(rows)),
        scores=table.scores[others][:, asked],
        truth=table.truth[asked],
        prior=table.prior,
    )
    torch.testing.assert_close(facts_of(moved, queries), facts[others])


def test_the_same_seed_gives_the_same_bits() -> None:
    tables = [planted(seed) for seed in range(8)]
    one, two = (train_posterior(tables, PRIOR, PosteriorTraining(n_steps=4)).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_tail_is_trained_through_a_window_as_well() -> None:
    tables = [planted(seed) for seed in range(30)]
    how = PosteriorTraining(n_steps=40, cvar=0.05, n_tasks=8, window=64, members=1, kl=0.0)
    found = train_posterior(tables, PRIOR, how)
    weights = [half_weights(found(each, PRIOR), each, 1) for each in tables]
    before = torch.full((N_ROUTINGS,), 1 / N_ROUTINGS)
    trained, even = (
        sum(float(average_loss(table, row).detach()) for table, row in zip(tables, some, strict=True))
        for some in (weights, [before] * len(tables))
    )
    assert trained < even


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cvar": 0.0}, "above 0"),
        ({"cvar": 1.5}, "above 0"),
        ({"cvar": math.nan}, "above 0"),
        ({"cvar": 0.01}, "less than one"),
        ({"kl": -1.0}, "kl"),
        ({"target": "worst"}, "target"),
        ({"n_tasks": 0}, "n_tasks"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        PosteriorTraining(**wrong)


def test_a_table_that_is_not_all_numbers_is_refused() -> None:
    table = planted(0)
    table.scores[2, 0, 0] = math.nan
    with pytest.raises(InvalidSettings, match="NaN"):
        train_posterior([table], PRIOR)
