"""Making and changing a library: init, add, remove. One writer at a time; the manifest changes last, in one step."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from smatter.backbones.modules import partition
from smatter.errors import (
    AlreadyExists,
    IncompatibleSource,
    InvalidManifest,
    NotFound,
    SmatterError,
    SourceChanged,
    UnknownSource,
    UnsafeFile,
)
from smatter.files.hashing import Seal, file_digest
from smatter.files.reading import safe_path
from smatter.files.writing import copy_file, write_file
from smatter.library.banks import bank_of, parse_bank, read_bank
from smatter.library.check import differing_buffers
from smatter.library.checkpoint import SIDE_FILES, Checkpoint, open_checkpoint
from smatter.library.compare import compare
from smatter.library.contents import Tensors, content_digest
from smatter.library.findings import Finding, accepted, check_used, refuse_errors
from smatter.library.fitted import fit_to
from smatter.library.kinship import relations
from smatter.library.library import EXPERTS, Library, bank_file, open_library
from smatter.library.manifest import (
    MANIFEST,
    MAX_SOURCES,
    BankEntry,
    FileEntry,
    FormName,
    Manifest,
    SourceEntry,
    check_name,
    is_excluded,
    parse_manifest,
)
from smatter.library.similarity import measure
from smatter.library.storage import STORED_FOLDER, discard, folder_digest, stored_folder
from smatter.library.stored import STORED, StoredSource, measure_loss, write_stored
from smatter.library.writer import kept_if_filled, locked, name_from, path_in
from smatter.records import Progress, silent

SHORTEST = 8
"""Characters of a digest that name a bank."""


def init_library(
    folder: str | Path,
    base: str | Path,
    name: str | None = None,
    exclude: Iterable[str] = (),
    module_pattern: str | None = None,
    progress: Progress = silent,
    *,
    sources: Iterable[str | Path] = (),
    accept: Iterable[str] = (),
    watch: Callable[[str, Sequence[Finding]], None] = lambda _name, _findings: None,
) -> Library:
    """Make a library of its base and, if they are given, of other sources: of all of them, or none.

    Args:
        folder: the library's folder; made if it does not exist.
        base: a checkpoint folder; the library points at it.
        name: the base's name; its folder's name by default.
        exclude: shell-style patterns of tensor names that stay out of mixing, such as a task's own head.
        module_pattern: a regular expression whose one group is the module's name, for networks whose modules
            Smatter does not know.
        progress: told the bytes read.
        sources: checkpoint folders; the library points at them, and has them under their folders' names.
        accept: differences that are no reason to refuse one of these; see `add_source`.
        watch: told the name of each of these, and what was found of it.
    """
    folder, excluded, keys = Path(folder), tuple(exclude), tuple(accept)
    name = name or name_from(Path(base))
    check_name(name)
    checkpoint = open_checkpoint(Path(base))
    kept = {tensor: spec for tensor, spec in checkpoint.tensors.items() if not is_excluded(tensor, excluded)}
    if not any(spec.is_floating for spec in kept.values()):
        raise IncompatibleSource(f"{base} has no tensor to mix once {list(excluded)} is left out; exclude less")
    modules = partition(kept, checkpoint.model_type, module_pattern).modules
    if (folder / MANIFEST).exists():
        raise AlreadyExists(f"{folder} is a library already; {_adding(folder)}, or choose another")
    if not folder.parent.is_dir():
        raise NotFound(f"the folder {folder.parent} does not exist; create it first")
    seal = Seal(folder)
    entry = SourceEntry(
        name=name,
        path=path_in(folder, Path(base)),
        digest=content_digest(checkpoint, kept, str(base), progress),
        n_parameters=_count(checkpoint, kept),
        files=_hash_files(checkpoint, seal, progress),
    )
    data = {
        "schema": 1,
        "architecture": checkpoint.architecture,
        "model_type": checkpoint.model_type,
        "base": entry.name,
        "exclude": excluded,
        "modules": modules,
        "sources": [entry.model_dump()],
    }
    library = Library(folder, parse_manifest(data, folder / MANIFEST))
    library, candidates = _with_all(
        library, [Path(each) for each in sources], keys=keys, seal=seal, progress=progress, watch=watch
    )
    with kept_if_filled(folder), locked(folder):
        if (folder / MANIFEST).exists():
            raise AlreadyExists(f"{folder} is a library already; {_adding(folder)}")
        _publish(library, [checkpoint, *candidates], seal)
    return library


def _adding(folder: Path) -> str:
    return f"add to it with `smatter library add {shlex.quote(str(folder))} SOURCE...`"


def _with_all(
    library: Library,
    sources: Sequence[Path],
    keys: tuple[str, ...],
    seal: Seal,
    progress: Progress,
    watch: Callable[[str, Sequence[Finding]], None],
) -> tuple[Library, list[Checkpoint]]:
    """A library with these sources too, nothing of it on disk yet; refuses all if one does not mix, and says which."""
    candidates, refusals, everything, tensors = list[Checkpoint](), list[str](), list[Finding](), list[str]()
    for source in sources:
        try:
            name = _new_name(library, source, None)
            candidate = open_checkpoint(source)
            findings = _compared(library, candidate, name, keys)
            entry = _store(library, candidate, name, "whole", None, accept=keys, seal=seal, progress=progress)
            library, found = _joined(library, entry, candidate, keys)
        except SmatterError as error:
            refusals.append(str(error))
            continue
        watch(name, findings := [*findings, *found])
        candidates.append(candidate)
        everything += findings
        tensors += candidate.tensors
    if refusals:
        told = "; ".join(refusals)
        raise IncompatibleSource(
            f"no library was made, for {len(refusals)} of {len(sources)} sources cannot be added: leave them out, or "
            f"follow what is said of each: {told}"
        )
    check_used(keys, everything, (*library.specs, *tensors))
    return library, candidates


def add_source(
    folder: str | Path,
    source: str | Path,
    name: str | None = None,
    form: FormName = "whole",
    rank: int | None = None,
    accept: Iterable[str] = (),
    progress: Progress = silent,
) -> tuple[Library, list[Finding]]:
    """Add a checkpoint; refuses one that does not mix with the base. Returns the library and what else was found.

    Args:
        folder: the library's folder.
        source: a checkpoint folder.
        name: its name in the library; its folder's name by default.
        form: `whole` points at the checkpoint where it is. Any other form writes a copy into the library.
        rank: for `low-rank`, how many components of each delta to keep; 16 by default.
        accept: differences that are no reason to refuse it, by the keys that refusals name. Tensors whose names they
            are, or match as shell-style patterns, are the base's in this source.
        progress: told the bytes read.
    """
    folder, source, keys = Path(folder), Path(source), tuple(accept)
    with locked(folder):
        library = open_library(folder)
        name = _new_name(library, source, name)
        library.verify((library.manifest.base,), progress)
        candidate = open_checkpoint(source)
        seal = Seal(folder)
        findings = _compared(library, candidate, name, keys)
        entry = _store(library, candidate, name, form=form, rank=rank, accept=keys, seal=seal, progress=progress)
        try:
            added, found = _joined(library, entry, candidate, keys)
            findings += found
            check_used(keys, findings, (*library.specs, *candidate.tensors))
            _publish(added, [candidate], seal)
        except BaseException:  # a signal may come when the manifest is written already
            _discard_unlisted(open_library(folder), entry)
            raise
    return added, findings


def _new_name(library: Library, source: Path, name: str | None) -> str:
    """The name of a source to come; refused where it is taken, or the library is full."""
    name = name or name_from(source)
    check_name(name)
    if name in library.names:
        raise AlreadyExists(
            f"a source is named {name!r} already; add this one with `smatter library add "
            f"{shlex.join(map(str, (library.folder, source)))} --name NAME`, or remove that one first"
        )
    if len(library.names) >= MAX_SOURCES:
        raise InvalidManifest(f"{library.folder} holds {MAX_SOURCES} sources, the most it can; remove some")
    return name


def _compared(library: Library, candidate: Checkpoint, name: str, keys: tuple[str, ...]) -> list[Finding]:
    """What headers and files say of a source; refuses one that cannot mix."""
    findings = compare(library.base, candidate, name, library.manifest.exclude, accept=keys)
    refuse_errors(findings, f"{candidate.folder} does not mix with {library.manifest.base!r}")
    return findings


def _joined(
    library: Library, entry: SourceEntry, candidate: Checkpoint, keys: tuple[str, ...]
) -> tuple[Library, list[Finding]]:
    """The library with a source more, and what its values say of it; refuses one that cannot mix."""
    manifest = _changed(library, sources=[each.model_dump() for each in (*library.manifest.sources, entry)])
    added = Library(library.folder, manifest)
    similarity = measure(added, (manifest.base, entry.name), library.specs, library.partition)
    found = accepted([*differing_buffers(added, entry.name), *relations(added, similarity, library.partition)], keys)
    refuse_errors(found, f"{candidate.folder} does not mix with {manifest.base!r}")
    return added, found


def _publish(library: Library, newest: Sequence[Checkpoint], seal: Seal) -> None:
    """Write the manifest of a library whose last sources are new, unless somebody has written to them meanwhile."""
    for file in (file for checkpoint in newest for file in checkpoint.weight_files.values()):
        if not file.is_untouched:
            raise SourceChanged(f"{file.path} was changed while it was read: run this again")
    write_file(library.folder / MANIFEST, library.manifest.to_json())
    for entry, checkpoint in zip(library.manifest.sources[-len(newest) :], newest, strict=True):
        if entry.form == "whole":
            library.remember(entry.name, list(checkpoint.weight_files.values()), seal)
    seal.save()


def remove_source(folder: str | Path, name: str) -> Library:
    """Take a source out of the library; a checkpoint it points at stays where it is."""
    folder = Path(folder)
    with locked(folder):
        library = open_library(folder)
        entry = library.manifest.source(name)
        if name == library.manifest.base:
            raise InvalidManifest(f"{name!r} is the base, which all others refer to; make a library with another base")
        if name == library.manifest.safe:
            raise InvalidManifest(f"{name!r} is the safe source: mark another with `smatter library safe` first")
        left = [other.model_dump() for other in library.manifest.sources if other.name != name]
        manifest = _changed(library, sources=left)
        write_file(folder / MANIFEST, manifest.to_json())
        _discard_unlisted(Library(folder, manifest), entry)
    return Library(folder, manifest)


def add_experts(folder: str | Path, router: str | Path) -> tuple[Library, str]:
    """Copy a router's bank of experts into the library, so that recipes need the router no more; returns its digest.

    Args:
        folder: the library's folder.
        router: the router's folder.
    """
    folder, source = Path(folder), bank_of(router)
    data = source.read_bytes()
    bank = parse_bank(data, source)
    with locked(folder):
        library = open_library(folder)
        library.lend(bank)
        library.bank(bank.digest)  # refuses experts of another network
        path = folder / EXPERTS / bank_file(bank.digest)
        if path.parent.is_symlink():
            raise UnsafeFile(f"{path.parent} is a link; make it a folder of the library's own")
        entry = BankEntry(digest=bank.digest, size=len(data), router=name_from(Path(router)))
        others = [each for each in library.manifest.experts if each.digest != bank.digest]
        manifest = _changed(library, experts=[each.model_dump() for each in (*others, entry)])
        with kept_if_filled(path.parent):
            write_file(path, data)
            write_file(folder / MANIFEST, manifest.to_json())
    return Library(folder, manifest), bank.digest


def remove_experts(folder: str | Path, digest: str) -> Library:
    """Take a bank of experts out of the library; recipes that open it need its router again.

    Args:
        folder: the library's folder.
        digest: of the bank, or its first eight characters or more.
    """
    folder = Path(folder)
    with locked(folder):
        library = open_library(folder)
        known = library.manifest.experts
        found = [entry for entry in known if len(digest) >= SHORTEST and entry.digest.startswith(digest)]
        if len(found) != 1:
            listed = ", ".join(entry.digest[:12] for entry in known) or "none"
            raise UnknownSource(f"no experts are called {digest[:80]!r}: the library has {listed}")
        manifest = _changed(library, experts=[entry.model_dump() for entry in known if entry not in found])
        write_file(folder / MANIFEST, manifest.to_json())
        with suppress(SmatterError, OSError):  # what is not the bank that we wrote is not ours to delete
            path = safe_path(folder / EXPERTS, bank_file(found[0].digest))
            read_bank(path, found[0].digest)
            path.unlink()
            path.parent.rmdir()  # refuses while there are others
    return Library(folder, manifest)


def mark_safe(folder: str | Path, name: str) -> Library:
    """Make a source the safe one, instead of whichever was."""
    folder = Path(folder)
    with locked(folder):
        library = open_library(folder)
        library.manifest.source(name)
        manifest = _changed(library, safe=name)
        write_file(folder / MANIFEST, manifest.to_json())
    return Library(folder, manifest)


def _store(
    library: Library,
    candidate: Checkpoint,
    name: str,
    form: FormName,
    rank: int | None,
    accept: tuple[str, ...],
    seal: Seal,
    progress: Progress,
) -> SourceEntry:
    """Write a source in its form, and describe it."""
    if rank is not None and (form != "low-rank" or not 1 <= rank <= 4096):
        raise IncompatibleSource(f"rank {rank} is for the form low-rank, from 1 to 4096")
    what, source = str(candidate.folder), fit_to(library.base, candidate, accept)
    if form == "whole":
        return SourceEntry(
            name=name,
            path=path_in(library.folder, candidate.folder),
            digest=content_digest(source, library.specs, what, progress),
            n_parameters=_count(source, library.specs),
            files=_hash_files(candidate, seal, progress),
            accepted=accept,
        )
    specs = {tensor: source.tensors[tensor] for tensor in library.specs}
    original = content_digest(source, specs, what, progress)
    with stored_folder(library.folder) as pending:
        folder = pending.path
        write_stored(folder, form, source, base=library.base, names=specs, rank=rank, progress=progress)
        side = [file for file in SIDE_FILES if file in candidate.files]
        for file in side:
            copy_file(candidate.folder, file, folder)
        stored = StoredSource(folder / STORED, form, library.base)
        digest = content_digest(stored, specs, f"{what} stored as {form}", progress)
        if form == "delta" and digest != original:
            raise UnsafeFile(f"{what} does not come back from a delta bit for bit; store it whole, and report this")
        sums = {file: file_digest(folder / file, progress) for file in (STORED, *side)}
        pending.name = folder_digest(sums)
        return SourceEntry(
            name=name,
            path=f"{STORED_FOLDER}/{pending.name}",
            form=form,
            digest=digest,
            n_parameters=_count(source, specs),
            files={file: FileEntry(size=(folder / file).stat().st_size, sha256=found) for file, found in sums.items()},
            loss=None if form == "delta" else measure_loss(stored, source, library.base, specs),
            accepted=accept,
        )


def _discard_unlisted(library: Library, entry: SourceEntry) -> None:
    """Delete the library's own copy of a source, unless the manifest lists it under this or another name."""
    if entry.form != "whole" and entry.path not in {source.path for source in library.manifest.sources}:
        discard(library.folder / entry.path)


def _changed(library: Library, **fields: object) -> Manifest:
    return parse_manifest(library.manifest.model_dump(by_alias=True) | fields, library.folder / MANIFEST)


def _hash_files(checkpoint: Checkpoint, seal: Seal, progress: Progress) -> dict[str, FileEntry]:
    """Every file of a checkpoint; of its weights, those bytes that are mapped."""
    found = {}
    for name in checkpoint.files:
        file = checkpoint.weight_files.get(name, checkpoint.folder / name)
        size = (checkpoint.folder / name).stat().st_size if isinstance(file, Path) else file.stamp[0]
        found[name] = FileEntry(size=size, sha256=seal.digest(file, progress))
    return found


def _count(source: Tensors, names: Iterable[str]) -> int:
    return sum(source.tensors[name].n_elements for name in names)
