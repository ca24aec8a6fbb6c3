"""Results by task identity: the same examples, router, library and settings are worked out once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smatter.adaptation.evidence import Evidence
from smatter.adaptation.identity import Task
from smatter.adaptation.live import LiveMixture
from smatter.adaptation.modes import ModeSettings, Routed
from smatter.adaptation.routers import TrainedRouter
from smatter.compose.recipe import Recipe
from smatter.errors import SmatterError
from smatter.library.headers import read_small_json
from smatter.library.recipes import read_recipe, write_recipe
from smatter.library.writing import write_file

MAX_ENTRIES = 1_000
"""Beyond it, those not used for longest are deleted."""


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
            mixture = recipe.mixture_in(live.library.manifest.digests)
            return Routed(mixture, recipe.residual, None if evidence is None else Evidence(**evidence), **facts)
        except (SmatterError, OSError, TypeError, AttributeError, KeyError):
            return None

    def put(self, key: str, routed: Routed, recipe: Recipe) -> None:
        """Keep a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
        recipe_file, facts_file = self._files(key)
        facts = asdict(routed)
        del facts["mixture"], facts["residual"]
        write_file(facts_file, json.dumps(facts).encode())
        write_recipe(recipe_file, recipe)
        old = sorted(self.folder.glob("*.safetensors"), key=lambda path: path.stat().st_mtime)[:-MAX_ENTRIES]
        for path in old:
            path.with_suffix(".json").unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def _files(self, key: str) -> tuple[Path, Path]:
        return self.folder / f"{key}.safetensors", self.folder / f"{key}.json"


def cache_key(live: LiveMixture, task: Task, trained: TrainedRouter | None, settings: ModeSettings) -> str:
    """Tells results apart: by the contents of the examples, the router and the library, and by the settings."""
    library = live.library
    parts = [
        task.digest, trained.digest if trained else None, library.manifest.digests, library.manifest.base,
        library.partition.digest, asdict(settings),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _tuples(value: Any) -> Any:
    """JSON with tuples for lists."""
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
