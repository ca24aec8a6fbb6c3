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
from smatter.settings import DeviceSetting, MeasureSettings, ProfileSettings

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
    if library is None:
        with tempfile.TemporaryDirectory() as folder:
            return make_profile(make_sample_library(Path(folder)), setting, settings, progress)
    if settings.earlier is not None:
        return _adjusted(library, setting, settings, read_profile(settings.earlier), progress)
    how_much = settings.measured(MeasureSettings())
    if settings.table is not None:
        return table_profile(settings.table, make_bench(library, setting))
    if settings.method == "bytes":
        return counted_profile(make_bench(library, setting))
    if settings.method == "micro-benchmarks":
        return micro_profile(make_bench(library, setting), how_much.delta)
    return measure_profile(library, setting, how_much, progress)


def _adjusted(
    library: Library, setting: DeviceSetting, settings: ProfileSettings, earlier: Profile, progress: Progress
) -> Profile:
    earlier.check_is_time()
    bench = make_bench(library, setting)
    if settings.margin is not None:
        return earlier.with_margin(bench.fingerprint, settings.margin)
    how_much = settings.measured(MeasureSettings(quantile=earlier.quantile, delta=earlier.delta))
    return correct_profile(
        bench, earlier, settings.points or N_POINTS, how_much.quantile, how_much.delta, progress=progress
    )
