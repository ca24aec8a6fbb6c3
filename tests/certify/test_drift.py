"""Drift: false alarms as rare as stated, shifts found, states that can be kept between values."""

import numpy as np
import pytest
from known_losses import most_failures

from smatter.certify.drift import (
    N_BINS,
    DriftMonitor,
    DriftState,
    cusum_paths,
    make_drift_monitor,
    ranks_among,
    stability_index,
    stability_indices,
    watch_drift,
)
from smatter.errors import InvalidCertificate


@pytest.fixture(scope="module")
def monitor() -> DriftMonitor:
    calibration = np.random.default_rng(0).normal(size=200)
    return make_drift_monitor(
        calibration, 0.1, np.random.default_rng(1), horizon=300, window=100, n_simulations=400
    )  # fmt: skip


def first_alarm(monitor: DriftMonitor, values: np.ndarray) -> tuple[int, tuple[str, ...]] | None:
    state = DriftState()
    for index, value in enumerate(values.tolist()):
        state = watch_drift(monitor, state, value)
        if state.alarms:
            return index, state.alarms
    return None


def alarms_in(monitor: DriftMonitor, calibration: np.ndarray, values: np.ndarray) -> bool:
    """The same, all values at once, for another calibration set of the same size."""
    reference = np.sort(calibration)
    ranks = ranks_among(reference, values)
    indices = stability_indices(ranks, ranks_among(reference, reference), monitor.window)
    return bool(
        max(path.max() for path in cusum_paths(ranks)) > monitor.cusum_limit or max(indices) > monitor.psi_limit
    )


@pytest.mark.parametrize("rounding", [None, 1, 0])
def test_false_alarms_are_as_rare_as_stated(monitor: DriftMonitor, rounding: int | None) -> None:
    """Whatever the distribution, with a fresh calibration set each time; ties make them rarer."""
    generator, draws, found = np.random.default_rng(2), 300, 0
    for _ in range(draws):
        values = generator.gamma(2.0, size=500)
        values = values if rounding is None else values.round(rounding)
        found += alarms_in(monitor, values[:200], values[200:])
    assert found / draws <= most_failures(0.1, draws)
    assert rounding is not None or found > 0


def test_watching_one_by_one_is_watching_all_at_once(monitor: DriftMonitor) -> None:
    values = np.random.default_rng(3).normal(0.3, size=300)
    reference = np.asarray(monitor.calibration)
    high, low = cusum_paths(ranks_among(reference, values))
    state = DriftState()
    for index, value in enumerate(values.tolist()):
        state = watch_drift(monitor, state, value)
        assert (state.high, state.low) == pytest.approx((high[index], low[index]))
    found = first_alarm(monitor, values)
    assert (found is not None) == alarms_in(monitor, reference, values)


@pytest.mark.parametrize(
    ("shift", "scale", "alarm"), [(1.5, 1, "rise"), (-1.5, 1, "fall"), (0, 3, "spread"), (0, 0.2, "spread")]
)
def test_shifts_in_both_directions_and_spreads_are_found(monitor: DriftMonitor, shift, scale, alarm) -> None:
    values = shift + scale * np.random.default_rng(4).normal(size=300)
    found = first_alarm(monitor, values)
    assert found is not None and found[0] <= 100 and alarm in found[1]


def test_a_period_begins_anew(monitor: DriftMonitor) -> None:
    state = DriftState(seen=monitor.horizon, high=50.0, low=50.0, counts=(5,) * N_BINS)
    after = watch_drift(monitor, state, 0.0)
    assert after.seen == 1 and sum(after.counts) == 1 and not after.alarms and after.high < 1


def test_ranks_are_symmetric_and_shared_by_ties() -> None:
    reference = np.array([0.0, 1.0, 1.0, 2.0])
    assert ranks_among(reference, [-1.0, 1.0, 3.0]) == pytest.approx([-0.8, 0.0, 0.8])


def test_psi_by_hand() -> None:
    counts, even = [30] + [0] * 8 + [70], [10] * 10
    assert stability_index(even, even) == 0
    shares = (np.array(counts) + 0.5) / 105
    assert stability_index(counts, even) == pytest.approx(((shares - 0.1) * np.log(shares / 0.1)).sum())


def test_bad_numbers_are_refused(monitor: DriftMonitor) -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(InvalidCertificate, match="50 or more"):
        make_drift_monitor(np.arange(20.0), 0.1, generator, n_simulations=50)
    with pytest.raises(InvalidCertificate, match="shorter"):
        make_drift_monitor(np.arange(60.0), 0.1, generator, horizon=10, window=20, n_simulations=50)
    with pytest.raises(InvalidCertificate, match="one row"):
        make_drift_monitor([np.nan] * 60, 0.1, generator)
    with pytest.raises(InvalidCertificate, match="leave that task out"):
        watch_drift(monitor, DriftState(), float("nan"))
