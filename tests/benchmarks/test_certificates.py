"""The certificates' benchmark: its truths are true, its rows are all there, bounds that fail are found."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from certificates import Size, first_alarm, routing, split_violations
from certificates_simulated import SHAPES, SHARE, all_trials, violation_rows

from smatter.certify.drift import DriftState, make_drift_monitor, watch_drift

TINY = Size(3, 1, 2, 500, 60)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_shapes_know_their_mean_and_tail(shape) -> None:
    losses = shape.draw(np.random.default_rng(0), 200_000)
    assert losses.mean() == pytest.approx(shape.mean, abs=0.005)
    assert np.sort(losses)[-int(SHARE * 200_000) :].mean() == pytest.approx(shape.cvar, abs=0.015)


def test_every_bound_has_its_row() -> None:
    rows = violation_rows(all_trials(60), 2, lambda: None)
    names = [row["bound"] for row in rows]
    assert len(names) == len(set(names)) == 29
    assert all(0 <= row["violation_rate"] <= 1 for row in rows)


def test_a_bound_that_fails_is_found() -> None:
    rows = violation_rows({"any": lambda generator: iter([("bad", generator.random() < 0.5, 0.1)])}, 200, lambda: None)
    assert 0.35 < rows[0]["violation_rate"] < 0.65


def test_splits_of_measured_losses_keep_the_promise() -> None:
    losses = np.random.default_rng(0).beta(2, 5, 2000)
    rows = split_violations(losses, 200, np.random.default_rng(1), n_splits=40)
    assert len(rows) == 7 and all(row["violation_rate"] <= 0.15 and row["gap"] >= 0 for row in rows)


def test_simulated_routing_is_between_its_bounds() -> None:
    figures, tables = routing(TINY)
    assert figures["misrouting_between_bounds"] == 1 and len(tables["routing"]) == 60


def test_alarms_come_when_watching_finds_them() -> None:
    generator = np.random.default_rng(0)
    calibration, values = generator.normal(size=100), generator.normal(0.9, size=400)
    monitor = make_drift_monitor(calibration, 0.1, generator, horizon=400, window=50, n_simulations=100)
    state, seen = DriftState(), 0
    for value in values.tolist():
        state, seen = watch_drift(monitor, state, value), seen + 1
        if state.alarms:
            break
    assert seen < 400 and seen == first_alarm(monitor, calibration, values)
