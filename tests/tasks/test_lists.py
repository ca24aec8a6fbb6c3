"""Frozen lists: they replay, they notice every change, and final ones stay closed."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_suites import keys, picture_suite, text_suite, usual_suite

from smatter.errors import InvalidSuite, SmatterError
from smatter.tasks import sampler
from smatter.tasks.lists import TaskList, is_list, read_list, write_list
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.catalogue import parse_shifts
from smatter.tasks.shifts.labels import LabelNoise

SUITE = usual_suite()
VARIED = SamplerSettings("test", n_way=(5, 8), n_shot=(1, 5), n_domains=(1, 2), ood_fraction=0.25)


def frozen(path: Path, name: str = "easy", n_tasks: int = 20, **more) -> TaskList:
    tasks = TaskList(name, Sampler(SUITE, VARIED, 3), n_tasks, **more)
    write_list(path, tasks)
    return tasks


def test_a_list_replays(tmp_path: Path) -> None:
    tasks = frozen(tmp_path / "a.json")
    again = read_list(tmp_path / "a.json", usual_suite())
    assert (
        len(again) == 20 and again.name == "easy" and again.sampler.settings == VARIED and is_list(tmp_path / "a.json")
    )
    for one, other in zip(tasks, again, strict=True):
        assert one.class_names == other.class_names
        assert one.support.inputs == other.support.inputs and one.query.inputs == other.query.inputs
    assert (tmp_path / "a.json").stat().st_size < 2000


def test_shifts_are_part_of_a_list_and_replay(tmp_path: Path) -> None:
    suite = picture_suite()
    tables = ({"shift": "label-noise", "rate": 0.4}, {"shift": "gaussian-noise", "severity": 3})
    shifts = parse_shifts([{"shift": "imbalance", "keep_total": True}, *tables])
    tasks = TaskList("hard", Sampler(suite, SamplerSettings("all", n_way=(3, 3), n_shot=(4, 4))), 5, shifts)
    write_list(tmp_path / "a.json", tasks)
    again = read_list(tmp_path / "a.json", suite)
    assert again.shifts == shifts
    for one, other, plain in zip(tasks, again, (again.sampler.episode(i) for i in range(5)), strict=True):
        assert np.array_equal(one.support.inputs, other.support.inputs)
        assert np.array_equal(one.support.labels, other.support.labels)
        assert not np.array_equal(one.support.labels, plain.support.labels)


def test_a_changed_suite_is_refused(tmp_path: Path) -> None:
    frozen(tmp_path / "a.json")
    for other in (usual_suite(13), text_suite({"print": ("id", keys(0, 90))})):
        with pytest.raises(InvalidSuite, match="another version"):
            read_list(tmp_path / "a.json", other)


def test_a_changed_sampler_is_refused(tmp_path: Path, monkeypatch) -> None:
    frozen(tmp_path / "a.json")
    monkeypatch.setattr("smatter.tasks.sampler._between", lambda limits, generator: limits[0])
    with pytest.raises(InvalidSuite, match="the sampler has changed"):
        read_list(tmp_path / "a.json", SUITE)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", 4, "other tasks"),
        ("n_tasks", 19, "other tasks"),
        ("n_tasks", 0, "n_tasks"),
        ("n_tasks", 10**9, "n_tasks"),
        ("draws", "0" * 64, "other tasks"),
        ("draws", "", "draws"),
        ("schema", 2, "schema"),
        ("settings", {"n_way": [1, 1]}, "n_way"),
        ("settings", {"n_way": "many"}, "n_way"),
        ("shifts", [{"shift": "nonsense"}], "unknown shift"),
        ("shifts", [{"shift": "label-noise", "nonsense": 1}], "does not take"),
        ("extra", 1, "extra"),
    ],
)
def test_an_edited_list_is_refused_in_one_line(tmp_path: Path, key: str, value: object, message: str) -> None:
    frozen(tmp_path / "a.json")
    table = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps(table | {key: value}))
    with pytest.raises(SmatterError, match=message) as caught:
        read_list(tmp_path / "a.json", SUITE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["final", "final-ood"])
def test_final_lists_stay_closed(tmp_path: Path, name: str) -> None:
    frozen(tmp_path / "a.json", name)
    with pytest.raises(InvalidSuite, match="kept for the full comparison"):
        read_list(tmp_path / "a.json", SUITE)
    assert len(read_list(tmp_path / "a.json", SUITE, final=True)) == 20


def test_bad_names_sizes_and_numbers_are_refused(tmp_path: Path) -> None:
    sampler = Sampler(SUITE, VARIED)
    for name, n_tasks in (("../x", 1), ("", 1), ("x", 0), ("x", 100_001)):
        with pytest.raises(InvalidSuite):
            TaskList(name, sampler, n_tasks)
    for index in (-1, 3):
        with pytest.raises(InvalidSuite, match="it has 0 to 2"):
            TaskList("x", sampler, 3).episode(index)
    (tmp_path / "x.json").write_text("{}")
    assert not is_list(tmp_path / "x.json") and not is_list(tmp_path / "nowhere")


def test_a_list_that_would_take_hours_to_draw_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = frozen(tmp_path / "a.json")
    monkeypatch.setattr("smatter.tasks.lists.MAX_DRAWN", 20 * tasks.sampler.most_drawn)
    assert read_list(tmp_path / "a.json", SUITE).n_tasks == 20
    monkeypatch.setattr("smatter.tasks.lists.MAX_DRAWN", 20 * tasks.sampler.most_drawn - 1)
    with pytest.raises(InvalidSuite, match="give at most 19 tasks"):
        read_list(tmp_path / "a.json", SUITE)


def test_no_task_draws_more_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    choose = sampler._choose
    monkeypatch.setattr(sampler, "_choose", lambda n, *more: drawn.append(n) or choose(n, *more))
    tasks = Sampler(SUITE, VARIED, 3)
    for index in range(50):
        drawn.clear()
        tasks.draw(index)
        assert sum(drawn[1:]) <= tasks.most_drawn  # the first is of domains, of which there are few


def test_shifts_without_end_and_domains_named_twice_are_refused(tmp_path: Path) -> None:
    frozen(tmp_path / "a.json")
    table = json.loads((tmp_path / "a.json").read_text())
    for changed, message in (
        ({"shifts": [{"shift": "blur"}] * 101}, "shifts"),
        ({"settings": table["settings"] | {"domains": ["print"] * 1000}}, "named twice"),
    ):
        (tmp_path / "b.json").write_text(json.dumps(table | changed))
        with pytest.raises(SmatterError, match=message):
            read_list(tmp_path / "b.json", SUITE)


def test_a_list_notices_a_shift_that_works_differently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = usual_suite()
    tasks = TaskList("noisy", Sampler(suite, SamplerSettings(n_shot=(3, 3), n_query=2)), 4, (LabelNoise(0.4),))
    write_list(tmp_path / "noisy.json", tasks)
    assert read_list(tmp_path / "noisy.json", suite).digest == tasks.digest
    monkeypatch.setattr(LabelNoise, "__call__", lambda self, episode, generator: episode)
    with pytest.raises(InvalidSuite, match="other tasks"):
        read_list(tmp_path / "noisy.json", suite)
