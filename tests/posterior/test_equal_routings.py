"""Equal routings of a table count once, broken ones never, and what is told of a rule is what it runs."""

from dataclasses import replace

import pytest
import torch

from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.categorical import Categorical
from smatter.posterior.decide import Deployed, decide, deployable
from smatter.posterior.prior import uniform_prior
from smatter.posterior.task_table import TaskTable
from smatter.posterior.uncertainty import SUPPORT, Facts
from smatter.settings.decisions import Rule
from smatter.settings.posteriors import PosteriorTraining
from smatter.train.posterior import Exercise, average_loss, half_weights, task_risk, train_posterior

N_SOURCES, N_CLASSES, N_SHOT, N_QUERIES = 3, 3, 3, 9
ROUTINGS = torch.tensor(
    [[0.5, 0.3, 0.2, 1.0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0.5, 0.5, 0, 1]], dtype=torch.float32
)  # fmt: skip


def table(rows: list[int], seed: int = 0) -> TaskTable:
    """A task with some of the routings as its rows, perhaps the same one twice; expert weights come last."""
    generator = torch.Generator().manual_seed(seed)
    labels, truth = torch.arange(N_CLASSES).repeat_interleave(N_SHOT), torch.arange(N_CLASSES).repeat(3)
    held_out = torch.randn(len(ROUTINGS), len(labels), N_CLASSES, generator=generator)
    scores = torch.randn(len(ROUTINGS), N_QUERIES, N_CLASSES, generator=generator)
    return TaskTable(
        ROUTINGS[rows], held_out[rows], labels, torch.arange(len(labels)), scores[rows], truth,
        prior=torch.full((N_SOURCES,), 1 / N_SOURCES),
    )  # fmt: skip


def network(family: str = "categorical") -> Amortised:
    made = Amortised(PosteriorSettings(family=family), torch.Generator().manual_seed(0))
    torch.nn.init.normal_(made.score[2].weight, generator=torch.Generator().manual_seed(1))
    return made


ONCE, TWICE = [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 1, 2, 3, 4]


@pytest.mark.parametrize("rule", ["map", "half:2", "half:3", "top:3"])
def test_a_rule_takes_the_same_networks_however_often_a_routing_is_listed(rule: str) -> None:
    found = []
    for rows in (ONCE, TWICE):
        task = table(rows)
        posterior = network()(task, uniform_prior(len(rows)))
        able = deployable(posterior, Rule.parse(rule), task)
        found.append(decide(Rule.parse(rule), able, task.points[0], torch.Generator()))
    assert found[0].points.tolist() == found[1].points.tolist()
    if rule != "map":
        assert len(found[1].points) == Rule.parse(rule).passes


@pytest.mark.parametrize("score", ["unlikely", "entropy", "resampling", "flatness", "spread", "near-prior"])
def test_scores_do_not_see_that_a_routing_is_listed_twice(score: str) -> None:
    values = []
    for rows in (ONCE, [*ONCE, *ONCE]):
        task = table(rows)
        evidence = task.counted_once(Categorical(task.points, -task.means))
        values.append(SUPPORT[score](Facts(task, evidence, uniform_prior(len(rows)), 1)))
    assert values[0] == pytest.approx(values[1], abs=1e-6)


def test_a_source_that_gives_no_numbers_has_no_probability_and_harms_no_other() -> None:
    sound, broken = table(ONCE), table(ONCE)
    broken.held_out[2] = torch.nan
    posterior = network()(broken, uniform_prior(len(ONCE)))
    assert float(posterior.probs[2].detach()) == 0 and bool(posterior.probs.isfinite().all())
    deployed = decide(
        Rule("half", 2), deployable(posterior, Rule("half", 2), broken), broken.points[0], torch.Generator()
    )
    assert sound.points[2].tolist() not in deployed.points.tolist() and len(deployed.points) == 3


def test_networks_without_weight_are_not_run() -> None:
    deployed = Deployed.of(ROUTINGS[:3], torch.tensor([0.5, 0.0, 0.5]))
    assert len(deployed.points) == 2


@pytest.mark.parametrize("opens", [False, True])
def test_the_loss_that_is_told_of_half_k_is_that_of_the_networks_it_runs(opens: bool) -> None:
    """Also where rows open other experts than the point, which several networks of a task cannot."""
    tables = []
    for seed in range(6):
        task = table(TWICE, seed)
        other = torch.zeros(len(TWICE), 1)
        other[5:] = 1.0
        experts = torch.cat([other, 1 - other], dim=1)
        experts[0] = torch.tensor([1.0, 0.0]) if opens else torch.tensor([0.0, 1.0])
        tables.append(replace(task, points=torch.cat([task.points[:, :3], experts], dim=1)))
    training = PosteriorTraining(n_steps=3, members=3)
    trained = train_posterior(tables, uniform_prior(len(TWICE)), training)
    rule = Rule("half", 3)
    for task in tables:
        posterior = trained(task, uniform_prior(len(TWICE)))
        deployed = decide(rule, deployable(posterior, rule, task), task.points[0], torch.Generator())
        weights = torch.zeros(len(TWICE))
        for point, weight in zip(deployed.points, deployed.weights.detach(), strict=True):
            weights[int((task.points == point).all(dim=1).nonzero()[0])] = weight
        torch.testing.assert_close(half_weights(posterior, task, 3).detach().float(), weights)
        told = task_risk(posterior, Exercise.of(task, False), training)
        torch.testing.assert_close(told.detach().float(), average_loss(task, weights).float())
