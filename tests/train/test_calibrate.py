"""Calibration of decisions: scores and errors against sums by hand, and what cannot be calibrated."""

from dataclasses import replace

import pytest
import torch

from smatter.errors import InvalidSettings
from smatter.posterior.amortised import Amortised, PosteriorSettings
from smatter.posterior.catalogue import usual_catalogue
from smatter.posterior.decide import Deployed
from smatter.posterior.learnt import LearntPosterior
from smatter.posterior.prior import uniform_prior
from smatter.posterior.task_table import TaskTable
from smatter.posterior.uncertainty import SCORES
from smatter.route.table import row_names, rows_of
from smatter.settings.decisions import Rule
from smatter.train.calibrate import LEAST_TASKS, averaged_scores, calibrate_rule, error_of

CATALOGUE = usual_catalogue(("base", "law", "food"), ("inverted",))
N_ROWS, N_CLASSES, N_SHOT, N_QUERIES = len(row_names(CATALOGUE)), 3, 2, 8


def table(seed: int) -> TaskTable:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(N_CLASSES).repeat_interleave(N_SHOT)
    point = torch.tensor([0.2, 0.7, 0.1, 0.4, 0.6], dtype=torch.float64)
    return TaskTable(
        points=rows_of(CATALOGUE, point).float(),
        held_out=torch.randn(N_ROWS, len(labels), N_CLASSES, generator=generator),
        labels=labels,
        examples=torch.arange(len(labels)),
        scores=torch.randn(N_ROWS, N_QUERIES, N_CLASSES, generator=generator),
        truth=torch.randint(N_CLASSES, (N_QUERIES,), generator=generator),
        prior=torch.full((3,), 1 / 3),
    )


TABLES = [table(seed) for seed in range(LEAST_TASKS)]


@pytest.fixture(scope="module")
def posterior() -> LearntPosterior:
    network = Amortised(PosteriorSettings(width=4), torch.Generator().manual_seed(0))
    torch.nn.init.normal_(network.score[2].weight, generator=torch.Generator().manual_seed(1))
    sources = dict.fromkeys(("base", "law", "food"), "a" * 64)
    return LearntPosterior(network, CATALOGUE, log_prior=uniform_prior(N_ROWS), sources=sources)


def calibrated(posterior: LearntPosterior, rule: str, tables: list[TaskTable] = TABLES):
    return calibrate_rule(tables, posterior, Rule.parse(rule), base="base", tasks="some", digest="b" * 64)


def test_the_points_errors_are_those_of_its_row(posterior: LearntPosterior) -> None:
    found = calibrated(posterior, "point")
    expected = [float((each.scores[0].argmax(dim=1) != each.truth).double().mean()) for each in TABLES]
    assert found.errors.tolist() == pytest.approx(expected)
    assert set(found.scores) == set(SCORES) and all(len(values) == len(TABLES) for values in found.scores.values())
    assert (found.rule, found.tasks) == ("point", "some")


def test_the_errors_of_members_are_those_of_averaged_scores(posterior: LearntPosterior) -> None:
    found = calibrated(posterior, "half:2")
    for each, error in zip(TABLES[:5], found.errors.tolist(), strict=False):
        probs = posterior(each).probs.clone()
        alike = (each.points[:, 3:] == each.points[0, 3:]).all(dim=1)
        probs[~alike] = 0
        probs[0] = 0
        kept = probs.argsort(descending=True)[:2]
        scores = 0.5 * each.scores[0] + 0.5 * torch.tensordot(
            (probs[kept] / probs[kept].sum()).float(), each.scores[kept], 1
        )
        assert error == pytest.approx(float((scores.argmax(dim=1) != each.truth).double().mean()))


def test_scores_do_not_look_at_labels(posterior: LearntPosterior) -> None:
    other = [replace(each, truth=(each.truth + 1) % N_CLASSES) for each in TABLES]
    one, two = calibrated(posterior, "map"), calibrated(posterior, "map", other)
    assert all(torch.equal(one.scores[name], two.scores[name]) for name in SCORES)
    assert not torch.equal(one.errors, two.errors)


def test_queries_of_no_class_are_left_out() -> None:
    each = table(0)
    unknown = replace(each, truth=torch.cat([torch.full((5,), -1), each.truth[5:]]))
    known = float((each.scores[0, 5:].argmax(dim=1) != each.truth[5:]).double().mean())
    assert error_of(unknown, each.scores[0]) == pytest.approx(known)


def test_a_network_that_is_in_no_row_is_refused() -> None:
    stranger = Deployed(torch.tensor([[0.9, 0.1, 0.0, 0.0, 1.0]]), torch.ones(1))
    with pytest.raises(InvalidSettings, match="in no row"):
        averaged_scores(table(0), stranger)


@pytest.mark.parametrize(("rule", "n", "told"), [("mean", LEAST_TASKS, "another decision"), ("map", 3, "too few")])
def test_what_cannot_be_calibrated_is_refused(posterior: LearntPosterior, rule: str, n: int, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        calibrated(posterior, rule, TABLES[:n])
