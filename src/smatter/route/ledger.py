"""A ledger of private releases: what has been told of one set of examples, and what all of it together reveals.

The user names one ledger for each set of examples. It holds no word and no digest of them, which would tell whoever
guesses them that the guess is right.
"""

import json
import math
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smatter.errors import InvalidSettings
from smatter.files.fields import first_mistake
from smatter.files.reading import read_small_json
from smatter.files.writing import locked_folder, write_file
from smatter.route.private import leak, noise_scale

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Release(_Record):
    """One release of weights."""

    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    time: Annotated[str, Field(max_length=40)]
    epsilon: Positive
    delta: Annotated[Positive, Field(lt=1)]
    n_examples: Annotated[int, Field(ge=1, strict=True)]


class _Table(_Record):
    version: Literal[1] = Field(alias="schema")
    releases: Annotated[tuple[Release, ...], Field(max_length=10_000)]


@dataclass(frozen=True)
class Total:
    """What releases reveal together: they are (epsilon, delta)-private, and (added, delta)-private a fortiori.

    Args:
        n_releases: how many there are.
        epsilon: by the exact composition of Gaussian mechanisms.
        added: the sum of their epsilons.
        delta: the sum of their deltas.
    """

    n_releases: int
    epsilon: float
    added: float
    delta: float

    def __str__(self) -> str:
        times = "1 release" if self.n_releases == 1 else f"{self.n_releases} releases"
        return (
            f"{times} in the ledger, together ({self.epsilon:.4g}, {self.delta:.4g})-differentially private; "
            f"epsilons add up to {self.added:.4g}"
        )


def read_ledger(path: Path) -> tuple[Release, ...]:
    """The releases so far; none where there is no file yet."""
    if not path.exists():
        return ()
    try:
        return _Table.model_validate(read_small_json(path)).releases
    except ValidationError as error:
        raise InvalidSettings(
            f"{path} is not a ledger of private releases ({first_mistake(error)}): restore it, or name another file"
        ) from None


def note_release(path: Path, epsilon: float, delta: float, n_examples: int) -> Total:
    """Add a release to a ledger, on disk before this returns; what all of them reveal together.

    Call it before the weights are told: a crash in between then costs privacy that nobody used, and hides no release.
    """
    if not path.parent.is_dir():
        raise InvalidSettings(f"the folder of the ledger {path} does not exist: create it first")
    with locked_folder(path.parent):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        new = Release(id=uuid.uuid4().hex, time=now, epsilon=epsilon, delta=delta, n_examples=n_examples)
        releases = (*read_ledger(path), new)
        total = total_of(releases)
        table = {"schema": 1, "releases": [release.model_dump() for release in releases]}
        write_file(path, (json.dumps(table, indent=1) + "\n").encode())
    return total


def total_of(releases: tuple[Release, ...]) -> Total:
    """What releases reveal together.

    A Gaussian mechanism is mu-GDP with mu = sensitivity / sigma, and several are together sqrt(sum mu_i^2)-GDP, which
    is exact (Dong, Roth and Su, 2022, corollary 2). The epsilon is the least that this mu has at the sum of the deltas.
    """
    added, delta = (math.fsum(getattr(release, name) for release in releases) for name in ("epsilon", "delta"))
    if delta >= 1:
        raise InvalidSettings(f"with this release the deltas add up to {delta:.4g}, which promises nothing: stop here")
    mu = math.sqrt(math.fsum(noise_scale(1.0, release.epsilon, release.delta) ** -2 for release in releases))
    low, high = 0.0, added
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if leak(mu, middle) > delta else (low, middle)
    return Total(len(releases), high, added, delta)
