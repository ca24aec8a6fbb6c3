"""A profile: one device and setting with its measured latency model and what the model is worth, in one JSON file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smatter.algebra.conformal import conformal_quantile
from smatter.budget.latency import KNOTS, Floats, LatencyModel, ModuleCost
from smatter.devices.fingerprint import Fingerprint, fingerprint
from smatter.devices.stacks import Stack
from smatter.errors import InvalidProfile, NotFound, SmatterError
from smatter.files.fields import first_mistake
from smatter.files.reading import read_small_json
from smatter.files.writing import write_file
from smatter.library.library import Library
from smatter.settings.devices import DeviceSetting

MAX_BYTES = 16_000_000
FEW_POINTS = 8
"""Measurements that an affine correction needs."""

Number = Annotated[float, Field(ge=0, le=1e12)]
Positive = Annotated[float, Field(gt=0, le=1e15)]
Costs = Annotated[tuple[Number, ...], Field(min_length=len(KNOTS), max_length=len(KNOTS))]
Share = Annotated[float, Field(gt=0, lt=1)]
Checked = TypeVar("Checked", bound=BaseModel)
Method = Literal["stacks", "micro-benchmarks", "counted", "table"]


class Composing(BaseModel):
    """What it costs to compose a model (multi-source paper, section 9); numbers are in ms and bytes.

    Args:
        fixed: whatever is composed.
        per_read: for each module of each source that is read.
        per_byte: for each byte of them.
        per_correction: for each module that a residual corrects.
        per_corrected_byte: for each byte of these modules.
        packing: whatever residual is packed, to be served on a shared base.
        per_packed_byte: for each byte of the modules that it corrects.
        module_bytes: size of each module.
        off: how far predictions were off on compositions that were not fitted, median share.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed: Number
    per_read: Number
    per_byte: Number
    per_correction: Number
    per_corrected_byte: Number
    packing: Number
    per_packed_byte: Number
    module_bytes: dict[str, Annotated[int, Field(ge=0)]]
    off: Number

    def c_mix(self, module: str) -> float:
        """Cost of each source that is mixed into a module."""
        return self.per_read + self.per_byte * self._bytes(module)

    def c_res(self, module: str) -> float:
        """Cost of a module's residual."""
        return self.per_correction + self.per_corrected_byte * self._bytes(module)

    def cost(self, n_sources: Mapping[str, int], corrected: Iterable[str]) -> float:
        """Time to compose, by how many sources each module mixes and which modules are corrected."""
        mixed = sum(n * self.c_mix(module) for module, n in n_sources.items())
        return self.fixed + mixed + sum(self.c_res(module) for module in corrected)

    def packing_cost(self, corrected: Iterable[str]) -> float:
        """Time until a task is served on a shared base, by which modules its residual corrects."""
        return self.packing + self.per_packed_byte * sum(self._bytes(module) for module in corrected)

    def slower(self, factor: float) -> Composing:
        """The same on a device that is slower by a factor."""
        kept = {"module_bytes", "off"}
        times = {name: factor * getattr(self, name) for name in type(self).model_fields.keys() - kept}
        return self.model_copy(update=times)

    def _bytes(self, module: str) -> int:
        if module not in self.module_bytes:
            raise InvalidProfile(f"the profile knows no module {module[:100]!r}: profile this network")
        return self.module_bytes[module]


class Quality(BaseModel):
    """What a profile is worth on configurations that it has not seen.

    Args:
        n_tested: how many.
        within_5_percent, within_10_percent: share whose median is so close to the prediction.
        spearman: rank correlation of medians and predictions.
        coverage: share whose quantile is below the bound.
        slack: how far the bound is above that, mean share.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_tested: Annotated[int, Field(ge=1)]
    within_5_percent: Number
    within_10_percent: Number
    spearman: Annotated[float, Field(ge=-1, le=1)]
    coverage: Number
    slack: float


class Profile(BaseModel):
    """A device and setting, measured.

    Args:
        unit: of `base` and of all costs: ms, bytes, mJ.
        method: how costs were found: from whole stacks, operators alone, by counting, or in a user's own table. Only
            the first promises anything.
        fingerprint: what they depend on.
        quantile: of a configuration's times that the bound is for; what is predicted is the median.
        base: what a forward pass without any delta takes.
        costs: of each module: as soon as it is on, then from knot to knot; in shares of `base`.
        bend: what is not additive; see `LatencyModel`.
        kappa, epsilon, delta: a measured quantile is at most kappa * predicted + epsilon with probability 1 - delta.
        others: processors that others used meanwhile, if the system says.
        is_quiet: whether that was little enough.
        wider_by: the factor in kappa that is there because it was not.
        rows: what the base takes with other numbers of rows.
        per_task: share of what deltas take that every task of a batch takes for itself, however few its rows.
        composing: what it costs to compose a model, if that was measured.
        quality: what the model is worth, if that was measured.
        points: what was predicted and measured for the configurations of `quality`.
        record: how it was measured, for people.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    format: Literal[1] = Field(default=1, alias="schema")
    unit: Annotated[str, Field(min_length=1, max_length=20)]
    method: Method
    fingerprint: Fingerprint
    quantile: Share = 0.5
    base: Positive
    costs: Annotated[dict[str, Costs], Field(min_length=1, max_length=100_000)]
    bend: Annotated[float, Field(ge=-1000, le=1000)] = 0.0
    kappa: Positive = 1.0
    epsilon: Number = 0.0
    delta: Share = 0.1
    others: Number | None = None
    is_quiet: bool = True
    wider_by: Positive = 1.0
    rows: dict[Annotated[int, Field(ge=1)], Positive] = {}
    per_task: Annotated[float, Field(ge=0, le=1)] = 1.0
    composing: Composing | None = None
    quality: Quality | None = None
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
        """What the stated quantile of each is at most, with probability 1 - delta; the prediction where it is exact."""
        if self.method == "micro-benchmarks":
            raise InvalidProfile("micro-benchmarks promise nothing: measure whole networks with `smatter profile`")
        return self.kappa * self.predict(active) + self.epsilon

    @property
    def extra_factor(self) -> float:
        """What the deltas of a network add is at most so many times what is predicted for it, for 1 - delta of them.

        From the medians of `points`, each timed beside the base, to which nothing was fitted; no less than 1. Infinite
        where these are too few, or where the bound is for another quantile.
        """
        added = [(median - self.base, predicted - self.base) for predicted, median in self.points]
        scores = [more / expected for more, expected in added if expected > 0]
        if self.method != "stacks" or self.quantile != 0.5:
            return float("inf") if self.method == "stacks" else 1.0
        return max(conformal_quantile(scores, self.delta), 1.0)

    @property
    def digest(self) -> str:
        """The sha256 of its file's contents."""
        return hashlib.sha256(self._encoded).hexdigest()

    @property
    def _encoded(self) -> bytes:
        return (json.dumps(self.model_dump(by_alias=True), indent=1, allow_nan=False) + "\n").encode()

    def base_of(self, n_rows: int) -> float:
        """What the base takes with another number of rows: between what was measured, and beyond in proportion."""
        if n_rows == self.fingerprint.batch:
            return self.base
        if not self.rows:
            raise InvalidProfile("the profile is for one number of rows only: measure one with `smatter profile`")
        known = sorted({**self.rows, self.fingerprint.batch: self.base}.items())
        counts, times = (np.array(part, float) for part in zip(*known, strict=True))
        if n_rows > counts[-1]:
            return float(times[-1] + (times[-1] - times[-2]) / (counts[-1] - counts[-2]) * (n_rows - counts[-1]))
        return float(np.interp(n_rows, counts, times))

    def check(self, now: Fingerprint) -> None:
        """Refuse another device, setting or network than was measured."""
        self.check_network(now)
        if different := self.fingerprint.differences(now):
            remedy = "run `smatter profile` here, or adjust it with --from"
            if now.model_copy(update={"threads": self.fingerprint.threads}) == self.fingerprint:
                remedy = f"call torch.set_num_threads({self.fingerprint.threads}) first, or profile with --threads"
            raise InvalidProfile(f"the profile is for {'; '.join(different)}: {remedy}")

    def check_network(self, now: Fingerprint) -> None:
        """Refuse another network, or other units of it, than was measured."""
        if now.network != self.fingerprint.network:
            raise InvalidProfile("the profile is of another network: run `smatter profile` for this one")
        if now.rank != self.fingerprint.rank:
            raise InvalidProfile("the profile is of other units: run `smatter profile` with the --rank that tasks have")

    def check_is_time(self) -> None:
        """Refuse other units than ms."""
        if self.unit != "ms":
            raise InvalidProfile(f"a profile in {self.unit} cannot be adjusted to another device: make a new one")

    def with_margin(self, now: Fingerprint, factor: float) -> Profile:
        """For another device with the same network and setting, everything taken to be slower by a factor."""
        self.check_network(now)
        at = self.fingerprint
        if (at.batch, at.dtype, at.length) != (now.batch, now.dtype, now.length):
            raise InvalidProfile("a margin is for another device, not for other rows, lengths or dtypes: measure those")
        self.check_is_time()
        if not 1 <= factor < 1000:
            raise InvalidProfile(f"a margin of {factor:g} is not between 1 and 1000")
        return self._elsewhere(
            now,
            base=self.base * factor,
            epsilon=self.epsilon * factor,
            rows={n_rows: time * factor for n_rows, time in self.rows.items()},
            composing=self.composing and self.composing.slower(factor),
            record={"margin": factor},
        )

    def corrected(
        self, now: Fingerprint, stacks: Sequence[Stack], medians: Floats, high: Floats, quantile: float, delta: float
    ) -> Profile:
        """For another device or setting of the same network, by a factor and an offset from a few measurements there.

        Half of the points give these, the other half the bound.

        Args:
            now: where they were measured.
            stacks: what was measured.
            medians, high: the median of each, and the quantile that the bound is to be for.
            quantile, delta: that quantile, and how often the bound may fail.
        """
        self.check_network(now)
        self.check_is_time()
        needed = max(FEW_POINTS, 2 * (ceil(1 / delta) - 1))
        if len(stacks) < needed:
            raise InvalidProfile(f"{len(stacks)} points are too few to correct a profile: measure {needed} or more")
        half = len(stacks) // 2
        shares = self.model.relative(stacks) - 1
        design = np.stack([np.ones(half), shares[:half]], axis=1)
        (base, slope), *_ = np.linalg.lstsq(design / medians[:half, None], np.ones(half), rcond=None)
        if not (base > 0 and slope > 0):
            raise InvalidProfile("the points do not fit the profile at all: run `smatter profile` here")
        scale, epsilon = float(slope / base), self.epsilon * float(base) / self.base
        predicted = base + slope * shares
        return self._elsewhere(
            now,
            base=float(base),
            costs={module: tuple(scale * number for number in each) for module, each in self.costs.items()},
            bend=self.bend / scale,
            quantile=quantile,
            delta=delta,
            epsilon=epsilon,
            kappa=conformal_quantile(((high - epsilon) / predicted)[half:].tolist(), delta),
            record={"corrected_with_points": len(stacks)},
        )

    def _elsewhere(self, now: Fingerprint, **changes: Any) -> Profile:
        """With changes, and without what was measured where it came from."""
        gone: dict[str, Any] = {"rows": {}, "composing": None, "quality": None, "points": ()}
        kept = {name: getattr(self, name) for name in type(self).model_fields}
        return Profile(**{**kept, **gone, "fingerprint": now, **changes})


def is_profile(path: Path) -> bool:
    """Whether a file is a profile."""
    try:
        read_profile(path)
    except SmatterError:
        return False
    return True


def write_profile(path: str | Path, profile: Profile) -> None:
    """Save a profile; an existing file is replaced in one step."""
    write_file(Path(path), profile._encoded)


def read_checked(path: Path, model: type[Checked], what: str, remedy: str) -> Checked:
    """A small JSON file that must be so."""
    if not path.is_file():
        raise NotFound(f"there is no {what} {path}: {remedy}")
    try:
        return model.model_validate(read_small_json(path, MAX_BYTES))
    except ValidationError as error:
        raise InvalidProfile(f"{path} is not a {what} ({first_mistake(error)}); {remedy}") from None


def read_profile(path: str | Path, library: Library | None = None, setting: DeviceSetting | None = None) -> Profile:
    """Open a profile that `write_profile` saved.

    Args:
        path: the file.
        library: refuse a profile of another network, of another machine or of another number of torch's threads.
        setting: refuse one of other rows, lengths or dtypes too.
    """
    profile = read_checked(Path(path), Profile, "profile", "make one with `smatter profile`")
    if library is not None:
        import torch

        at, like = profile.fingerprint, setting or profile.fingerprint
        length = like.length or at.length
        profile.check(
            fingerprint(library, torch.get_num_threads(), like.batch, dtype=like.dtype, length=length, rank=like.rank)
        )
    return profile
