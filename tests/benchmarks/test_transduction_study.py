"""The study of queries that help each other: draws are what they are called, and peers are what they claim."""

import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from transduction_peers import alone, balanced, counted, hard, k_means, soft
from transduction_study import ALONE, RULES, drawn, gain, harmed


def test_an_uneven_draw_falls_to_a_tenth() -> None:
    truth = torch.arange(5).repeat(20)
    places = drawn("10:1", truth, torch.Generator().manual_seed(0))
    assert sorted(torch.bincount(truth[places]).tolist()) == [2, 4, 6, 11, 20]
    assert len(places.unique()) == len(places)
    assert len(drawn("ten", truth, torch.Generator().manual_seed(0)).unique()) == 10


def test_balanced_labels_are_as_many_of_each_class() -> None:
    logits = 3 * torch.randn(40, 4, generator=torch.Generator().manual_seed(0)) + torch.tensor([2.0, 0, 0, 0])
    labels = balanced(logits, n_sweeps=200)
    torch.testing.assert_close(labels.sum(dim=0), torch.full((4,), 10.0))
    torch.testing.assert_close(labels.sum(dim=1), torch.ones(40))


def test_every_rule_names_queries_that_anybody_would() -> None:
    generator = torch.Generator().manual_seed(0)
    centres, truth = torch.eye(4, 8), torch.arange(4).repeat(6)
    queries = (centres[truth] + 0.05 * torch.randn(24, 8, generator=generator))[None]
    for rule, logits in RULES.items():
        said = logits(centres[None], torch.arange(4), queries, torch.ones(1), 4).argmax(dim=1)
        assert torch.equal(said, truth), rule


def test_k_means_without_weight_of_queries_leaves_prototypes() -> None:
    generator = torch.Generator().manual_seed(0)
    support, queries = torch.randn(2, 6, 5, generator=generator), torch.randn(2, 9, 5, generator=generator)
    task = support, torch.arange(3).repeat(2), queries, torch.full((2,), 0.5), 3
    for labels in (soft, hard, counted, balanced):
        torch.testing.assert_close(partial(k_means, soft_labels=labels, query_weight=0.0)(*task), alone(*task))


def test_a_task_that_loses_five_points_is_harmed() -> None:
    tasks = [
        {ALONE: 80.0, "rule": 80.0 + change, "domain": place} for place, change in enumerate((-5.0, -4.9, 1.0, 9.0))
    ]
    assert harmed(tasks, "rule") == 25
    assert abs(gain(tasks, "rule").mean - 0.025) < 1e-9
