"""Units that are open for every task: they learn, they stay open in every recipe, and training goes on to the bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from smatter.errors import InvalidRouter, InvalidSettings
from smatter.library.library import Library
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit
from smatter.methods.private import PrivateSettings, private
from smatter.methods.refined import RefinedSettings, refined
from smatter.methods.router import RoutedSettings, router
from smatter.route.probe import draw_probe
from smatter.route.store import TrainedRouter, read_router, write_router
from smatter.settings.training import Imitation, MetaSettings, RouterSettings
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.renderings import Inverted
from smatter.tasks.suite import Suite
from smatter.train.assignment import assign, unit_worths
from smatter.train.curriculum import Curriculum, Series
from smatter.train.meta import meta_train
from smatter.train.router import train_router
from smatter.train.trainee import MetaStep, Trainee, Validation

COMMON = RouterSettings(width=8, common_share=0.4)
WITH_EXPERTS = replace(COMMON, n_experts=2)


def tasks(suite: Suite, *shifts: Inverted) -> TaskList:
    settings = SamplerSettings("router", n_way=(3, 3), n_shot=(3, 3), n_query=4)
    return TaskList("some", Sampler(suite, settings), 1000, shifts)


def series(suite: Suite) -> tuple[Series, ...]:
    return Series(tasks(suite), 1.0), Series(tasks(suite, Inverted("both")), 1.0, variant=0)


def trainee(library: Library, suite: Suite, how: RouterSettings, n_steps: int = 3) -> Trainee:
    settings = MetaSettings(how, n_steps, 2, delta_rate=0.01, expert_share=0.3, validate_every=2)
    return Trainee(LiveMixture(library), draw_probe(suite), settings, series(suite))


def trained(library: Library, suite: Suite, how: RouterSettings) -> TrainedRouter:
    learner = trainee(library, suite, how)
    meta_train(learner, Curriculum(series(suite)))
    return learner.finish({})


def task_of(live: LiveMixture, suite: Suite) -> Task:
    settings = SamplerSettings("validation", n_way=(3, 3), n_shot=(3, 3), n_query=4)
    return Task.of(live, prepared_support(live, Sampler(suite, settings).episode(1)))


def gates_of(live: LiveMixture, fit: Fit) -> np.ndarray:
    assert fit.experts
    return live.library.bank(fit.experts.bank).bank.gates(fit.experts)


@pytest.mark.parametrize("how", [COMMON, WITH_EXPERTS], ids=["alone", "beside experts"])
def test_every_recipe_opens_what_is_common(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, how: RouterSettings
) -> None:
    write_router(tmp_path / "router", trained(tiny_library, tiny_suite, how))
    found = read_router(tmp_path / "router")
    live, bank = LiveMixture(tiny_library), found.bank
    assert bank is not None and len(bank.masks) == how.n_masks and len(found.expert_names) == how.n_experts
    common = bank.masks[-1]
    assert common.any() and not common.all() and bool((bank.masks >= common).all())
    found.check_fits(live)
    task, settings = task_of(live, tiny_suite), RefinedSettings(found, n_steps=2)
    fits = [
        router(live, task, RoutedSettings(found, evidence=False)),
        router(live, task, RoutedSettings(found)),
        private(live, task, PrivateSettings(found)),
        refined(live, task, settings),
    ]
    if how.n_experts:
        fits.append(refined(live, task, replace(settings, tune="experts")))
        assert refined(live, task, replace(settings, tune="mask")).experts
    for fit in fits:
        assert fit.experts and sum(fit.experts.alpha) == pytest.approx(1)
        np.testing.assert_allclose(gates_of(live, fit)[common], 1.0, rtol=1e-6)
        assert list(fit.expert_weights) == ([] if fit.is_private else list(found.expert_names))
    write_router(tmp_path / "again", found)
    with pytest.raises(InvalidRouter, match="does not have"):
        _forget_common(tmp_path / "again")


def _forget_common(folder: Path) -> None:
    table = folder / "router.json"
    table.write_text(table.read_text().replace('"common_share": 0.4', '"common_share": 0.0'))
    read_router(folder)


def test_what_is_common_learns_from_clean_tasks(tiny_library: Library, tiny_suite: Suite) -> None:
    learner = trainee(tiny_library, tiny_suite, WITH_EXPERTS)
    experts = learner.experts
    assert experts and experts.common is not None
    meta_train(learner, Curriculum(series(tiny_suite)[:1]))
    moved = experts.values.detach() != 0
    unit_of = experts.layout.unit_of.long()
    assert float(moved[experts.common[unit_of]].float().mean()) > 0.5
    gates = experts.gates(torch.Generator().manual_seed(0))
    assert (
        not gates[:, experts.common].any()
        and not experts.residual(torch.zeros(2), gates)[~experts.common[unit_of]].any()
    )


def test_the_bank_is_the_residual_that_was_learnt(tiny_library: Library, tiny_suite: Suite) -> None:
    learner = trainee(tiny_library, tiny_suite, WITH_EXPERTS)
    experts, live = learner.experts, learner.live
    assert experts
    with torch.no_grad():
        experts.values.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
        experts.logits.copy_(torch.where(experts.gates() > 0.5, 9.0, -9.0))  # masks fit, so that none is cut
    found = learner.finish({})
    for alpha in (torch.zeros(2), torch.tensor([0.25, 0.5]), torch.tensor([1.0, 0.0])):
        mix = found.mix(live, alpha)
        assert mix is not None
        placed = live.library.bank(mix.bank)
        expected = experts.residual(alpha, experts.gates()).detach()
        np.testing.assert_allclose(placed.vector(placed.bank.gates(mix)), expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("how", [COMMON, WITH_EXPERTS], ids=["alone", "beside experts"])
def test_a_training_with_common_units_goes_on_to_the_bit(
    tiny_library: Library, tiny_suite: Suite, tmp_path: Path, how: RouterSettings
) -> None:
    curriculum = Curriculum(series(tiny_suite), (replace(tasks(tiny_suite), n_tasks=2),))
    whole = trainee(tiny_library, tiny_suite, how, 4)
    outcome = meta_train(whole, curriculum, tmp_path / "whole", 1)

    class Killed(Exception):
        pass

    def killed(told: MetaStep | Validation) -> None:
        if told.step == 3:
            raise Killed

    with pytest.raises(Killed):
        meta_train(trainee(tiny_library, tiny_suite, how, 4), curriculum, tmp_path / "parts", 1, watch=killed)
    last = trainee(tiny_library, tiny_suite, how, 4)
    assert last.experts and last.experts.common is not None
    last.experts.common.logical_not_()  # as if another machine had chosen other units
    assert meta_train(last, curriculum, tmp_path / "parts", 1) == outcome
    for name, tensor in whole.state.items():
        assert torch.equal(tensor, last.state[name]), name


def test_common_units_are_those_that_clean_tasks_want(tiny_library: Library, tiny_suite: Suite) -> None:
    learner = trainee(tiny_library, tiny_suite, WITH_EXPERTS)
    experts = learner.experts
    assert experts and experts.common is not None
    unit_of = experts.layout.unit_of.long()
    worths = unit_worths(learner.live, series(tiny_suite), unit_of, 2, 3)
    torch.testing.assert_close(worths[:2], unit_worths(learner.live, series(tiny_suite), unit_of, 2))
    assert torch.equal(assign(worths, experts.sizes, [0.3, 0.3, 0.4])[2], experts.common)


def test_rank_components_have_common_ones_too(tiny_library: Library, tiny_suite: Suite) -> None:
    how = replace(COMMON, units="components", rank=2)
    found = trained(tiny_library, tiny_suite, how)
    live = LiveMixture(tiny_library)
    assert found.bank and 0.2 < found.bank.masks.mean() < 0.6
    np.testing.assert_array_equal(
        gates_of(live, router(live, task_of(live, tiny_suite), RoutedSettings(found))), found.bank.masks[0]
    )


def test_the_ensemble_can_teach_what_is_common(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    imitation = Imitation(predictions=0.8, teacher="ensemble")
    settings = MetaSettings(WITH_EXPERTS, 2, 1, imitation=imitation, expert_share=0.3)
    found = train_router(tiny_library, tiny_suite, settings, variants=[Inverted("both")], work=tmp_path)
    assert 0 < found.record["common_share"] <= 0.4 and len(found.record["expert_shares"]) == 3
    assert np.shape(found.record["expert_overlaps"]) == (2, 2)


def test_impossible_shares_are_refused(tiny_library: Library, tiny_suite: Suite) -> None:
    with pytest.raises(InvalidSettings, match="common_share"):
        RouterSettings(common_share=1.5)
    with pytest.raises(InvalidSettings, match="no room"):
        trainee(tiny_library, tiny_suite, replace(COMMON, common_share=1e-9))
