"""Tables of routings: rows against networks composed by hand, what no order changes, and files that are kept."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_routers import make_router
from torch import Tensor

import smatter
from smatter.library.library import Library
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods.router import RoutedSettings, router
from smatter.posterior.catalogue import Catalogue, usual_catalogue
from smatter.posterior.task_table import TaskTable, read_task_table
from smatter.route.store import TrainedRouter, read_router
from smatter.route.table import BARE, POINT, WITH_EXPERTS, Tables, make_table, row_names
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite


@pytest.fixture(scope="module")
def trained(tiny_library: Library, tiny_suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> TrainedRouter:
    folder, _ = make_router(tiny_library, tiny_suite, tmp_path_factory.mktemp("tables") / "router")
    return read_router(folder)


@pytest.fixture(scope="module")
def live(tiny_library: Library, trained: TrainedRouter) -> LiveMixture:
    live = LiveMixture(tiny_library)
    trained.check_fits(live)
    return live


@pytest.fixture(scope="module")
def catalogue(live: LiveMixture, trained: TrainedRouter) -> Catalogue:
    return usual_catalogue(live.library.names, trained.expert_names, pairs=True)


@pytest.fixture(scope="module", params=[1, 3])
def tasks(request: pytest.FixtureRequest, tiny_suite: Suite) -> TaskList:
    shots = request.param
    settings = SamplerSettings("validation", n_way=(3, 3), n_shot=(shots, shots), n_query=4)
    return TaskList("some", Sampler(tiny_suite, settings), 5)


@pytest.fixture(scope="module")
def table(live: LiveMixture, trained: TrainedRouter, catalogue: Catalogue, tasks: TaskList) -> TaskTable:
    return make_table(live, trained, catalogue, tasks.episode(0))


def same(first: TaskTable, second: TaskTable) -> bool:
    return all(torch.equal(getattr(first, each.name), getattr(second, each.name)) for each in fields(first))


def right_and_wrong(scores: Tensor, truth: Tensor) -> Tensor:
    """Log-probability of the true class, whatever the order of the classes."""
    return scores.log_softmax(dim=1).gather(1, truth[:, None]).flatten()


def test_rows_are_the_networks_they_are_called(live, trained, catalogue, tasks, table: TaskTable) -> None:
    names, episode = row_names(catalogue), tasks.episode(0)
    assert len(names) == len(table.points) == len(table.scores)
    task, queries = Task.of(live, prepared_support(live, episode)), episode_queries(live, episode)
    fit = router(live, task, RoutedSettings(router=trained))
    library = live.library
    first, both = library.names[0], f"{library.names[0]} and {library.names[1]}"
    expert = trained.mix(live, torch.tensor([0.0, 1.0]))
    even = smatter.Mixture.of(dict.fromkeys(library.names, 1 / len(library.names)))
    cases = {
        POINT: fit.recipe(library),
        BARE: library.recipe(fit.mixture),
        first: library.recipe(smatter.Mixture.of({first: 1.0})),
        both: library.recipe(smatter.Mixture.of(dict.fromkeys(library.names[:2], 0.5))),
        f"all alike, {trained.expert_names[1]}": library.recipe(even, experts=expert),
        f"{first}{WITH_EXPERTS}": library.recipe(smatter.Mixture.of({first: 1.0}), experts=fit.experts),
    }
    for name, recipe in cases.items():
        live.compose(recipe)
        row = names.index(name)
        expected = right_and_wrong(queries.logits(live.read(queries)), queries.classes)
        torch.testing.assert_close(right_and_wrong(table.scores[row], table.truth), expected, rtol=1e-4, atol=1e-4)
        losses = task.objective.losses(live.read(task.objective)).double()
        torch.testing.assert_close(table.losses[row], losses, rtol=1e-4, atol=1e-4)


def test_order_of_examples_does_not_change_a_bit(live, trained, catalogue, tasks, table: TaskTable) -> None:
    episode = tasks.episode(0)
    order = torch.randperm(len(episode.support), generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = type(episode)(episode.support.select(np.array(order)), episode.query, episode.class_names)
    assert same(make_table(live, trained, catalogue, shuffled), table)


def test_tables_are_kept_found_and_made_again_if_damaged(live, trained, catalogue, tasks, tmp_path: Path) -> None:
    tables = Tables(tmp_path / "tables", live, trained, catalogue)
    made = tables(tasks, 2)
    path = tables.path(tasks, 2)
    assert same(read_task_table(path), made)
    before = path.stat().st_mtime_ns
    assert same(tables(tasks, 2), made) and path.stat().st_mtime_ns == before
    path.write_bytes(path.read_bytes()[:-7])
    assert same(tables(tasks, 2), made) and same(read_task_table(path), made)
    assert tables.path(tasks, 1) != path
    again = Tables(tables.folder, live, replace(trained, digest="", record={"posterior": "new"}), catalogue)
    assert again.path(tasks, 2) == path
    smaller = Tables(tables.folder, live, trained, catalogue.subset([0, 1]))
    assert smaller.path(tasks, 2) != path and len(smaller(tasks, 2).points) == 6
