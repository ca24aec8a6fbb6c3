"""Training for budgets: it keeps budgets, its slopes are right, it learns, and goes on after a kill to the bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_routers import make_decided, make_router

from smatter.budget.wish import BudgetWish
from smatter.devices.budgets import Budgets, open_fractions
from smatter.devices.profile import Profile
from smatter.devices.unmeasured import product_profile
from smatter.errors import InvalidProfile, InvalidRouter, InvalidSettings
from smatter.library.library import Library
from smatter.live.mixture import LiveMixture
from smatter.route.place import WEIGHTS
from smatter.route.probe import draw_probe
from smatter.route.store import TrainedRouter, read_router, write_router
from smatter.settings.budgets import BudgetTraining
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.lists import TaskList
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.train.budget_trainee import BudgetStep, BudgetTrainee, BudgetValidation
from smatter.train.budgets import train_budgets
from smatter.train.curriculum import Curriculum, Series
from smatter.train.lessons import Lesson
from smatter.train.meta import LOG, meta_train
from smatter.train.trainee import Trainee

SETTINGS = BudgetTraining(n_steps=6, n_tasks=2, rate=1e-2, validate_every=2)


@pytest.fixture(scope="module")
def router(tiny_library: Library, tiny_suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> TrainedRouter:
    return read_router(make_router(tiny_library, tiny_suite, tmp_path_factory.mktemp("budgets") / "router")[0])


@pytest.fixture(scope="module")
def profile(tiny_library: Library) -> Profile:
    return product_profile(LiveMixture(tiny_library), on=0.002)


def trainee(
    library: Library, router: TrainedRouter, profile: Profile, settings: BudgetTraining = SETTINGS
) -> BudgetTrainee:
    return BudgetTrainee(LiveMixture(library), router, [Budgets((BudgetWish(1.0, "x"),), (profile,))], settings)


def curriculum(suite: Suite) -> Curriculum:
    def tasks(split: str, n_tasks: int) -> TaskList:
        how = SamplerSettings(split, n_way=(3, 3), n_shot=(2, 2), n_query=4)  # type: ignore[arg-type]
        return TaskList(split, Sampler(suite, how), n_tasks)

    return Curriculum((Series(tasks("router", 10_000), 1.0),), (tasks("validation", 3),))


def lessons(learner: BudgetTrainee, suite: Suite, step: int = 0) -> list[Lesson]:
    return learner.timetable(curriculum(suite).training, None).lessons(learner.live, step)


Told = BudgetStep | BudgetValidation


@pytest.mark.parametrize("last_step", [1, 3])
def test_a_training_that_was_killed_goes_on_to_the_bit(
    tiny_library: Library, tiny_suite: Suite, router: TrainedRouter, profile: Profile, tmp_path: Path, last_step: int
) -> None:
    whole: list[Told] = []
    first = trainee(tiny_library, router, profile)
    outcome = meta_train(first, curriculum(tiny_suite), tmp_path / "whole", 2, watch=whole.append)

    def killed(told: Told) -> None:
        if isinstance(told, BudgetStep) and told.step == last_step:
            raise RuntimeError

    folder = tmp_path / "parts"
    with pytest.raises(RuntimeError):
        meta_train(trainee(tiny_library, router, profile), curriculum(tiny_suite), folder, 2, watch=killed)
    parts: list[Told] = []
    last = trainee(tiny_library, router, profile)
    assert meta_train(last, curriculum(tiny_suite), folder, 2, watch=parts.append) == outcome
    assert parts == [told for told in whole if told.step > last_step // 2 * 2]
    assert (folder / LOG).read_bytes() == (tmp_path / "whole" / LOG).read_bytes()
    one, other = first.finish({}), last.finish({})
    assert one.bank and other.bank and one.bank.digest == other.bank.digest
    assert torch.equal(one.unit_values, other.unit_values)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_what_is_open_costs_no_more_than_the_budget(
    tiny_library: Library, tiny_suite: Suite, router: TrainedRouter, profile: Profile, share: float
) -> None:
    assert router.bank
    values = torch.rand(router.bank.masks.shape, generator=torch.Generator().manual_seed(0))
    learner = trainee(tiny_library, replace(router, unit_values=values), profile)
    task = learner._opened(lessons(learner, tiny_suite, 1)[0])
    cut = learner._cut(task, learner.budgets[0], share)
    costs = [
        profile.predict(open_fractions(learner.placed, gates))[0] / profile.base - 1 for gates in (task.gates, cut)
    ]
    assert costs[1] <= share * costs[0] * (1 + 1e-9)
    np.testing.assert_array_equal(cut[cut > 0], task.gates[cut > 0])
    assert share < 0.5 or cut.any()


def test_slopes_are_those_of_the_loss(
    tiny_library: Library, tiny_suite: Suite, router: TrainedRouter, profile: Profile
) -> None:
    """In the shared change and in the gates, against differences of losses."""
    learner = trainee(tiny_library, router, profile)
    task = learner._opened(lessons(learner, tiny_suite)[0])
    half = task.gates * (np.arange(len(task.gates)) % 2).astype(np.float32)
    _, _, slope, gains = learner._passed(task, half)
    direction = torch.randn(slope.shape, generator=torch.Generator().manual_seed(0)) * learner.values.detach().abs()

    def loss(gates: np.ndarray, moved: float = 0.0) -> float:
        with torch.no_grad():
            learner.values += moved * direction
            learner._compose(task, torch.from_numpy(gates))
            learner.values -= moved * direction
        return learner.live.loss(task.queries)

    by_values = (loss(half, 0.02) - loss(half, -0.02)) / 0.04
    assert float(slope @ direction) == pytest.approx(by_values, rel=0.05, abs=2e-3)
    unit = int(np.flatnonzero(half)[0])
    step = np.zeros_like(half)
    step[unit] = 0.02
    assert gains[unit] == pytest.approx((loss(half - step) - loss(half + step)) / 0.04, rel=0.05, abs=2e-3)


def test_small_budgets_learn(tiny_library: Library, tiny_suite: Suite, router: TrainedRouter, profile: Profile) -> None:
    learner = trainee(tiny_library, router, profile, replace(SETTINGS, n_steps=40, imitation=0.0, tightest=0.3))
    same = lessons(learner, tiny_suite)
    steps = [learner.step(number, same) for number in range(20)]
    assert steps[-1].loss_tightest < 0.9 * steps[1].loss_tightest
    assert steps[-1].loss < steps[0].loss


def test_what_was_learnt_is_kept_with_the_router(
    tiny_library: Library, tiny_suite: Suite, router: TrainedRouter, profile: Profile, tmp_path: Path
) -> None:
    learner = trainee(tiny_library, router, profile)
    for number in range(2):
        learner.step(number, lessons(learner, tiny_suite, number))
    before = learner.finish({"steps": 2})
    write_router(tmp_path / "router", before)
    after = read_router(tmp_path / "router")
    assert before.unit_values is not None and after.unit_values is not None
    assert torch.equal(after.unit_values, before.unit_values) and bool(after.unit_values.any())
    assert after.record["budgets"] == {"steps": 2} and after.bank and router.bank
    assert after.bank.digest != router.bank.digest and np.array_equal(after.bank.masks, router.bank.masks)
    again = trainee(tiny_library, after, profile)  # begins with what is known
    torch.testing.assert_close(again.unit_values.float(), after.unit_values)
    tensors = load_file(tmp_path / "router" / WEIGHTS)
    save_file({**tensors, "unit_values": tensors["unit_values"][:, 1:].contiguous()}, tmp_path / "router" / WEIGHTS)
    with pytest.raises(InvalidRouter):
        read_router(tmp_path / "router")


def test_routers_without_experts_or_with_a_posterior_are_refused(
    tiny_library: Library, tiny_suite: Suite, router: TrainedRouter, profile: Profile, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSettings, match="has no experts"):
        trainee(tiny_library, replace(router, bank=None), profile)
    decided = read_router(make_decided(tiny_library, tiny_suite, tmp_path / "decided")[0])
    with pytest.raises(InvalidSettings, match="posterior was learnt with the experts as they are"):
        train_budgets(tiny_library, tiny_suite, decided, [profile])
    with pytest.raises(InvalidSettings, match="give a profile"):
        train_budgets(tiny_library, tiny_suite, router, [])


def test_profiles_that_price_no_units_of_the_router_are_refused(
    tiny_library: Library, tiny_suite: Suite, router: TrainedRouter, profile: Profile
) -> None:
    live = LiveMixture(tiny_library)
    elsewhere = profile.fingerprint.model_copy(update={"network": "a" * 64})
    with pytest.raises(InvalidProfile, match="of another network"):
        trainee(tiny_library, router, profile.model_copy(update={"fingerprint": elsewhere}))
    how = MetaSettings(RouterSettings(width=8, n_experts=1, units="elements"), expert_share=0.3)
    elements = Trainee(live, draw_probe(tiny_suite), how).finish({})
    with pytest.raises(InvalidSettings, match="single elements have no price"):
        trainee(tiny_library, elements, profile)
    free = profile.model_copy(update={"costs": {name: (0.0,) * len(each) for name, each in profile.costs.items()}})
    learner = trainee(tiny_library, router, free)
    with pytest.raises(InvalidProfile, match="costs nothing fits every budget"):
        learner.step(0, lessons(learner, tiny_suite))
