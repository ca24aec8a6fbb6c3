"""Watching for drift: rare false alarms, quick true ones, a file that survives whatever happens to its writers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from made_certificates import certificate

from smatter.errors import InvalidCertificate, NotFound
from smatter.route import watch
from smatter.route.watch import Watch, begin_watch, read_watch, watch_task

GENERATOR = np.random.default_rng(5)
CALIBRATION = {name: tuple(GENERATOR.normal(size=300).tolist()) for name in ("weight-entropy", "support-loss")}
WRITER = """
import sys
from pathlib import Path
from made_certificates import certificate
from smatter.route.watch import watch_task
made, count = certificate(), 0
while count < int(sys.argv[2]):
    watch_task(Path(sys.argv[1]), made, {"weight-entropy": 0.5, "support-loss": 0.5})
    count += 1
"""


def values(shift: float = 0.0) -> dict[str, float]:
    return {name: shift + float(GENERATOR.normal()) for name in CALIBRATION}


@pytest.fixture(scope="module")
def fresh() -> Watch:
    return begin_watch(certificate(watched=CALIBRATION), values())


def test_clean_streams_rarely_raise_an_alarm(fresh: Watch) -> None:
    """A promise of 5 % over 1,000 tasks and two scores: 3 or more of 20 streams happen once in thirteen times."""
    alarmed = 0
    for seed in range(20):
        generator, state = np.random.default_rng(seed), fresh
        clean = {name: tuple(sorted(generator.normal(size=300).tolist())) for name in CALIBRATION}
        state = state.model_copy(update={"calibration": clean})
        for _ in range(300):
            state = state.after({name: float(generator.normal()) for name in CALIBRATION})
        alarmed += bool(state.alarms)
    assert alarmed <= 3


@pytest.mark.parametrize(("shift", "kind"), [(1.0, "rise"), (-1.0, "fall")])
def test_a_shift_is_found_and_stands(fresh: Watch, shift: float, kind: str) -> None:
    state = fresh
    for _ in range(100):
        state = state.after(values(shift))
    assert {each.kind for each in state.alarms} >= {kind} and min(each.after for each in state.alarms) < 60
    for _ in range(20):
        state = state.after(values())
    assert state.alarms and "no certificate speaks of them" in state.told and state.seen == 120


def test_a_task_without_a_score_adds_nothing_to_it(fresh: Watch) -> None:
    after = fresh.after({"weight-entropy": 0.1})
    assert after.seen == 1 and after.states["support-loss"].seen == 0 and after.states["weight-entropy"].seen == 1


def test_the_file_is_made_shared_and_bounded(tmp_path: Path) -> None:
    path, made = tmp_path / "drift.json", certificate()
    first = watch_task(path, made, {"weight-entropy": 0.5, "support-loss": 0.2}, then="base")
    assert read_watch(path) == first and first.then == "base"
    size = path.stat().st_size
    for number in range(30):
        found = watch_task(path, made, {"weight-entropy": number / 30, "support-loss": 0.2})
    assert found.seen == 31 and found.then == "base", "the file's own setting stays"
    assert path.stat().st_size < size + 1000
    with pytest.raises(InvalidCertificate, match="watches router on some-list"):
        watch_task(path, made.model_copy(update={"router": "e" * 64}), {"weight-entropy": 0.5})


def test_writers_at_the_same_time_lose_no_task(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    watch_task(path, certificate(), {"weight-entropy": 0.5, "support-loss": 0.5})
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), "15"], env=here) for _ in range(2)]
    assert [each.wait(120) for each in writers] == [0, 0]
    assert read_watch(path).seen == 31


def test_a_killed_writer_leaves_a_sound_file(tmp_path: Path) -> None:
    path = tmp_path / "drift.json"
    watch_task(path, certificate(), {"weight-entropy": 0.5, "support-loss": 0.5})
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])}
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), "1000000"], env=here)
    deadline = time.monotonic() + 100
    while read_watch(path).seen < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    seen = read_watch(path).seen
    assert seen >= 5
    assert watch_task(path, certificate(), {"weight-entropy": 0.5, "support-loss": 0.5}).seen == seen + 1


@pytest.mark.parametrize(
    "change",
    [
        {"seen": -1}, {"rate": 2.0}, {"cusum_limit": "high"}, {"alarms": [{"score": "x", "kind": "odd", "after": 1}]},
        {"states": {}}, {"calibration": {}}, {"schema": 2},
    ],
    ids=str,
)  # fmt: skip
def test_forged_files_are_refused_in_one_line(tmp_path: Path, fresh: Watch, change: dict[str, object]) -> None:
    path = tmp_path / "drift.json"
    path.write_text(json.dumps(json.loads(fresh.model_dump_json(by_alias=True)) | change))
    with pytest.raises(InvalidCertificate) as caught:
        read_watch(path)
    assert "\n" not in str(caught.value)


def test_too_few_tasks_or_no_scores_tell_no_drift(tmp_path: Path) -> None:
    with pytest.raises(InvalidCertificate, match="30 values cannot tell drift"):
        watch_task(tmp_path / "a", certificate(n=30), {"weight-entropy": 0.5})
    with pytest.raises(InvalidCertificate, match="no scores to tell drift by"):
        watch_task(tmp_path / "a", certificate(watched={}), {"weight-entropy": 0.5})
    with pytest.raises(NotFound, match="create it first"):
        watch_task(tmp_path / "none" / "a", certificate(), {})
    assert 3 * len(watch.WATCHED) <= watch.MAX_ALARMS, "each score's alarms have their place"


def test_a_file_of_another_calibration_on_the_same_list_is_refused(tmp_path: Path) -> None:
    """The same rule, router and list; but sources were added since, and calibrated with."""
    values = {"weight-entropy": 0.5, "support-loss": 0.2}
    watch_task(tmp_path / "drift.json", certificate(), values)
    watched = {name: tuple(50 + value for value in each) for name, each in certificate().watched.items()}
    with pytest.raises(InvalidCertificate, match="another calibration"):
        watch_task(tmp_path / "drift.json", certificate(watched=watched), values)
