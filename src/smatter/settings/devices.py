"""How a network is used on a device, and how that is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from smatter.errors import InvalidSettings
from smatter.settings import check_choices

DeviceDtype = Literal["F32", "BF16"]
ProfileMethod = Literal["stacks", "micro-benchmarks", "bytes"]
"""Time whole networks; operators alone, which is quicker and worse; or count bytes."""


@dataclass(frozen=True)
class DeviceSetting:
    """How a network is used on a device.

    Args:
        threads: of torch.
        batch: rows of a forward pass.
        dtype: of weights and computing.
        length: tokens of a text, or the side of a picture; 32, or what the network's config says, by default.
        rank: rank components that each linear operator's delta has, if these are the units instead of groups.
    """

    threads: int = 1
    batch: int = 8
    dtype: DeviceDtype = "F32"
    length: int | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        bounds = {"threads": 1024, "batch": 4096, "length": 100_000, "rank": 4096}
        if not all(1 <= (1 if (value := getattr(self, name)) is None else value) <= bounds[name] for name in bounds):
            raise InvalidSettings("threads, rows, lengths and ranks of a profile must be positive, and not absurd")
        check_choices(self, dtype=DeviceDtype)


@dataclass(frozen=True)
class MeasureSettings:
    """How much is measured for a profile.

    Args:
        n_fitted: stacks that costs are fitted to.
        n_calibrated: other stacks, that the bound is taken from.
        n_tested: others again, as budgets leave them, that say what the profile is worth.
        seconds: about how long it may take; every stack is timed four times at least, more for high quantiles.
        quantile: of a stack's times that the bound is for.
        delta: how likely a new stack may exceed its bound.
        seed: of the stacks.
    """

    n_fitted: int = 90
    n_calibrated: int = 100
    n_tested: int = 40
    seconds: float = 100.0
    quantile: float = 0.5
    delta: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("quantile", "delta"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidSettings(f"a {name} must be between 0 and 1, not {getattr(self, name):g}")
        if self.n_fitted < 20 or not self.seconds > 0:
            raise InvalidSettings("fit at least 20 stacks, in positive time")
        if (self.n_calibrated + 1) * self.delta < 1:
            least = 1 / (self.n_calibrated + 1)
            raise InvalidSettings(
                f"{self.n_calibrated} stacks give no bound that fails with probability {self.delta:g}: "
                f"take a delta of {least:.2g} or more"
            )

    @property
    def n_stacks(self) -> int:
        """All that are timed."""
        return self.n_fitted + self.n_calibrated + self.n_tested


@dataclass(frozen=True)
class ProfileSettings:
    """Where the figures of a profile come from.

    Args:
        method: what is measured.
        table: a JSON file with your own costs, to be taken instead.
        earlier: a profile to adjust to this device and setting.
        points: networks to time for that; 24 by default.
        margin: do not measure for that: everything is slower by this factor.
        quantile: of the times, that a bound is for; 0.5, or as in the earlier profile, by default.
        delta: how likely a new network may exceed its bound; 0.1, or as in the earlier profile, by default.
        seconds: about how long to measure.
    """

    method: ProfileMethod = "stacks"
    table: Path | None = None
    earlier: Path | None = None
    points: int | None = None
    margin: float | None = None
    quantile: float | None = None
    delta: float | None = None
    seconds: float = 100.0

    def __post_init__(self) -> None:
        check_choices(self, method=ProfileMethod)
        if self.earlier is None and not (self.margin is None and self.points is None):
            raise InvalidSettings("a margin or points are for an old profile: name it with --from")
        if self.earlier is not None and (self.table is not None or self.method != "stacks"):
            raise InvalidSettings("--from adjusts what is in the old profile: leave out --method and --table")
        if self.table is not None and self.method != "stacks":
            raise InvalidSettings("a table says what everything costs: leave out --method")
        if self.margin is not None and not (self.quantile is None and self.delta is None and self.points is None):
            raise InvalidSettings("with a margin nothing is measured: leave out --quantile, --delta and --points")

    def measured(self, quantile: float = 0.5, delta: float = 0.1) -> MeasureSettings:
        """How much is measured; quantile and delta are those given, where the settings say none."""
        return MeasureSettings(
            seconds=self.seconds,
            quantile=quantile if self.quantile is None else self.quantile,
            delta=delta if self.delta is None else self.delta,
        )
