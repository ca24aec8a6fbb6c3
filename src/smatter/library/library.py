"""An open library: its manifest, and blocks of its sources whatever form they are stored in."""

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from smatter.compose.execute import Arena
from smatter.compose.experts import ExpertMix
from smatter.compose.head import ClassHead
from smatter.compose.members import Member
from smatter.compose.mixture import Mixture
from smatter.compose.plan import Plan, make_plan
from smatter.compose.recipe import Recipe
from smatter.compose.records import Notes, Pins
from smatter.compose.residual import Residual
from smatter.errors import InvalidRecipe, NotFound, SourceChanged, UnknownModule, UnknownSource
from smatter.files.hashing import Seal
from smatter.files.reading import Array, MappedFile, Stamp, as_torch, safe_path, stamp_of
from smatter.library.banks import Bank, PlacedBank, read_bank
from smatter.library.checkpoint import INDEX, SIDE_FILES, WEIGHTS, Checkpoint, held, open_checkpoint
from smatter.library.contents import Composed, Tensors, content_digest
from smatter.library.fitted import fit_to
from smatter.library.manifest import Manifest, SourceEntry, is_excluded, read_manifest
from smatter.library.stored import STORED, StoredSource
from smatter.records import Progress, TensorSpec, printable, silent, told_names

if TYPE_CHECKING:
    import torch

EXPERTS = "experts"
"""The folder of a library that holds its banks."""


class Library:
    """R sources of one architecture, read-only; files are opened when they are first needed.

    `names` are those of the sources, the base among them; `partition` the modules of the network, by names on disk.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.names = tuple(source.name for source in manifest.sources)
        self.partition = manifest.partition
        self._sources: dict[str, Tensors] = {}
        self._verified: dict[str, dict[Path, Stamp]] = {}
        self._lent: dict[str, Bank] = {}
        self._banks: dict[str, PlacedBank] = {}

    def __repr__(self) -> str:
        manifest = self.manifest
        others = told_names([name for name in self.names if name != manifest.base]) or "none"
        return (
            f"Library {self.folder}: {manifest.architecture}, {len(manifest.modules)} modules\n"
            f"  base {printable(manifest.base)}, other sources: {others}"
        )

    @cached_property
    def base(self) -> Checkpoint:
        """The base checkpoint: all others are compared with it and an export looks like it."""
        return open_checkpoint(self.path_of(self.manifest.source(self.manifest.base)))

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Every tensor that takes part in mixing, as the base has it."""
        tensors, exclude = self.base.tensors, self.manifest.exclude
        specs = {name: spec for name, spec in tensors.items() if not (exclude and is_excluded(name, exclude))}
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
        fewer = Library(self.folder, self.manifest.model_copy(update={"sources": sources, "safe": safe}))
        fewer._lent = self._lent
        return fewer

    def path_of(self, entry: SourceEntry) -> Path:
        """The folder of a source; paths in the manifest count from the library's folder."""
        return self.folder / entry.path

    def open_source(self, name: str) -> Tensors:
        """All tensors of a source, decoded when read."""
        if name not in self._sources:
            entry = self.manifest.source(name)
            if name == self.manifest.base:
                self._sources[name] = self.base
            elif entry.form == "whole":
                self._sources[name] = fit_to(self.base, open_checkpoint(self.path_of(entry)), entry.accepted)
            else:
                self._sources[name] = StoredSource(safe_path(self.path_of(entry), STORED), entry.form, self.base)
        return self._sources[name]

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
        """Refuse to go on when a file of these sources is not what was added, or its contents not what is listed.

        Files that are untouched since they were last hashed are not hashed again; `smatter library check`
        hashes all. A file that was touched since it was opened is opened anew.
        """
        wanted = {*(self.names if sources is None else sources), self.manifest.base}  # others are read in its terms
        changed = [name for name in wanted if not self._is_untouched(name)]
        if not changed:
            return
        seal = Seal(self.folder)
        for name in sorted(changed, key=lambda name: (name != self.manifest.base, name)):
            self._forget(name)
            self._verify_source(name, seal, progress)
        seal.save()

    def check_untouched(self, sources: tuple[str, ...]) -> None:
        """Refuse to publish what was made of sources that somebody has written to since they were verified."""
        for name in (*sources, self.manifest.base):  # others are read in its terms
            if not self._is_untouched(name):
                raise SourceChanged(f"files of source {name!r} were changed while they were read: run this again")

    def _is_untouched(self, name: str) -> bool:
        known = self._verified.get(name)
        try:
            return known is not None and all(stamp_of(path.stat()) == stamp for path, stamp in known.items())
        except OSError:
            return False

    def _forget(self, name: str) -> None:
        """Open a source anew when it is needed; with the base all that was decoded by means of it."""
        self._verified.pop(name, None)
        if name != self.manifest.base:
            self._sources.pop(name, None)
            return
        self._sources.clear()
        self.__dict__.pop("base", None)

    def _verify_source(self, name: str, seal: Seal, progress: Progress) -> None:
        listed = self.files(name)
        entry, source = self.manifest.source(name), self.open_source(name)
        remedy = "restore the file, or remove the source and add it again"
        stamps: dict[Path, Stamp] = {}
        for path, expected in listed:
            mapped = source.weight_files.get(path.name)
            stamps[path] = mapped.stamp if mapped else stamp_of(path.stat())
            if seal.digest(mapped or path, progress) != expected:
                raise SourceChanged(f"{path} has changed since source {name!r} was added: {remedy}")
        for file in source.weight_files:
            if file not in entry.files:
                raise SourceChanged(f"{file} of source {name!r} is not listed in library.json: {remedy}")
        mapped_files = list(source.weight_files.values())
        if seal.recall(self._contents_key(entry), mapped_files) != entry.digest:
            if content_digest(source, self.specs, f"source {name!r}", progress) != entry.digest:
                raise SourceChanged(
                    f"the contents of source {name!r} differ from their digest in library.json: remove the source and "
                    "add it again"
                )
            self.remember(name, mapped_files, seal)
        self._verified[name] = stamps

    def remember(self, name: str, files: Sequence[MappedFile], seal: Seal) -> None:
        """Note that the contents of a source, in these very files, were found to be what the manifest lists."""
        entry = self.manifest.source(name)
        seal.note(self._contents_key(entry), files, entry.digest)

    def _contents_key(self, entry: SourceEntry) -> str:
        """What the digest of a source's contents depends on, beside the bytes of its files."""
        base = self.manifest.digests[self.manifest.base]
        return f"contents {entry.form} {base} {entry.path} {_names_digest((*self.specs, *entry.accepted))}"

    def files(self, name: str) -> list[tuple[Path, str]]:
        """Every file of a source and the sha256 it must have."""
        entry = self.manifest.source(name)
        folder = self.path_of(entry)
        if not folder.is_dir():
            raise NotFound(f"{folder}, the folder of source {name!r}, is gone: restore it, or remove the source")
        added = [(safe_path(folder, file), record.sha256) for file, record in entry.files.items()]
        for file in held(folder, (WEIGHTS, INDEX, *SIDE_FILES)) if entry.form == "whole" else ():
            if file not in entry.files:
                raise SourceChanged(
                    f"{folder / file} was not there when source {name!r} was added: delete it, or remove the source "
                    "and add it again"
                )
        return added

    def lend(self, bank: Bank | None) -> None:
        """Let recipes use a bank of experts that the library does not keep, a router's; nothing is written."""
        if bank is not None:
            self._lent[bank.digest] = bank

    def bank(self, digest: str) -> PlacedBank:
        """A bank of experts, of the library's own or lent to it, in its place in the network."""
        if digest not in self._banks:
            bank = self._lent.get(digest)
            if bank is None and digest in {entry.digest for entry in self.manifest.experts}:
                bank = read_bank(safe_path(self.folder / EXPERTS, bank_file(digest)), digest)
            if bank is None:
                raise UnknownSource(
                    f"the recipe opens experts {digest[:12]} that this library does not have: give their router with "
                    f"--router, or copy them here with `smatter library experts {shlex.quote(str(self.folder))} ROUTER`"
                )
            if bank.base != self.manifest.digests[self.manifest.base]:
                raise InvalidRecipe(f"the experts {digest[:12]} are of another base than {self.manifest.base!r}")
            self._banks[digest] = PlacedBank.of(bank, self.specs, self.base.config, self.partition)
        return self._banks[digest]

    def recipe(
        self,
        mixture: Mixture,
        residual: Residual | None = None,
        experts: ExpertMix | None = None,
        head: ClassHead | None = None,
        notes: Notes | None = None,
        members: Sequence[Member] = (),
    ) -> Recipe:
        """A recipe of this library's sources; refuses what could not be composed."""
        digests = self.manifest.digests
        mixture = mixture.with_idle(name for member in members for name in member.mixture.sources)
        make_plan(mixture, self.specs, self.partition, digests, residual)
        for member in members:
            for module in member.modules:
                if module not in self.partition.modules:
                    raise UnknownModule(f"no module is named {module[:100]!r}, for a member to differ in")
        if experts is not None and not experts.is_idle:
            self.bank(experts.bank).bank.gates(experts)
        own = {name: digests[name] for name in mixture.sources}
        accepted = {name: keys for name in mixture.sources if (keys := self.manifest.source(name).accepted)}
        return Recipe(
            mixture,
            own,
            self.manifest.architecture,
            self.partition.digest,
            residual=residual,
            experts=experts,
            head=head,
            notes=(notes or Notes()).model_copy(update={"accepted": accepted}),
            members=tuple(members),
        )

    def networks(self, recipe: Recipe) -> tuple[Recipe, ...]:
        """Each network of a recipe as a recipe of one, its own first."""
        if any(member.modules for member in recipe.members) and recipe.partition_digest != self.partition.digest:
            raise InvalidRecipe("the recipe's members branch in another partition: make it again here")
        return recipe.networks(self.partition.modules)

    def correction(self, recipe: Recipe) -> Residual | None:
        """All that a recipe adds to its mixture: what its experts open, and its residual; none where that is zero."""
        experts, residual = recipe.experts, recipe.residual
        if experts is None or experts.is_idle:
            return residual
        placed = self.bank(experts.bank)
        numbering, vector = placed.numbering, placed.vector(placed.bank.gates(experts))
        if residual is None:
            return numbering.compact(vector)
        residual.check_fits(self.specs)
        inside = [name for name in residual.tensors if name in numbering.tensors]
        for name in inside:
            vector[numbering.tensors[name]] += residual.in_full(name, self.specs[name].shape).reshape(-1)
        both = numbering.compact(vector) or Residual()
        elements = {name: each for name, each in residual.elements.items() if name not in inside}
        dense = {name: each for name, each in residual.dense.items() if name not in inside}
        return Residual({**both.elements, **elements}, {**both.dense, **dense})

    def self_contained(self, recipe: Recipe) -> Recipe:
        """The same recipe with its experts expanded into its residual: it needs no bank, and takes more room."""
        return replace(recipe, experts=None, residual=self.correction(recipe))

    def pinned(self, recipe: Recipe) -> Recipe:
        """The same recipe, bound to the base's side files and to the contents of what it composes; composes it."""
        pins = Pins(files=self._side_files, result=self.result_digest(recipe))
        return replace(recipe, notes=recipe.notes.model_copy(update={"pins": pins}))

    def result_digest(self, recipe: Recipe) -> str:
        """The digest of the contents of what a recipe composes; of those of its networks where it has members."""
        found = [
            content_digest(Composed(self.compose(each)), self.specs, "what the recipe composes")
            for each in self.networks(recipe)
        ]
        return found[0] if len(found) == 1 else hashlib.sha256("\n".join(found).encode()).hexdigest()

    def check_pins(self, recipe: Recipe) -> None:
        """Refuse a recipe that was made with other side files of the base: its inputs would be prepared otherwise."""
        for file, digest in recipe.notes.pins.files.items() if recipe.notes.pins else ():
            if self._side_files.get(file) != digest:
                raise InvalidRecipe(
                    f"{file} of the base is not the one that the recipe was made with: restore it, or make the recipe "
                    "again"
                )

    @property
    def _side_files(self) -> dict[str, str]:
        """Configuration, tokenizer and preprocessor of the base, by name, with their sha256."""
        files = self.manifest.source(self.manifest.base).files
        return {name: entry.sha256 for name, entry in files.items() if name in SIDE_FILES}

    def plan(self, what: Mixture | Recipe, specs: Mapping[str, TensorSpec] | None = None) -> Plan:
        """What composing a mixture or rebuilding a recipe will do, before a source is read.

        A recipe's sources are found by content, under whatever name. One that is gone or differs is refused with
        the weight it carried: a recipe is never silently changed.

        Args:
            what: what to compose.
            specs: what each tensor of the result is; as the base has it by default.
        """
        residual = None
        if isinstance(what, Mixture):
            mixture = what
        else:
            what.check_is_one()
            self.check_pins(what)
            if what.mixture.modules and what.partition_digest != self.partition.digest:
                raise InvalidRecipe("the recipe's weights per module are of another partition: make it again here")
            mixture, residual = what.mixture_in(self.manifest.digests), self.correction(what)
        return make_plan(mixture, specs or self.specs, self.partition, self.manifest.digests, residual)

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


def _names_digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(sorted(names)).encode()).hexdigest()


def bank_file(digest: str) -> str:
    """The name of a bank's file."""
    return f"{digest}.safetensors"


def open_library(folder: str | Path) -> Library:
    """Open a library folder; only its manifest is read."""
    path = Path(folder)
    return Library(path, read_manifest(path))
