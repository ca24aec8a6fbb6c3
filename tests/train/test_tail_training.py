"""Routers trained on the worst share of their tasks: which tasks count, and a window that is taken up again."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_meta import SETTINGS, curriculum, series, trainee

from smatter.errors import InvalidSettings
from smatter.library.library import Library
from smatter.settings.training import MetaSettings, RouterSettings
from smatter.tasks.suite import Suite
from smatter.train.lessons import Timetable
from smatter.train.meta import meta_train
from smatter.train.objective import task_loss

PLAIN = MetaSettings(RouterSettings(width=8), n_steps=4, n_tasks=3)


def test_all_tasks_count_alike_to_the_bit(tiny_library: Library, tiny_suite: Suite) -> None:
    """At rho = 1 the gradient is that of the plain mean of the tasks' losses, summed in their order."""
    own, by_hand = (trainee(tiny_library, tiny_suite, PLAIN) for _ in range(2))
    lessons = Timetable(series(tiny_suite), 3, 0.5, seed=0).lessons(own.live, 0)
    own.step(0, lessons)
    total = torch.zeros(())
    for lesson in lessons:
        found = task_loss(
            by_hand.live,
            by_hand.router,
            experts=None,
            gates=None,
            lesson=lesson,
            descriptors=by_hand.descriptors,
            imitation=PLAIN.imitation,
        )
        mixed = torch.special.entr(found.routing.weights.clamp(min=1e-12)).sum(dim=1).mean()
        total = total + (found.slope + 0.0 * mixed) / 3
    total.backward()
    torch.nn.utils.clip_grad_norm_(by_hand.router.parameters(), 1.0)
    for mine, other in zip(own.router.parameters(), by_hand.router.parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None)
        assert mine.grad is None or other.grad is None or torch.equal(mine.grad, other.grad)


def test_only_the_worst_task_counts_where_the_share_is_one_task(tiny_library: Library, tiny_suite: Suite) -> None:
    tail = replace(PLAIN, cvar=1 / 3)
    own, alone = trainee(tiny_library, tiny_suite, tail), trainee(tiny_library, tiny_suite, PLAIN)
    lessons = Timetable(series(tiny_suite), 3, 0.5, seed=0).lessons(own.live, 0)
    values = [trainee(tiny_library, tiny_suite, PLAIN).step(0, [lesson]).loss for lesson in lessons]
    worst = lessons[max(range(3), key=values.__getitem__)]
    assert own.step(0, lessons).loss == pytest.approx(sum(values) / 3)  # what is told stays the mean
    alone.step(0, [worst])
    for mine, other in zip(own.router.parameters(), alone.router.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_a_window_is_taken_up_again_to_the_bit(tiny_library: Library, tiny_suite: Suite, tmp_path: Path) -> None:
    settings = replace(SETTINGS, n_steps=4, cvar=0.25, window=6)
    whole = trainee(tiny_library, tiny_suite, settings)
    meta_train(whole, curriculum(tiny_suite), tmp_path / "whole", 2)
    assert whole.seen is not None and bool((whole.state["seen"] == whole.seen).all())

    class Killed(Exception):
        pass

    def killed(told: object) -> None:
        if getattr(told, "step", 0) == 3:
            raise Killed

    with pytest.raises(Killed):
        meta_train(
            trainee(tiny_library, tiny_suite, settings), curriculum(tiny_suite), tmp_path / "parts", 2, watch=killed
        )
    last = trainee(tiny_library, tiny_suite, settings)
    meta_train(last, curriculum(tiny_suite), tmp_path / "parts", 2)
    assert all(torch.equal(tensor, last.state[name]) for name, tensor in whole.state.items())


def test_a_window_says_which_tasks_are_among_the_worst(tiny_library: Library, tiny_suite: Suite) -> None:
    one = trainee(tiny_library, tiny_suite, replace(PLAIN, cvar=0.25, window=8))
    assert one._counts([1.0, 2.0, 3.0]) == [0.0, 0.0, 3.0]  # the batch alone: 0.25 of 3 losses is its largest
    one._counts([9.0, 8.0, 7.0])
    assert one._counts([1.0, 2.0, 3.0]) == [0.0, 0.0, 0.0]  # of the last eight, 9 and 8 are the worst quarter
    assert one._counts([20.0, 1.0, 1.0]) == [pytest.approx(4.0), 0.0, 0.0]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"cvar": 0.1}, "the worst 0.1 of the 4 tasks of a step is less than one"),
        ({"cvar": 0.0}, "above 0"),
        ({"cvar": 2.0}, "above 0"),
        ({"cvar": 0.1, "window": 10}, "give --window 11 or more"),
    ],
)
def test_a_share_that_is_no_task_is_refused(how: dict, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        MetaSettings(**how)
    assert MetaSettings(cvar=0.1, window=11).window == 11
