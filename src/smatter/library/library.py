"""An open library: its manifest, and blocks of its sources whatever form they are stored in."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from smatter.compose.arena import Arena
from smatter.compose.mixture import Mixture
from smatter.compose.plan import Plan, make_plan
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Residual
from smatter.errors import InvalidRecipe, NotFound, SourceChanged, UnknownModule
from smatter.files.arrays import Array, as_torch
from smatter.files.hashing import Seal
from smatter.files.reading import safe_path
from smatter.library.checkpoint import Checkpoint, open_checkpoint
from smatter.library.contents import Tensors
from smatter.library.manifest import Manifest, SourceEntry, read_manifest
from smatter.library.stored import STORED, StoredSource
from smatter.records import Partition, Progress, TensorSpec, silent

if TYPE_CHECKING:
    import torch


class Library:
    """R sources of one architecture, read-only; files are opened when they are first needed."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._sources: dict[str, Tensors] = {}
        self._verified: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sources, the base among them."""
        return tuple(source.name for source in self.manifest.sources)

    @property
    def partition(self) -> Partition:
        """The modules of the network, by names on disk."""
        return self.manifest.partition

    @cached_property
    def base(self) -> Checkpoint:
        """The base checkpoint: all others are compared with it and an export looks like it."""
        return open_checkpoint(self.path_of(self.manifest.source(self.manifest.base)))

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Every tensor that takes part in mixing, as the base has it."""
        specs = {name: spec for name, spec in self.base.tensors.items() if self.manifest.covers(name)}
        for name in specs:
            self.partition.module_of(name)
        missing = {tensor for tensors in self.partition.modules.values() for tensor in tensors} - set(specs)
        for name in sorted(missing):
            raise UnknownModule(
                f"{self.base.folder} has no tensor {name!r}, which library.json lists; restore the base"
            )
        return specs

    def only(self, names: Iterable[str]) -> "Library":
        """The library as if it had these sources alone; the base always stays."""
        wanted = {self.manifest.source(name).name for name in names} | {self.manifest.base}
        sources = tuple(source for source in self.manifest.sources if source.name in wanted)
        safe = self.manifest.safe if self.manifest.safe in wanted else None
        return Library(self.folder, self.manifest.model_copy(update={"sources": sources, "safe": safe}))

    def path_of(self, entry: SourceEntry) -> Path:
        """The folder of a source; paths in the manifest count from the library's folder."""
        return self.folder / entry.path

    def open_source(self, name: str) -> Tensors:
        """All tensors of a source, decoded when read."""
        if name not in self._sources:
            entry = self.manifest.source(name)
            if entry.form == "whole":
                self._sources[name] = self.open_checkpoint(name)
            else:
                self._sources[name] = StoredSource(safe_path(self.path_of(entry), STORED), entry.form, self.base)
        return self._sources[name]

    def open_checkpoint(self, name: str) -> Checkpoint:
        """The checkpoint folder of a source that is stored whole."""
        if name == self.manifest.base:
            return self.base
        return open_checkpoint(self.path_of(self.manifest.source(name)))

    def spec(self, source: str, tensor: str) -> TensorSpec:
        """Dtype and shape of a tensor in a source; part of `compose.Reader`."""
        try:
            return self.open_source(source).tensors[tensor]
        except KeyError:
            raise UnknownModule(f"source {source!r} has no tensor {tensor!r}; run `smatter library check`") from None

    def read(self, source: str, tensor: str, start: int, stop: int) -> Array:
        """Elements start..stop of a flattened tensor; part of `compose.Reader`."""
        return self.open_source(source).read(tensor, start, stop)

    def tensor(self, source: str, tensor: str) -> "torch.Tensor":
        """One tensor of a source as torch sees it; a view of mapped memory where the source is stored whole."""
        spec = self.spec(source, tensor)
        return as_torch(self.read(source, tensor, 0, spec.n_elements), spec)

    def verify(self, sources: tuple[str, ...] | None = None, progress: Progress = silent) -> None:
        """Refuse to go on when a file of these sources is not what was added.

        Files that are untouched since they were last hashed are not hashed again; `smatter library check`
        hashes all.
        """
        wanted = set(self.names if sources is None else sources)
        if any(self.manifest.source(name).form != "whole" for name in wanted):
            wanted.add(self.manifest.base)
        if wanted <= self._verified:
            return
        seal = Seal(self.folder)
        for name in sorted(wanted - self._verified):
            for path, expected in self.files(name):
                if seal.digest(path, progress) != expected:
                    raise SourceChanged(
                        f"{path} has changed since source {name!r} was added: restore the file, or remove the source "
                        "and add it again"
                    )
            self._verified.add(name)
        seal.save()

    def files(self, name: str) -> list[tuple[Path, str]]:
        """Every file of a source and the sha256 it must have."""
        entry = self.manifest.source(name)
        folder = self.path_of(entry)
        if not folder.is_dir():
            raise NotFound(f"{folder}, the folder of source {name!r}, is gone: restore it, or remove the source")
        added = [(safe_path(folder, file), record.sha256) for file, record in entry.files.items()]
        for file in self.open_checkpoint(name).files if entry.form == "whole" else ():
            if file not in entry.files:
                raise SourceChanged(
                    f"{folder / file} was not there when source {name!r} was added: delete it, or remove the source "
                    "and add it again"
                )
        return added

    def recipe(self, mixture: Mixture, residual: Residual | None = None) -> Recipe:
        """A recipe of this library's sources; refuses what could not be composed."""
        recipe = Recipe(
            mixture,
            {name: self.manifest.source(name).digest for name in mixture.sources},
            self.manifest.architecture,
            self.partition.digest,
            residual,
        )
        self.plan(recipe)
        return recipe

    def plan(self, what: Mixture | Recipe) -> Plan:
        """What composing a mixture or rebuilding a recipe will do, before anything is read.

        A recipe's sources are found by content, under whatever name. One that is gone or differs is refused with
        the weight it carried: a recipe is never silently changed.
        """
        residual = None
        if isinstance(what, Mixture):
            mixture = what
        else:
            if what.mixture.modules and what.partition_digest != self.partition.digest:
                raise InvalidRecipe("the recipe's weights per module are of another partition: make it again here")
            mixture, residual = what.mixture_in(self.manifest.digests), what.residual
        return make_plan(mixture, self.specs, self.partition, self.manifest.digests, residual)

    def compose(
        self, what: Mixture | Recipe, arena: Arena | None = None, threads: int = 1, progress: Progress = silent
    ) -> Arena:
        """Compute a mixture or a recipe into memory.

        Args:
            what: what to compose.
            arena: memory of an earlier call to reuse; its tensors change. A new one is made by default.
            threads: workers on independent blocks; the result does not depend on it.
            progress: told the bytes finished.
        """
        plan = self.plan(what)
        self.verify(plan.sources)
        return (arena or Arena(plan.specs)).fill(plan, self, threads, progress)


def open_library(folder: str | Path) -> Library:
    """Open a library folder; only its manifest is read."""
    path = Path(folder)
    return Library(path, read_manifest(path))
