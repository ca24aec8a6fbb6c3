"""The ledger: every release is in it before it is told, and the total is what releases reveal together."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from smatter.errors import InvalidSettings, SmatterError
from smatter.route.ledger import Release, note_release, read_ledger, total_of
from smatter.route.private import noise_scale


def releases(*promises: tuple[float, float]) -> tuple[Release, ...]:
    return tuple(
        Release(id="0" * 32, time="now", epsilon=epsilon, delta=delta, n_examples=10) for epsilon, delta in promises
    )


def least_delta(promises: tuple[tuple[float, float], ...], epsilon: float) -> float:
    """By brute force: losses of independent mechanisms add up, so their distributions, on a grid, are convolved."""
    step, losses, density = 0.002, np.zeros(1), np.ones(1)
    for each in promises:
        mu = 1 / noise_scale(1.0, *each)
        reach = math.ceil((mu**2 / 2 + 9 * mu) / step)
        grid = step * np.arange(-reach, reach + 1)
        mass = norm.cdf((grid + step / 2 - mu**2 / 2) / mu) - norm.cdf((grid - step / 2 - mu**2 / 2) / mu)
        density = np.convolve(density, mass)
        losses = losses[0] + grid[0] + step * np.arange(len(density))
    return float((density * np.maximum(0, 1 - np.exp(epsilon - losses))).sum())


@pytest.mark.parametrize(
    "promises",
    [((1.0, 1e-5),), ((1.0, 1e-5), (1.0, 1e-5)), ((0.5, 1e-4), (2.0, 1e-3), (1.0, 1e-5)), ((1.0, 1e-5),) * 8],
)
def test_the_total_is_the_least_that_is_true(promises: tuple[tuple[float, float], ...]) -> None:
    total = total_of(releases(*promises))
    assert total.added == pytest.approx(sum(epsilon for epsilon, _ in promises))
    assert total.delta == pytest.approx(sum(delta for _, delta in promises))
    assert least_delta(promises, total.epsilon) == pytest.approx(total.delta, rel=0.02)
    if len(promises) > 1:
        assert total.epsilon < total.added
        assert least_delta(promises, 0.97 * total.epsilon) > 1.02 * total.delta


def test_the_total_of_hardly_any_noise_is_a_number() -> None:
    total = total_of(releases((1e6, 1e-5), (1.0, 1e-5)))
    assert 1e5 < total.epsilon <= total.added == 1e6 + 1


def test_releases_add_up_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    assert read_ledger(path) == ()
    totals = [note_release(path, 1.0, 1e-5, 30) for _ in range(3)]
    assert [total.n_releases for total in totals] == [1, 2, 3]
    assert [total.added for total in totals] == [1, 2, 3]
    assert totals[0].epsilon == pytest.approx(1) and totals[1].epsilon < 2
    kept = read_ledger(path)
    assert total_of(kept) == totals[-1] and len({release.id for release in kept}) == 3
    assert set(json.loads(path.read_text())["releases"][0]) == {"id", "time", "epsilon", "delta", "n_examples"}


def test_two_processes_lose_no_release(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from smatter.route.ledger import note_release\n"
        "for _ in range(20): note_release(Path(sys.argv[1]), 0.1, 1e-6, 5)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "ledger.json")]) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(read_ledger(tmp_path / "ledger.json")) == 40


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{}", '{"schema": 2, "releases": []}', '{"schema": 1, "releases": [{}]}',
        '{"schema": 1, "releases": [{"id": "", "time": "", "epsilon": -1, "delta": 0.1, "n_examples": 3}]}',
    ],
)  # fmt: skip
def test_what_is_no_ledger_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(SmatterError) as refusal:
        note_release(tmp_path / "a.json", 1.0, 1e-5, 3)
    assert "\n" not in str(refusal.value) and (tmp_path / "a.json").read_text() == content


def test_a_ledger_that_promises_nothing_any_more_is_refused(tmp_path: Path) -> None:
    note_release(tmp_path / "a.json", 1.0, 0.6, 3)
    with pytest.raises(InvalidSettings, match="promises nothing"):
        note_release(tmp_path / "a.json", 1.0, 0.6, 3)
    assert len(read_ledger(tmp_path / "a.json")) == 1
    with pytest.raises(InvalidSettings, match="create it first"):
        note_release(tmp_path / "nowhere" / "a.json", 1.0, 0.1, 3)
