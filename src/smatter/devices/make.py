"""A profile of this device, in whichever way was asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

from smatter.devices.measure import correct_profile, measure_profile
from smatter.devices.profile import Profile, read_profile
from smatter.devices.sample import make_sample_library
from smatter.devices.stacks import make_bench
from smatter.devices.unmeasured import counted_profile, micro_profile, table_profile
from smatter.library.library import Library
from smatter.records import Progress, silent
from smatter.settings.devices import DeviceSetting, ProfileSettings

N_POINTS = 24
"""Networks to time when an earlier profile is adjusted."""


def make_profile(
    library: Library | None, setting: DeviceSetting, settings: ProfileSettings, progress: Progress = silent
) -> Profile:
    """Measure this device, adjust an earlier profile to it, or take costs from elsewhere.

    Args:
        library: whose base is timed; a small random ViT without one.
        setting: how the network is used.
        settings: where the figures come from.
        progress: told shares of the work.
    """
    earlier = None if settings.earlier is None else read_profile(settings.earlier)
    if earlier is not None:
        earlier.check_is_time()
    how_much = settings.measured() if earlier is None else settings.measured(earlier.quantile, earlier.delta)
    if library is None:
        with tempfile.TemporaryDirectory() as folder:
            return make_profile(make_sample_library(Path(folder)), setting, settings, progress)
    if earlier is not None:
        bench = make_bench(library, setting)
        if settings.margin is not None:
            return earlier.with_margin(bench.fingerprint, settings.margin)
        n_points = settings.points or N_POINTS
        return correct_profile(
            bench, earlier, n_points, quantile=how_much.quantile, delta=how_much.delta, progress=progress
        )
    if settings.table is not None:
        return table_profile(settings.table, make_bench(library, setting))
    if settings.method == "bytes":
        return counted_profile(make_bench(library, setting))
    if settings.method == "micro-benchmarks":
        return micro_profile(make_bench(library, setting), how_much.delta)
    return measure_profile(library, setting, how_much, progress)
