"""Are tasks still like those of calibration? A small file that a command line and a resident process share.

Each task adds its scores of uncertainty to the file's running statistics (`certify.drift`). An alarm stands until the
file is deleted: whoever is sure again begins a new one. The scores share the rate of false alarms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smatter.certify.drift import N_BINS, DriftMonitor, DriftState, make_drift_monitor, watch_drift
from smatter.compose.records import Number, Words
from smatter.errors import InvalidCertificate, NotFound
from smatter.files.fields import Digest, first_mistake
from smatter.files.reading import read_small_json
from smatter.files.writing import locked_folder, write_file
from smatter.route.certificates import MAX_WATCHED, Certificate

WATCHED = ("entropy", "near-prior", "weight-entropy", "weight-divergence", "support-loss")
"""Scores that are watched, those of them that a rule has: entropy and divergence from the prior, and the loss."""

RATE, HORIZON, WINDOW = 0.05, 1000, 100
"""Of false alarms within a period, tasks of a period, and tasks that are compared as a whole."""

WARN = "warn"
MAX_ALARMS = 100


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _State(_Record):
    seen: Annotated[int, Field(ge=0, strict=True)]
    high: Annotated[Number, Field(ge=0)]
    low: Annotated[Number, Field(ge=0)]
    counts: Annotated[tuple[Annotated[int, Field(ge=0, strict=True)], ...], Field(min_length=N_BINS, max_length=N_BINS)]


class Alarm(_Record):
    """What has changed.

    Args:
        score: by name.
        kind: rise, fall, or spread where values spread or gather.
        after: tasks that the file had seen.
    """

    score: Words
    kind: Literal["rise", "fall", "spread"]
    after: Annotated[int, Field(ge=1, strict=True)]


class Watch(_Record):
    """The contents of the file.

    Args:
        rule: that is watched.
        router: identity of the router; see `route.place.router_identity`.
        tasks: name of the calibration list.
        then: what happens while an alarm stands: `warn`, `base`, or a method that is followed instead.
        rate: probability of any false alarm within a period.
        horizon: tasks of a period, after which the statistics begin again.
        window: tasks that are compared as a whole.
        cusum_limit, psi_limit: statistics above them are an alarm.
        calibration: values of calibration tasks of each score, ascending.
        states: what is kept between two tasks, of each score.
        seen: tasks.
        alarms: the first ones; they stand.
    """

    version: Literal[1] = Field(1, alias="schema")
    rule: Words
    router: Digest
    tasks: Words
    then: Words = WARN
    rate: Annotated[Number, Field(gt=0, lt=1)] = RATE
    horizon: Annotated[int, Field(ge=1, strict=True)] = HORIZON
    window: Annotated[int, Field(ge=1, strict=True)] = WINDOW
    cusum_limit: Annotated[Number, Field(gt=0)]
    psi_limit: Annotated[Number, Field(gt=0)]
    calibration: dict[Words, Annotated[tuple[Number, ...], Field(max_length=MAX_WATCHED)]] = Field(max_length=20)
    states: dict[Words, _State] = Field(max_length=20)
    seen: Annotated[int, Field(ge=0, strict=True)] = 0
    alarms: Annotated[tuple[Alarm, ...], Field(max_length=MAX_ALARMS)] = ()

    def after(self, values: Mapping[str, float]) -> Watch:
        """What the file holds after one more task.

        Args:
            values: scores of the task, by name; a task that has no value of a score adds nothing to it.
        """
        states, alarms = dict(self.states), list(self.alarms)
        for name, calibration in self.calibration.items():
            if name not in values:
                continue
            monitor = DriftMonitor(
                calibration, self.cusum_limit, self.psi_limit, rate=self.rate, horizon=self.horizon, window=self.window
            )
            state = watch_drift(monitor, DriftState(**states[name].model_dump()), values[name])
            states[name] = _State(**{key: value for key, value in asdict(state).items() if key != "alarms"})
            known = {(each.score, each.kind) for each in alarms}
            alarms += [
                Alarm.model_validate({"score": name, "kind": kind, "after": self.seen + 1})
                for kind in state.alarms
                if (name, kind) not in known
            ]
        return self.model_copy(update={"states": states, "alarms": tuple(alarms), "seen": self.seen + 1})

    @property
    def told(self) -> str:
        """What stands, in one line; empty without an alarm."""
        if not self.alarms:
            return ""
        found = ", ".join(f"{each.score} ({each.kind}, after {each.after} tasks)" for each in self.alarms)
        return f"tasks are no longer like those of {self.tasks}: {found}; no certificate speaks of them"


def watch_task(path: Path, certificate: Certificate, values: Mapping[str, float], then: str | None = None) -> Watch:
    """Add a task to a file, which is made if it is not there; one writer at a time, and the old file or the new one.

    Args:
        path: of the file.
        certificate: of the rule that is followed; its tasks are the clean ones.
        values: scores of the task, by name.
        then: what happens while an alarm stands; by default what the file says, and `warn` in a new one.
    """
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} does not exist; create it first")
    fresh = None if path.exists() else begin_watch(certificate, values)  # simulates: not while others wait
    with locked_folder(path.parent):
        before = read_watch(path) if fresh is None or path.exists() else fresh
        if (before.rule, before.router, before.tasks) != (certificate.rule, certificate.router, certificate.tasks):
            raise InvalidCertificate(
                f"{path} watches {before.rule} on {before.tasks}, of this or another router, and not "
                f"{certificate.rule} on {certificate.tasks}: give another file, or delete it"
            )
        if any(
            values != tuple(sorted(certificate.watched.get(name, ()))) for name, values in before.calibration.items()
        ):
            raise InvalidCertificate(
                f"{path} compares with another calibration on {certificate.tasks} than the router has: delete it to "
                "begin anew"
            )
        after = before.model_copy(update={"then": then or before.then}).after(values)
        write_file(path, (after.model_dump_json(by_alias=True) + "\n").encode())
    return after


def begin_watch(certificate: Certificate, values: Mapping[str, float], rate: float = RATE) -> Watch:
    """A new file's contents: limits are simulated, with the number of calibration tasks taken into account.

    Args:
        certificate: of the rule that is followed.
        values: scores of a task, which say what can be watched.
        rate: of false alarms within a period.
    """
    names = [name for name in WATCHED if name in certificate.watched and name in values]
    if not names:
        raise InvalidCertificate(f"{certificate.rule} has no scores to tell drift by: run `smatter calibrate` again")
    calibration = {name: tuple(sorted(certificate.watched[name])) for name in names}
    monitor = make_drift_monitor(
        calibration[names[0]], rate / len(names), np.random.default_rng(0), horizon=HORIZON, window=WINDOW
    )
    state = _State(**{key: value for key, value in asdict(DriftState()).items() if key != "alarms"})
    return Watch(
        rule=certificate.rule,
        router=certificate.router,
        tasks=certificate.tasks,
        rate=rate,
        cusum_limit=monitor.cusum_limit,
        psi_limit=monitor.psi_limit,
        calibration=calibration,
        states=dict.fromkeys(names, state),
    )


def read_watch(path: Path) -> Watch:
    """A file that `watch_task` wrote."""
    try:
        found = Watch.model_validate(read_small_json(path))
    except ValidationError as error:
        raise InvalidCertificate(
            f"{path} is no file that watches for drift ({first_mistake(error)}): give another name, or delete it"
        ) from None
    fits = all(
        sum(state.counts) <= found.window and list(values) == sorted(values)
        for state, values in zip(found.states.values(), found.calibration.values(), strict=False)
    )
    if found.states.keys() != found.calibration.keys() or not fits:
        raise InvalidCertificate(f"{path} is no sound file that watches for drift: delete it to begin anew")
    return found
