"""Results by task identity: the same examples, router, library and settings are worked out once."""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smatter.adaptation.evidence import Evidence
from smatter.adaptation.modes import ModeSettings, Routed
from smatter.compose.recipe import Recipe
from smatter.errors import SmatterError
from smatter.files.reading import read_small_json
from smatter.files.writing import write_file
from smatter.library.recipes import read_recipe, write_recipe
from smatter.live.identity import Task
from smatter.live.mixture import LiveMixture
from smatter.route.store import TrainedRouter

MAX_BYTES = 1_000_000_000
"""Beyond it, results not used for longest are deleted."""

FORMAT = 2
"""Raised when results of earlier versions must not be found any more."""


@dataclass(frozen=True)
class Cache:
    """A folder of results, two files each; it may be deleted at any time.

    Args:
        folder: made when the first result is put there.
    """

    folder: Path

    def get(self, live: LiveMixture, key: str) -> Routed | None:
        """A result that was put there, or none; a damaged one is none."""
        recipe_file, facts_file = self._files(key)
        try:
            recipe, facts = read_recipe(recipe_file), _tuples(read_small_json(facts_file))
            recipe_file.touch()
            evidence = facts.pop("evidence")
            if evidence is not None:
                losses = tuple(math.nan if loss is None else loss for loss in evidence.pop("losses"))
                evidence = Evidence(losses=losses, **evidence)
            return Routed(recipe.mixture_in(live.library.manifest.digests), recipe.residual, evidence=evidence, **facts)
        except (SmatterError, OSError, TypeError, AttributeError, KeyError):
            return None

    def put(self, key: str, routed: Routed, recipe: Recipe) -> None:
        """Keep a result, if the disk lets us."""
        facts = asdict(routed)
        del facts["mixture"], facts["residual"]
        if routed.evidence:
            facts["evidence"]["losses"] = [loss if math.isfinite(loss) else None for loss in routed.evidence.losses]
        recipe_file, facts_file = self._files(key)
        with suppress(OSError):  # CannotWrite is one
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(facts_file, json.dumps(facts).encode())
            write_recipe(recipe_file, recipe)
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


NAME = r"[0-9a-f]{64}\.(?:safetensors|json)"


def cache_key(live: LiveMixture, task: Task, trained: TrainedRouter | None, settings: ModeSettings) -> str | None:
    """Tells results apart: by the contents of the examples, the router and the library, and by the settings.

    None for results that must not be kept: of a router that is not on disk, and private ones, whose name would tell
    whoever guesses the examples that the guess is right.
    """
    if settings.epsilon is not None or (trained is not None and not trained.digest):
        return None
    manifest = hashlib.sha256(live.library.manifest.to_json()).hexdigest()
    parts = [FORMAT, task.digest, trained.digest if trained else "", manifest, asdict(settings)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _tuples(value: Any) -> Any:
    """JSON with tuples for lists."""
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
