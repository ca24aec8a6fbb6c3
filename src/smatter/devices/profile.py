"""A profile: one device and setting with its measured latency model and what the model is worth, in one JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smatter.budget.latency import KNOTS, Floats, LatencyModel, ModuleCost, conformal_factor
from smatter.devices.fingerprint import Fingerprint
from smatter.devices.stacks import Stack
from smatter.errors import InvalidProfile, NotFound, SmatterError
from smatter.library.headers import read_small_json
from smatter.library.manifest import first_mistake
from smatter.library.writing import write_file

MAX_BYTES = 16_000_000
FEW_POINTS = 8
"""Measurements that an affine correction needs."""

Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Costs = Annotated[tuple[Number, ...], Field(min_length=len(KNOTS), max_length=len(KNOTS))]
Share = Annotated[float, Field(gt=0, lt=1)]
Method = Literal["stacks", "micro-benchmarks", "counted", "table"]


class Composing(BaseModel):
    """What it costs to compose a model (multi-source paper, section 9); numbers are in ms and bytes.

    Args:
        fixed: whatever is composed.
        per_read: for each module of each source that is read.
        per_byte: for each byte of them.
        per_correction: for each module that a residual corrects.
        per_corrected_byte: for each byte of these modules.
        module_bytes: size of each module.
        off: how far predictions were off on compositions that were not fitted, median share.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed: Number
    per_read: Number
    per_byte: Number
    per_correction: Number
    per_corrected_byte: Number
    module_bytes: dict[str, int]
    off: Number

    def c_mix(self, module: str) -> float:
        """Cost of each source that is mixed into a module."""
        return self.per_read + self.per_byte * self._bytes(module)

    def c_res(self, module: str) -> float:
        """Cost of a module's residual."""
        return self.per_correction + self.per_corrected_byte * self._bytes(module)

    def cost(self, n_sources: dict[str, int], corrected: Sequence[str]) -> float:
        """Time to compose, by how many sources each module mixes and which modules are corrected."""
        mixed = sum(n * self.c_mix(module) for module, n in n_sources.items())
        return self.fixed + mixed + sum(self.c_res(module) for module in corrected)

    def _bytes(self, module: str) -> int:
        if module not in self.module_bytes:
            raise InvalidProfile(f"the profile knows no module {module[:100]!r}: profile this network")
        return self.module_bytes[module]


class Profile(BaseModel):
    """A device and setting, measured.

    Args:
        unit: of `base` and of all costs: ms, bytes, mJ.
        method: how costs were found: from whole stacks, operators alone, by counting, or in a user's own table.
        fingerprint: what they depend on.
        quantile: of a configuration's times that the bound is for; what is predicted is the median.
        base: what a forward pass without any delta takes.
        costs: of each module: as soon as it is on, then from knot to knot; in shares of `base`.
        bend: what is not additive; see `LatencyModel`.
        kappa, epsilon, delta: a measured quantile is at most kappa * predicted + epsilon with probability 1 - delta.
        is_quiet: whether nobody else used the machine meanwhile; if somebody did, kappa is wider.
        rows: what the base takes with other numbers of rows.
        composing: what it costs to compose a model, if that was measured.
        points: what was predicted and measured for configurations that were not fitted.
        record: how it was measured and what the model is worth, for people.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    format: Literal[1] = Field(default=1, alias="schema")
    unit: Annotated[str, Field(min_length=1, max_length=20)]
    method: Method
    fingerprint: Fingerprint
    quantile: Share = 0.5
    base: Positive
    costs: Annotated[dict[str, Costs], Field(min_length=1, max_length=100_000)]
    bend: Annotated[float, Field(ge=-0.25, le=10)] = 0.0
    kappa: Positive = 1.0
    epsilon: Number = 0.0
    delta: Share = 0.1
    is_quiet: bool = True
    rows: dict[int, Positive] = {}
    composing: Composing | None = None
    points: tuple[tuple[Positive, Positive], ...] = ()
    record: dict[str, Any] = {}

    @property
    def model(self) -> LatencyModel:
        """Costs of the modules."""
        return LatencyModel({module: ModuleCost(each[0], each[1:]) for module, each in self.costs.items()}, self.bend)

    def predict(self, active: Stack | Sequence[Stack]) -> Floats:
        """The median time of configurations, as the model has it, in `unit`."""
        return self.base * self.model.relative(active)

    def bound(self, active: Stack | Sequence[Stack]) -> Floats:
        """What the stated quantile of each is at most, with probability 1 - delta."""
        return self.kappa * self.predict(active) + self.epsilon

    def base_of(self, n_rows: int) -> float:
        """What the base takes with another number of rows: between what was measured, and beyond in proportion."""
        known = sorted({**self.rows, self.fingerprint.batch: self.base}.items())
        counts, times = (np.array(part, float) for part in zip(*known, strict=True))
        if n_rows > counts[-1]:
            slope = (times[-1] - times[0]) / (counts[-1] - counts[0]) if len(known) > 1 else times[-1] / counts[-1]
            return float(times[-1] + slope * (n_rows - counts[-1]))
        return float(np.interp(n_rows, counts, times))

    def check(self, now: Fingerprint) -> None:
        """Refuse another device, setting or network than was measured."""
        if different := self.fingerprint.differences(now):
            raise InvalidProfile(
                f"the profile is for {'; '.join(different)}: run `smatter profile` here, or adjust it with --from"
            )

    def corrected(self, now: Fingerprint, stacks: Sequence[Stack], measured: Floats) -> Profile:
        """For another device or setting of the same network, by a factor and an offset from a few measurements there.

        The bound becomes the worst of the points where they are too few for more.
        """
        self.check_network(now)
        if len(stacks) < FEW_POINTS:
            raise InvalidProfile(f"{len(stacks)} points are too few to correct a profile: measure {FEW_POINTS} or more")
        shares = self.model.relative(stacks) - 1
        design = np.stack([np.ones(len(stacks)), shares], axis=1)
        (base, slope), *_ = np.linalg.lstsq(design, measured, rcond=None)
        if not (base > 0 and slope > 0):
            raise InvalidProfile("the points do not fit the profile at all: run `smatter profile` here")
        scale = float(slope / base)
        costs = {module: tuple(scale * number for number in each) for module, each in self.costs.items()}
        changed = {"fingerprint": now, "base": float(base), "costs": costs, "bend": self.bend / scale, "rows": {}}
        corrected = self.model_copy(update=changed)
        scores = ((measured - self.epsilon) / corrected.predict(stacks)).tolist()
        factor = conformal_factor(scores, self.delta)
        kappa = max(self.kappa, factor if np.isfinite(factor) else max(scores))
        return corrected.model_copy(
            update={"kappa": kappa, "points": (), "record": {"corrected_with_points": len(stacks)}}
        )

    def with_margin(self, now: Fingerprint, factor: float) -> Profile:
        """For another device or setting of the same network, with everything taken to be slower by a factor."""
        self.check_network(now)
        if not 1 <= factor < 1000:
            raise InvalidProfile(f"a margin of {factor:g} is not between 1 and 1000")
        record = {**self.record, "margin": factor}
        return self.model_copy(update={"fingerprint": now, "kappa": self.kappa * factor, "record": record})

    def check_network(self, now: Fingerprint) -> None:
        """Refuse another network than was measured."""
        if now.network != self.fingerprint.network:
            raise InvalidProfile("the profile is of another network: run `smatter profile` for this one")


def is_profile(path: Path) -> bool:
    """Whether a file is a profile."""
    try:
        read_profile(path)
    except SmatterError:
        return False
    return True


def write_profile(path: str | Path, profile: Profile) -> None:
    """Save a profile; an existing file is replaced in one step."""
    table = profile.model_dump(by_alias=True)
    write_file(Path(path), (json.dumps(table, indent=1, allow_nan=False) + "\n").encode())


def read_profile(path: str | Path) -> Profile:
    """Open a profile that `write_profile` saved."""
    path = Path(path)
    if not path.is_file():
        raise NotFound(f"there is no profile {path}: make one with `smatter profile`")
    try:
        return Profile.model_validate(read_small_json(path, MAX_BYTES))
    except ValidationError as error:
        raise InvalidProfile(f"{path} is not a profile ({first_mistake(error)}); run `smatter profile`") from None
