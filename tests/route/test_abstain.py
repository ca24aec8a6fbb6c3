"""Whether a routing is sure enough: a threshold by coverage is met, one by a proven error is stayed below."""

from dataclasses import replace

import pytest
import torch

from smatter.posterior.catalogue import usual_catalogue
from smatter.posterior.categorical import Categorical
from smatter.posterior.learnt import RuleCalibration
from smatter.posterior.prior import uniform_prior
from smatter.posterior.task_table import TaskTable
from smatter.posterior.uncertainty import Facts, flatness
from smatter.route.abstain import judge
from smatter.route.table import base_row
from smatter.settings.decisions import Limit


def facts() -> Facts:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(2).repeat_interleave(3)
    points = torch.cat([torch.eye(3), torch.ones(3, 1)], dim=1)
    held_out, scores = torch.randn(3, 6, 2, generator=generator), torch.zeros(3, 0, 2)
    table = TaskTable(points, held_out, labels, torch.arange(6), scores, torch.zeros(0).long(), torch.full((3,), 1 / 3))
    return Facts(table, Categorical(points, -table.means), uniform_prior(3), None)


@pytest.mark.parametrize(
    ("limit", "outcome"), [("flatness@coverage=0.5", "routed"), ("flatness@risk=0.5", "escalated")]
)
def test_a_score_at_the_threshold_is_covered_but_nothing_is_proven_of_it(limit: str, outcome: str) -> None:
    """Calibration proves the error of tasks below the threshold: with ties, those at it may be most of them."""
    calibration = RuleCalibration("map", "some-list", "a" * 64, {}, torch.zeros(0))
    found, at = facts(), flatness(facts())
    assert judge(found, Limit.parse(limit), at, calibration, "escalate").outcome == outcome
    assert judge(found, Limit.parse(limit), at + 0.01, calibration, "escalate").outcome == "routed"
    assert judge(found, Limit.parse(limit), at - 0.01, calibration, "escalate").outcome == "escalated"


def test_the_row_of_the_base_is_found_by_its_weights_whatever_it_is_called() -> None:
    catalogue = usual_catalogue(("point", "law", "food"), ("inverted",))
    row = base_row(catalogue, 0)
    assert row is not None and row >= 2 and catalogue.names[row - 2] == "point"
    assert base_row(catalogue.subset([1, 2]), 0) is None


def test_scores_beside_the_base_are_not_told_where_no_routing_is_the_base() -> None:
    from smatter.posterior.uncertainty import scores_of

    assert "base-gain" not in scores_of(facts()) and "base-gain" in scores_of(replace(facts(), base=1))
