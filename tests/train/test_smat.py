"""SMAT is a setting: one source, element-wise experts, one sparsity. Its public code has four defects, ours has none.

There an expert's keys never train, routing depends on the order of classes, fine-tuning runs no steps, and rates are
chosen on test tasks.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import smatter
from smatter.compose.mixture import Mixture
from smatter.library.library import Library
from smatter.live.episodes import prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.problems import GateLoss, ResidualLoss
from smatter.live.task import Task, leave_one_out
from smatter.methods.refined import RefinedSettings, refined
from smatter.methods.router import RoutedSettings
from smatter.route.probe import draw_probe
from smatter.route.store import TrainedRouter, read_router, write_router
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.episode import Episode
from smatter.tasks.shifts.renderings import Inverted
from smatter.tasks.suite import Suite
from smatter.tasks.support import Support
from smatter.train.curriculum import make_curriculum
from smatter.train.lessons import Timetable
from smatter.train.meta import meta_train
from smatter.train.trainee import Trainee

SHARE = 0.1
UNTOLD = RoutedSettings(evidence=False)


@pytest.fixture(scope="module")
def base_alone(tiny_library: Library) -> Library:
    return tiny_library.only(())


def make_trainee(library: Library, suite: Suite, units: str = "elements", share: float = SHARE) -> Trainee:
    router = RouterSettings(width=8, n_experts=3, units=units, rank=2)  # type: ignore[arg-type]
    settings = MetaSettings(router, 6, 2, expert_share=share, tightening=0.01, delta_rate=0.02, warm_up=0.01)
    return Trainee(LiveMixture(library), draw_probe(suite), settings)


@pytest.fixture(scope="module")
def smat(base_alone: Library, tiny_suite: Suite) -> TrainedRouter:
    trainee = make_trainee(base_alone, tiny_suite)
    meta_train(trainee, make_curriculum(tiny_suite, variants=(Inverted(target="both"),), n_validation=1))
    return trainee.finish({})


def some_support(library: Library, suite: Suite, shots_kind: int = 1) -> Support:
    tasks = make_curriculum(suite).training[shots_kind].tasks
    return prepared_support(LiveMixture(library), tasks.episode(3))


def test_one_source_has_all_the_weight_and_experts_keep_their_share(
    base_alone: Library, tiny_suite: Suite, smat: TrainedRouter
) -> None:
    assert base_alone.names == ("s0",)
    adapted = smatter.adapt(base_alone, some_support(base_alone, tiny_suite), "router", UNTOLD, router=smat)
    assert adapted.mixture.mean_weights == {"s0": pytest.approx(1.0)}
    assert smat.bank and adapted.recipe.experts
    placed = base_alone.bank(smat.bank.digest)
    *own, union = placed.shares
    assert all(0.9 * SHARE < share <= SHARE for share in own)
    assert 0 < adapted.n_corrected <= union * placed.numbering.n_parameters + 1


@pytest.mark.parametrize("units", ["groups", "elements", "components"])
def test_every_parameter_of_router_and_experts_trains(base_alone: Library, tiny_suite: Suite, units: str) -> None:
    trainee = make_trainee(base_alone, tiny_suite, units)
    before = {name: tensor.detach().clone() for name, tensor in trainee.state.items()}
    trained = {id(p) for group in trainee.optimizer.param_groups for p in group["params"]}
    timetable = Timetable(make_curriculum(tiny_suite).training, 2, 0.5, 0)
    for step in range(4):
        trainee.step(step, timetable.lessons(trainee.live, step))
    one_source = ("router.value", "router.trust", "router.sharpness")  # with one source there is nothing to weigh
    for name, tensor in trainee.state.items():
        if name == "load":
            assert bool((tensor != before[name]).any())
        elif name == "multipliers":
            assert bool(tensor.any())  # nothing is below its share in four steps
        elif not name.startswith(one_source):
            assert id(tensor) in trained and not torch.equal(tensor, before[name]), name


def test_the_order_of_classes_and_examples_does_not_matter(
    base_alone: Library, tiny_suite: Suite, smat: TrainedRouter
) -> None:
    support = some_support(base_alone, tiny_suite)
    assert isinstance(support.inputs, torch.Tensor)
    order = torch.arange(len(support)).flip(0)
    moved = Support.of(support.inputs[order], [f"class {9 - support.labels[index]}" for index in order.tolist()])
    one, other = (smatter.adapt(base_alone, each, "router", UNTOLD, router=smat).fit for each in (support, moved))
    assert one.experts == other.experts
    assert len(set(one.experts.alpha)) > 1  # there is something to depend on


@pytest.mark.parametrize("units", ["groups", "components"])
def test_other_units_can_be_kept_and_tuned(base_alone: Library, tiny_suite: Suite, units: str, tmp_path: Path) -> None:
    trainee = make_trainee(base_alone, tiny_suite, units, share=0.5)
    assert trainee.experts
    with torch.no_grad():
        trainee.experts.values.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    write_router(tmp_path / "router", trainee.finish({}))
    router, live = read_router(tmp_path / "router"), LiveMixture(base_alone)
    router.check_fits(live)
    task = Task.of(live, some_support(base_alone, tiny_suite))
    fit = refined(live, task, RefinedSettings(router, evidence=False, n_steps=3, tune="mask"))
    assert fit.experts and fit.experts.opened and fit.trace.losses[-1] < fit.trace.losses[0]


@pytest.mark.parametrize("units", ["groups", "elements", "components"])
def test_the_gradient_in_the_gates_is_that_of_the_loss(base_alone: Library, tiny_suite: Suite, units: str) -> None:
    trainee = make_trainee(base_alone, tiny_suite, units)
    live, layout = trainee.live, trainee.layout
    assert layout
    generator = torch.Generator().manual_seed(0)
    values = 0.1 * torch.randn(len(layout.unit_of), generator=generator)
    masks = torch.rand(2, int(layout.unit_of.max()) + 1, generator=generator)
    rows = leave_one_out(live, some_support(base_alone, tiny_suite))
    loss = GateLoss(ResidualLoss(live, rows, Mixture.of({"s0": 1.0})), layout, values, masks)
    point, step = torch.tensor([[0.3, 0.4]]), 2e-2
    gradient = loss.evaluate(point).gradient[0]
    for gate in range(2):
        away = step * torch.eye(2)[gate]
        slope = (loss.value(point + away) - loss.value(point - away)) / (2 * step)
        assert float(gradient[gate]) == pytest.approx(float(slope), rel=0.05, abs=1e-3)


@pytest.mark.parametrize("tune", ["experts", "mask", "modules"])
def test_tuning_takes_steps_and_lowers_the_loss(
    base_alone: Library, tiny_suite: Suite, smat: TrainedRouter, tune: str
) -> None:
    live = LiveMixture(base_alone)
    task = Task.of(live, some_support(base_alone, tiny_suite))
    settings = RefinedSettings(smat, evidence=False, n_steps=3, tune=tune)  # type: ignore[arg-type]
    fit = refined(live, task, settings)
    assert fit.passes.backwards >= 2
    assert len(fit.trace.losses) > 1 and fit.trace.losses[-1] < fit.trace.losses[0]


def test_training_and_its_choices_see_no_test_class(tiny_suite: Suite) -> None:
    curriculum = make_curriculum(tiny_suite)

    def classes(episodes: Iterable[Episode]) -> set[str]:
        return {name for episode in episodes for name in episode.class_names}

    trained = classes(each.tasks.episode(index) for each in curriculum.training for index in range(30))
    judged = classes(episode for tasks in curriculum.validation for episode in tasks)
    named = {each.name: tiny_suite.split_of[each.key] for domain in tiny_suite.domains for each in domain.classes}
    assert {named[name] for name in trained} == {"router"}
    assert {named[name] for name in judged} == {"validation"}
