"""The lists of Signs: what is shipped is what the tool makes; corrupted tasks have clean ones; calibration is apart."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools" / "signs"), str(ROOT / "tools" / "common")]

import freeze  # noqa: E402
from corruptions import CORRUPTIONS  # noqa: E402

from smatter.errors import NotFound  # noqa: E402
from smatter.tasks.episode import Examples  # noqa: E402
from smatter.tasks.lists import TaskList, write_list  # noqa: E402
from smatter.tasks.open import LISTS, SHIPPED, open_list, open_suite  # noqa: E402
from smatter.tasks.shifts.catalogue import parse_shifts  # noqa: E402
from smatter.tasks.splits import SPLITS  # noqa: E402

SUITE = open_suite("signs")
FOLDER = SHIPPED / "signs" / LISTS
OTHER_QUERIES = {"imbalance-total-2", "style-mismatch", "missing-classes", "spurious-cue"}
"""Corruptions that exchange, remove or paint queries; no other changes them."""
SAME_SHOTS = {"label-noise-1", "label-noise-4", "label-pairs-1", "label-pairs-4"}
"""Those that leave the pictures of the support as they are."""


@pytest.fixture(scope="module")
def made() -> dict[str, TaskList]:
    return {each.name: each for each in freeze.lists(SUITE)}


def test_shipped_lists_are_those_that_the_tool_makes(made: dict[str, TaskList]) -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.json" for name in made}
    for name, tasks in made.items():
        table = json.loads((FOLDER / f"{name}.json").read_text())
        assert table["settings"] == json.loads(json.dumps(asdict(tasks.sampler.settings)))
        assert (table["seed"], table["n_tasks"]) == (tasks.sampler.seed, tasks.n_tasks)
        assert parse_shifts(table["shifts"]) == tasks.shifts
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 200_000


@pytest.mark.parametrize(
    "name", ["calibration-mixed-noise", *(f"validation-corrupt-{name}-ood" for name in sorted(CORRUPTIONS)[::5])]
)
def test_a_list_is_frozen_to_the_same_bytes_again(made: dict[str, TaskList], tmp_path: Path, name: str) -> None:
    write_list(tmp_path / "again.json", made[name])
    assert (tmp_path / "again.json").read_bytes() == (FOLDER / f"{name}.json").read_bytes()
    assert open_list("signs", name).n_tasks == made[name].n_tasks


def test_there_are_calibration_lists_of_a_thousand_tasks_and_corrupted_ones_of_sixty(made: dict) -> None:
    wanted = {f"calibration-{kind}-{what}" for kind in ("id", "mixed") for what in (1, 2, 5, "noise")}
    assert {name for name, tasks in made.items() if tasks.n_tasks == 1000} == wanted
    stages, roles = ("validation", "test", "final"), ("id", "ood")
    wanted = {f"{stage}-corrupt-{name}-{role}" for stage in stages for name in CORRUPTIONS for role in roles}
    assert {name for name, tasks in made.items() if tasks.n_tasks == 60} == wanted


def test_a_class_of_a_calibration_task_is_nowhere_else(made: dict[str, TaskList]) -> None:
    """Its concept: neither trained on, nor for choices, nor for tests, in whatever domain."""
    concepts = {
        split: {each.key for domain in SUITE.domains for each in SUITE.classes(domain, split)} for split in SPLITS
    }
    drawn: dict[str, set[str]] = {"calibration": set(), "other": set()}
    for name, tasks in made.items():
        stage = "calibration" if name.startswith("calibration") else "other"
        for index in range(tasks.n_tasks if stage == "calibration" else 60):
            classes = tasks.sampler.draw(index).classes
            drawn[stage] |= {SUITE.domains[domain].classes[number].key for domain, number in classes}
    assert len(drawn["calibration"]) > 100 and len(drawn["other"]) > 300
    for split in set(SPLITS) - {"calibration"}:
        assert concepts[split] and not drawn["calibration"] & concepts[split], split
    assert not drawn["calibration"] & drawn["other"]


@pytest.mark.parametrize("role", ["id", "ood"])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corrupted_tasks_are_the_clean_ones_but_for_what_went_wrong(made: dict, name: str, role: str) -> None:
    clean, corrupt = made[f"validation-{role}-5"], made[f"validation-corrupt-{name}-{role}"]
    for index in range(corrupt.n_tasks):
        assert clean.sampler.draw(index) == corrupt.sampler.draw(index)
    before, after = clean.episode(3), corrupt.episode(3)
    assert same(before.query, after.query) == (name not in OTHER_QUERIES)
    shots = same(before.support, after.support, "inputs", "truth")
    assert shots == (name in SAME_SHOTS)
    assert not same(before.support, after.support), "it does nothing"
    if name in ("imbalance-2", "imbalance-total-2", "style-mismatch"):
        pictures = {each.tobytes() for part in (before.support, before.query) for each in part.inputs}
        assert {each.tobytes() for each in after.support.inputs} <= pictures


def same(one: Examples, other: Examples, *columns: str) -> bool:
    columns = columns or ("inputs", "labels", "truth")
    return all(np.array_equal(getattr(one, column), getattr(other, column)) for column in columns)


def test_an_unknown_list_is_answered_with_names_like_it() -> None:
    with pytest.raises(NotFound, match="validation-corrupt-blur-5-id") as caught:
        open_list("signs", "validation-blur-5-id")
    assert len(str(caught.value)) < 400
