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

from smatter.errors import SmatterError
from smatter.files.reading import read_small_json
from smatter.files.writing import write_file
from smatter.library.recipes import read_recipe, write_recipe
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.methods import Fit, Method, Passes, Trace
from smatter.route.evidence import Evidence

MAX_BYTES = 1_000_000_000
"""Beyond it, results not used for longest are deleted."""

FORMAT = 4
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
        router = told.pop("router", None)
        if self.method.is_private or (router is not None and not router.digest):
            return None
        sources = self.live.library.manifest.model_copy(update={"experts": ()})  # where they lie does not matter
        manifest = hashlib.sha256(sources.to_json()).hexdigest()
        digest = router.digest if router is not None else ""
        parts = [FORMAT, self.method.name, told, self.task.digest, digest, manifest]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def get(self) -> Fit | None:
        """The result, if it was put there; a damaged one is none."""
        if self.key is None:
            return None
        recipe_file, facts_file = self._files(self.key)
        try:
            recipe, facts = read_recipe(recipe_file), _tuples(read_small_json(facts_file))
            recipe_file.touch()
            evidence = facts.pop("evidence")
            if evidence is not None:
                losses = tuple(math.nan if loss is None else loss for loss in evidence.pop("losses"))
                evidence = Evidence(losses=losses, **evidence)
            spread = partial(tuple, facts.pop("spread"))
            trace, passes = Trace(**facts.pop("trace")), Passes(**facts.pop("passes"))
            mixture = recipe.mixture_in(self.live.library.manifest.digests)
            fit = Fit(
                mixture,
                experts=recipe.experts,
                residual=recipe.residual,
                evidence=evidence,
                spread=spread,
                trace=trace,
                passes=passes,
                **facts,
            )
            fit.recipe(self.live.library)  # refuses what cannot be composed, such as experts that are not known
            return fit
        except (SmatterError, OSError, TypeError, AttributeError, KeyError):
            return None

    def put(self, fit: Fit) -> None:
        """Keep a result, if the disk lets us."""
        if self.key is None:
            return
        facts = {field.name: getattr(fit, field.name) for field in fields(fit)}
        del facts["mixture"], facts["experts"], facts["residual"]
        facts |= {
            "likeness": dict(fit.likeness),
            "spread": fit.spread(),
            "trace": asdict(fit.trace),
            "passes": asdict(fit.passes),
        }
        if fit.evidence:
            losses = [loss if math.isfinite(loss) else None for loss in fit.evidence.losses]
            facts["evidence"] = asdict(fit.evidence) | {"losses": losses}
        recipe_file, facts_file = self._files(self.key)
        with suppress(OSError):  # CannotWrite is one
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(facts_file, json.dumps(facts).encode())
            write_recipe(recipe_file, fit.recipe(self.live.library))
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


def _tuples(value: Any) -> Any:
    """JSON with tuples for lists."""
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
