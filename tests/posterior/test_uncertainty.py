"""Scores of uncertainty: by hand on small tables, at their extremes, and what no order changes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy

from smatter.backbones.heads import prototype_temperature
from smatter.errors import InvalidSettings
from smatter.posterior.categorical import Categorical
from smatter.posterior.task_table import TaskTable
from smatter.posterior.uncertainty import QUERIES, SCORES, SUPPORT, Facts, check_score

N_ROUTINGS, N_CLASSES, N_SHOT, N_QUERIES = 6, 3, 4, 11


def facts(seed: int = 0, n_shot: int = N_SHOT) -> Facts:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(N_CLASSES).repeat_interleave(n_shot)
    points = torch.rand(N_ROUTINGS, 4, generator=generator)
    table = TaskTable(
        points=points / points.sum(dim=1, keepdim=True),
        held_out=torch.randn(N_ROUTINGS, len(labels), N_CLASSES, generator=generator),
        labels=labels,
        examples=torch.arange(len(labels)),
        scores=3 * torch.randn(N_ROUTINGS, N_QUERIES, N_CLASSES, generator=generator),
        truth=torch.zeros(N_QUERIES, dtype=torch.int64),
        prior=torch.full((4,), 0.25),
    )
    logits = torch.randn(N_ROUTINGS, generator=generator, dtype=torch.float64)
    prior = torch.randn(N_ROUTINGS, generator=generator, dtype=torch.float64).log_softmax(dim=0)
    return Facts(table, Categorical(table.points, logits), prior, base=2)


def all_alike(given: Facts) -> Facts:
    """Every routing says what the point says."""
    table = given.table
    same = {name: getattr(table, name)[:1].expand(N_ROUTINGS, -1, -1) for name in ("held_out", "scores")}
    return replace(given, table=replace(table, **same))


def test_scores_of_the_posterior_are_those_of_scipy() -> None:
    given = facts()
    q, p = given.posterior.probs.numpy(), given.log_prior.exp().numpy()
    points = given.table.points.double().numpy()
    assert SCORES["entropy"](given) == pytest.approx(scipy_entropy(q))
    assert SCORES["near-prior"](given) == pytest.approx(-scipy_entropy(q, p))
    assert SCORES["unlikely"](given) == pytest.approx(1 - q.max())
    variance = np.cov(points.T, aweights=q, bias=True).trace()
    assert SCORES["spread"](given) == pytest.approx(variance)


def test_scores_of_queries_are_those_by_hand() -> None:
    given = facts()
    scaled = given.table.scores.double().numpy() / prototype_temperature(N_SHOT)
    probs = np.exp(scaled) / np.exp(scaled).sum(axis=2, keepdims=True)
    own, kept = probs[0], probs[np.argsort(-given.posterior.logits.numpy())[:4]]
    assert SCORES["doubt"](given) == pytest.approx(1 - own.max(axis=1).mean())
    top = np.sort(own, axis=1)
    assert SCORES["narrowness"](given) == pytest.approx(1 - (top[:, -1] - top[:, -2]).mean())
    assert SCORES["disagreement"](given) == pytest.approx((kept.argmax(2) != own.argmax(1)).mean())
    assert SCORES["base-disagreement"](given) == pytest.approx((probs[2].argmax(1) != own.argmax(1)).mean())
    information = scipy_entropy(kept.mean(0), axis=1) - scipy_entropy(kept, axis=2).mean(0)
    assert SCORES["mutual-information"](given) == pytest.approx(information.mean())


def test_losses_are_compared_with_the_base_and_the_best() -> None:
    given = facts(1)
    means = given.table.losses.mean(dim=1)
    assert SCORES["loss"](given) == pytest.approx(float(means[0]))
    assert SCORES["base-gain"](given) == pytest.approx(float(means[0] - means[2]))
    assert SCORES["best-gain"](given) >= 0


def test_routings_that_agree_leave_nothing_to_doubt_between_them() -> None:
    given = all_alike(facts())
    for name in ("disagreement", "base-disagreement", "mutual-information", "base-gain", "best-gain"):
        assert SCORES[name](given) == pytest.approx(0, abs=1e-9)
    assert SCORES["flatness"](given) == pytest.approx(1)
    assert SCORES["resampling"](given) == pytest.approx(1 - 1 / N_ROUTINGS)


@pytest.mark.parametrize("name", SCORES)
def test_no_order_matters(name: str) -> None:
    given = facts(4)
    table, generator = given.table, torch.Generator().manual_seed(1)
    routings = torch.cat([torch.zeros(1, dtype=torch.int64), 1 + torch.randperm(N_ROUTINGS - 1, generator=generator)])
    rows, queries = (torch.randperm(n, generator=generator) for n in (len(table.labels), N_QUERIES))
    moved = replace(
        table,
        points=table.points[routings],
        held_out=table.held_out[routings][:, rows],
        labels=table.labels[rows],
        examples=torch.arange(len(rows)),
        scores=table.scores[routings][:, queries],
    )
    posterior = Categorical(moved.points, given.posterior.logits[routings])
    other = Facts(moved, posterior, given.log_prior[routings], int((routings == given.base).nonzero()))
    # Resamples are drawn by number, so that another order draws others.
    tolerance = 0.25 if name == "resampling" else 1e-9
    assert SCORES[name](other) == pytest.approx(SCORES[name](given), abs=tolerance)


@pytest.mark.parametrize("name", SUPPORT)
def test_scores_of_the_support_do_not_look_at_queries(name: str) -> None:
    given = facts(2)
    other = replace(given, table=replace(given.table, scores=torch.full_like(given.table.scores, math.nan)))
    assert SCORES[name](other) == SCORES[name](given)


@pytest.mark.parametrize("name", QUERIES)
def test_no_score_looks_at_the_queries_labels(name: str) -> None:
    given = facts(2)
    other = replace(given, table=replace(given.table, truth=torch.ones_like(given.table.truth)))
    assert SCORES[name](other) == SCORES[name](given)


def test_single_examples_cannot_be_resampled() -> None:
    given = facts(n_shot=1)
    assert math.isnan(SCORES["resampling"](given))


def test_an_unknown_score_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="entropy"):
        check_score("surprise", has_queries=True)
    with pytest.raises(InvalidSettings, match="--queries"):
        check_score("disagreement", has_queries=False)
    check_score("disagreement", has_queries=True)
