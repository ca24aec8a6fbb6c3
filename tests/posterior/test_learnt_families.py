"""Families of posteriors over rows: the prior at first, divergences by torch.distributions, no order matters."""

from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch.distributions import kl_divergence

from smatter.errors import InvalidSettings
from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.categorical import Categorical
from smatter.posterior.dirichlet import Dirichlet
from smatter.posterior.families import UpperLevel, chosen_rows, density_of, divergence, row_families
from smatter.posterior.task_table import TaskTable
from smatter.settings.posteriors import Family

FAMILIES = get_args(Family)
N_SOURCES, N_CLASSES, N_SHOT = 3, 3, 2
POINTS = torch.tensor(
    [[0.5, 0.3, 0.2, 1], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0.5, 0.5, 0, 1], [1 / 3, 1 / 3, 1 / 3, 1]]
)
LOG_PRIOR = torch.tensor([0.3, 0.1, 0.2, 0.1, 0.2, 0.1], dtype=torch.float64).log()


def table(seed: int = 0) -> TaskTable:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(N_CLASSES).repeat_interleave(N_SHOT)
    held_out = torch.randn(len(POINTS), len(labels), N_CLASSES, generator=generator)
    scores, truth = torch.randn(len(POINTS), 5, N_CLASSES, generator=generator), torch.zeros(5, dtype=torch.int64)
    return TaskTable(POINTS, held_out, labels, torch.arange(len(labels)), scores, truth, torch.full((3,), 1 / 3))


def network(family: Family, seed: int = 1) -> Amortised:
    """One that has learnt something."""
    made = Amortised(PosteriorSettings(width=4, family=family), torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
    return made


@pytest.mark.parametrize("family", FAMILIES)
def test_what_has_learnt_nothing_is_the_prior(family: Family) -> None:
    made = Amortised(PosteriorSettings(family=family), torch.Generator().manual_seed(0))
    density = made.density(table(), LOG_PRIOR)
    assert float(divergence(density, made.prior(LOG_PRIOR)).detach()) == pytest.approx(0, abs=1e-5)
    if family != "logistic-normal":  # whose mean weights are flatter than its location
        torch.testing.assert_close(made(table(), LOG_PRIOR).probs.detach().double(), LOG_PRIOR.exp())


@pytest.mark.parametrize("family", FAMILIES)
def test_it_says_the_same_whatever_the_order_of_the_other_rows(family: Family) -> None:
    made, given = network(family), table()
    order = torch.tensor([0, 5, 3, 1, 2, 4])
    other = replace(given, points=POINTS[order], held_out=given.held_out[order], scores=given.scores[order])
    one, two = made.density(given, LOG_PRIOR), made.density(other, LOG_PRIOR[order])
    priors = made.prior(LOG_PRIOR), made.prior(LOG_PRIOR[order])
    assert float(divergence(one, priors[0]).detach()) > 1e-4
    torch.testing.assert_close(divergence(one, priors[0]), divergence(two, priors[1]), rtol=1e-3, atol=1e-5)
    found = chosen_rows(POINTS, one).probs[order], chosen_rows(POINTS, two).probs
    torch.testing.assert_close(*found, atol=5e-3 if family == "logistic-normal" else 1e-6, rtol=1e-3)


def test_a_family_is_the_strongest_source() -> None:
    assert row_families(POINTS, N_SOURCES).tolist() == [0, 0, 1, 2, 3, 3]
    assert row_families(POINTS[:, [0, 3]], 1).tolist() == [0] * 6


def test_two_levels_are_chosen_one_after_the_other() -> None:
    generator = torch.Generator().manual_seed(0)
    families = row_families(POINTS, N_SOURCES)
    scores, upper = torch.randn(6, 1, generator=generator).double(), torch.randn(4, generator=generator).double()
    found = density_of("two-level", POINTS, LOG_PRIOR, scores, UpperLevel(families, upper))
    assert isinstance(found, Categorical)
    mass = torch.stack([LOG_PRIOR.exp()[families == number].sum() for number in range(4)]) * upper.exp()
    mass = mass / mass.sum()
    for number in range(4):
        rows = families == number
        within = LOG_PRIOR.exp()[rows] * scores[rows, 0].exp()
        torch.testing.assert_close(found.probs[rows], mass[number] * within / within.sum())


def test_densities_are_those_of_torch() -> None:
    made = network("dirichlet")
    density, prior = made.density(table(), LOG_PRIOR), made.prior(LOG_PRIOR)
    assert isinstance(density, Dirichlet) and isinstance(prior, Dirichlet)
    torch.testing.assert_close(divergence(density, prior), kl_divergence(density.density, prior.density))
    drawn = density.sample(20_000, torch.Generator().manual_seed(0)).mean(dim=0)
    torch.testing.assert_close(chosen_rows(POINTS, density).probs, drawn, atol=5e-3, rtol=0.05)
    normal = network("logistic-normal").density(table(), LOG_PRIOR)
    drawn = normal.sample(20_000, torch.Generator().manual_seed(0)).mean(dim=0)
    torch.testing.assert_close(chosen_rows(POINTS, normal).probs, drawn, atol=5e-3, rtol=0.05)


@pytest.mark.parametrize("family", ["two-level", "logistic-normal", "dirichlet"])
def test_only_categorical_ones_can_leave_rows_out(family: Family) -> None:
    prior = LOG_PRIOR.clone()
    prior[2] = -torch.inf
    with pytest.raises(InvalidSettings, match=family):
        network(family)(table(), prior)
    assert network("categorical")(table(), prior).probs[2] == 0


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="use categorical, two-level"):
        PosteriorSettings(family="gaussian")  # type: ignore[arg-type]
