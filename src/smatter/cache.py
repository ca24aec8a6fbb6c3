"""Results by task identity: the same examples, method, router, library and settings are worked out once."""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from smatter.compose.records import Decision, Number
from smatter.errors import SmatterError
from smatter.files.fields import Digest
from smatter.files.hashing import file_digest
from smatter.files.reading import read_small_json
from smatter.files.writing import write_file
from smatter.library.recipes import read_recipe, write_recipe
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit, Method, Passes, Trace
from smatter.route.evidence import Evidence

MAX_BYTES = 1_000_000_000
"""Beyond it, results not used for longest are deleted."""

FORMAT = 10
"""Raised when results of earlier versions must not be found any more."""

NAME = r"[0-9a-f]{64}\.(?:safetensors|json)"


class Cache:
    """The place of one result in a folder of results, two files each; the folder may be deleted at any time.

    Args:
        folder: made when the first result is put there.
        method: how the task is adapted to.
        settings: of the method.
        live: the library's network.
        task: what is adapted to.
    """

    def __init__(self, folder: Path, method: Method[Any], settings: Any, live: LiveMixture, task: Task) -> None:
        self.folder, self.method, self.settings, self.live, self.task = folder, method, settings, live, task

    @cached_property
    def key(self) -> str | None:
        """Tells results apart: by the contents of the examples, the router and the library, and by the settings.

        None for results that must not be kept: of a router that is not on disk, and private ones, whose name would
        tell whoever guesses the examples that the guess is right.
        """
        told = {field.name: getattr(self.settings, field.name) for field in fields(self.settings)}
        for each in fields(self.settings):
            if each.metadata.get("is_file") and told[each.name] is not None:
                told[each.name] = file_digest(Path(told[each.name]))
        router = told.pop("router", None)
        if self.method.is_private or (router is not None and not router.digest):
            return None
        sources = self.live.library.manifest.model_copy(update={"experts": ()})  # where they lie does not matter
        manifest = hashlib.sha256(sources.to_json()).hexdigest()
        digest = router.digest if router is not None else ""
        parts = [FORMAT, self.method.name, told, self.task.digest, self.task.queries_digest, digest, manifest]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def get(self) -> Fit | None:
        """The result, if it was put there; a damaged one is none."""
        if self.key is None:
            return None
        recipe_file, facts_file = self._files(self.key)
        try:
            kept = _Kept.model_validate(read_small_json(facts_file))
            recipe = read_recipe(recipe_file)
            if kept.checksum != _checksum(kept.facts, recipe_file):
                return None
            recipe_file.touch()
            facts = kept.facts.model_dump()
            if facts["evidence"] is not None:
                losses = tuple(math.nan if loss is None else loss for loss in facts["evidence"].pop("losses"))
                facts["evidence"] = Evidence(losses=losses, **facts["evidence"])
            facts |= {"spread": partial(tuple, kept.facts.spread), "trace": Trace(**facts["trace"])}
            facts |= {"passes": Passes(**facts["passes"]), "decision": kept.facts.decision}
            mixture = recipe.mixture_in(self.live.library.manifest.digests)
            facts["members"] = recipe.members
            fit = Fit(mixture.without_idle(), experts=recipe.experts, residual=recipe.residual, **facts)
            fit.recipe(self.live.library)  # refuses what cannot be composed, such as experts that are not known
            return fit
        except (SmatterError, OSError, ValidationError):
            return None

    def put(self, fit: Fit) -> None:
        """Keep a result, if the disk lets us."""
        if self.key is None:
            return
        kept_as_is = ("likeness", "expert_names", "notes", "is_private", "seconds", "decision", "uncertainty")
        told = {name: getattr(fit, name) for name in kept_as_is}
        told |= {"spread": fit.spread(), "trace": asdict(fit.trace), "passes": asdict(fit.passes), "evidence": None}
        if fit.evidence:
            losses = [loss if math.isfinite(loss) else None for loss in fit.evidence.losses]
            told["evidence"] = asdict(fit.evidence) | {"losses": losses}
        try:
            facts = _Facts.model_validate(told)
        except ValidationError:  # of a fit that is not all numbers nothing is kept
            return
        recipe_file, facts_file = self._files(self.key)
        with suppress(OSError):  # CannotWrite is one
            self.folder.mkdir(parents=True, exist_ok=True)
            write_recipe(recipe_file, fit.recipe(self.live.library))
            kept = _Kept(checksum=_checksum(facts, recipe_file), facts=facts)
            write_file(facts_file, kept.model_dump_json().encode())
            self._prune()

    def _prune(self) -> None:
        """Delete the oldest results until the rest is small enough; files of other names are left alone."""
        found = [(path.stat(), path) for path in self.folder.iterdir() if re.fullmatch(NAME, path.name)]
        total = sum(stat.st_size for stat, _ in found)
        for stat, path in sorted(found, key=lambda each: each[0].st_mtime):
            if total <= MAX_BYTES:
                break
            path.unlink(missing_ok=True)
            total -= stat.st_size

    def _files(self, key: str) -> tuple[Path, Path]:
        return self.folder / f"{key}.safetensors", self.folder / f"{key}.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Trace(_Record):
    losses: tuple[Number, ...]
    path: tuple[tuple[Number, ...], ...]
    endings: tuple[str, ...]


class _Passes(_Record):
    forwards: int
    backwards: int


class _Evidence(_Record):
    sources: tuple[str, ...]
    losses: tuple[Number | None, ...]
    weights: tuple[Number, ...]
    error: Number
    temperature: Number
    accuracies: tuple[Number | None, ...]


class _Facts(_Record):
    """What a result is beside its recipe."""

    likeness: dict[str, Number]
    expert_names: tuple[str, ...]
    notes: tuple[str, ...]
    is_private: bool
    seconds: Number
    spread: tuple[Number, ...]
    trace: _Trace
    passes: _Passes
    evidence: _Evidence | None
    decision: Decision | None = None
    uncertainty: dict[str, Number] = {}


class _Kept(_Record):
    checksum: Digest
    facts: _Facts


def _checksum(facts: _Facts, recipe_file: Path) -> str:
    """Binds what is said of a result to its recipe."""
    return hashlib.sha256(facts.model_dump_json().encode() + file_digest(recipe_file).encode()).hexdigest()
