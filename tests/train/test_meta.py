"""Meta-training: it learns, it goes on after a kill to the bit, it keeps what experts may change."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from smatter.adaptation.live import LiveMixture
from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.route.router import RouterSettings
from smatter.tasks.lists import TaskList
from smatter.tasks.probe import draw_probe
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.suite import Suite
from smatter.train.meta import MetaSettings, MetaStep, Series, Trainee, draw_tasks, train_router

SETTINGS = MetaSettings(RouterSettings(width=8, n_experts=2), n_steps=6, n_tasks=2, delta_rate=1e-2)


def series(suite: Suite) -> list[Series]:
    kinds = {"few": (1, 1), "more": (3, 3)}
    return [
        Series(
            TaskList(name, Sampler(suite, SamplerSettings("router", n_way=(3, 3), n_shot=shots, n_query=4)), 10_000),
            1.0,
        )
        for name, shots in kinds.items()
    ]


def trainee(library: Library, suite: Suite, settings: MetaSettings = SETTINGS) -> Trainee:
    return Trainee(LiveMixture(library), draw_probe(suite), settings)


def test_a_run_that_was_killed_goes_on_to_the_bit(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    whole: list[MetaStep] = []
    first = trainee(tiny_library, tiny_suite)
    train_router(first, series(tiny_suite), progress=whole.append)

    class Killed(Exception):
        pass

    def killed_after(told: MetaStep) -> None:
        parts.append(told)
        if told.number == 5:
            raise Killed

    parts: list[MetaStep] = []
    state = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        train_router(trainee(tiny_library, tiny_suite), series(tiny_suite), state, 2, killed_after)
    last = trainee(tiny_library, tiny_suite)
    train_router(last, series(tiny_suite), state, 2, parts.append)
    assert parts[:4] + parts[5:] == whole  # step 5 was done twice
    for name, tensor in first.state.items():
        assert torch.equal(tensor, last.state[name]), name


def test_another_run_is_not_gone_on_with(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    settings = replace(SETTINGS, n_steps=1)
    train_router(trainee(tiny_library, tiny_suite, settings), series(tiny_suite), state)
    told: list[MetaStep] = []
    other = replace(settings, seed=1)
    train_router(trainee(tiny_library, tiny_suite, other), series(tiny_suite), state, progress=told.append)
    assert [each.number for each in told] == [1]


def test_tasks_of_a_step_depend_on_seed_and_step_alone(tiny_suite: Suite) -> None:
    one, two = (draw_tasks(series(tiny_suite), SETTINGS, 3) for _ in range(2))
    assert all((a.support.inputs == b.support.inputs).all() for a, b in zip(one, two, strict=True))
    other = draw_tasks(series(tiny_suite), SETTINGS, 4)
    assert any(a.support.inputs.shape != b.support.inputs.shape or (a.support.inputs != b.support.inputs).any()
               for a, b in zip(one, other, strict=True))  # fmt: skip


def test_the_loss_of_the_same_tasks_falls(tiny_library: Library, tiny_suite: Suite) -> None:
    learner = trainee(tiny_library, tiny_suite, replace(SETTINGS, n_steps=40, warm_up=0.01, evidence_share=1.0))
    tasks = draw_tasks(series(tiny_suite), SETTINGS, 0)
    losses = [learner.step(number, tasks).loss for number in range(25)]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_what_experts_may_change_falls_to_their_share() -> None:
    settings = replace(SETTINGS, n_steps=100, expert_share=0.2)
    allowed = [settings.allowed_share(step) for step in range(100)]
    assert allowed[0] == 1 and allowed == sorted(allowed, reverse=True)
    assert allowed[60:] == pytest.approx([0.2] * 40)


@pytest.mark.parametrize("change", [{"n_steps": 0}, {"learning_rate": 0.0}, {"expert_share": 1.5}])
def test_impossible_settings_are_refused(change: dict) -> None:
    with pytest.raises(InvalidSettings):
        replace(SETTINGS, **change)
