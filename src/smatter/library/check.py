"""`library check`: everything that makes mixing meaningless or unsafe, and how many sources are really distinct."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from smatter.compose.execute import ranges
from smatter.errors import SmatterError
from smatter.files.hashing import file_digest
from smatter.files.writing import PARTIAL
from smatter.library.checkpoint import open_checkpoint, read_config
from smatter.library.compare import compare, compare_side_files
from smatter.library.contents import content_digest
from smatter.library.findings import Finding, accepted, is_ok
from smatter.library.kinship import apart, relations
from smatter.library.library import EXPERTS, Library, bank_file
from smatter.library.manifest import BankEntry, SourceEntry
from smatter.library.similarity import Similarity, measure
from smatter.library.storage import STORED_FOLDER
from smatter.records import Progress, silent


@dataclass(frozen=True)
class Report:
    """What a check found; `similarity` is missing when the sources cannot be read side by side.

    `orphans` are paths in the library's folder of what a killed process left, or of sources that are not listed.
    """

    findings: tuple[Finding, ...]
    similarity: Similarity | None
    experts: tuple[BankEntry, ...] = ()
    orphans: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether mixtures of this library mean something."""
        return is_ok(self.findings)

    @property
    def n_distinct(self) -> int | None:
        """Sources that are not near-duplicates of another."""
        return len(self.similarity.clusters) if self.similarity else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        similarity = self.similarity
        return {
            "ok": self.ok,
            "findings": [vars(finding) for finding in self.findings],
            "n_sources": len(similarity.names) if similarity else None,
            "n_distinct": self.n_distinct,
            "scatter": round(similarity.scatter, 6) if similarity else None,
            "experts": [entry.model_dump() for entry in self.experts],
            "orphans": list(self.orphans),
            "clusters": [list(cluster) for cluster in similarity.clusters] if similarity else None,
            "cosine_to_base": {
                name: {
                    "overall": round(float(similarity.overall_cosine[column]), 6),
                    "modules": dict(
                        zip(similarity.modules, similarity.cosine_to_base[:, column].round(6).tolist(), strict=True)
                    ),
                }
                for column, name in enumerate(similarity.names)
            }
            if similarity
            else None,
        }


def check_library(library: Library, progress: Progress = silent) -> Report:
    """Hash every file, read every value, compare every source with the base and with each other."""
    findings: list[Finding] = []
    for name in (library.manifest.base, *(name for name in library.names if name != library.manifest.base)):
        try:
            findings += _check_source(library, name, progress)
        except SmatterError as error:
            findings.append(Finding("error", "files", name, str(error)))
            if name == library.manifest.base:
                break
    findings += _check_banks(library)
    if not is_ok(findings):
        return Report(tuple(findings), None, library.manifest.experts, find_orphans(library))
    names = (library.manifest.base, *(name for name in library.names if name != library.manifest.base))
    similarity = measure(library, names, library.specs, library.partition, progress)
    for finding in relations(library, similarity, library.partition):
        findings += accepted([finding], library.manifest.source(finding.source).accepted)
    findings += apart(similarity)
    return Report(tuple(findings), similarity, library.manifest.experts, find_orphans(library))


def find_orphans(library: Library) -> tuple[str, ...]:
    """What lies where the library writes, and is of no source and no bank."""
    listed = [library.folder / source.path for source in library.manifest.sources]
    listed += [library.folder / EXPERTS / bank_file(bank.digest) for bank in library.manifest.experts]
    found = [path for place in (STORED_FOLDER, EXPERTS) for path in sorted((library.folder / place).glob("*"))]
    found += sorted(library.folder.glob(f".*{PARTIAL}*"))
    return tuple(str(path) for path in found if not any(kept.is_relative_to(path) for kept in listed))


def _check_banks(library: Library) -> list[Finding]:
    findings = []
    for entry in library.manifest.experts:
        try:
            library.bank(entry.digest)
        except SmatterError as error:
            what = " ".join(str(error).split()).partition("; ")[0].partition(": ")[0]
            message = f"bank {entry.digest[:12]}: {what}: copy it again with `smatter library experts`"
            findings.append(Finding("error", "experts", entry.router, message))
    return findings


def _check_source(library: Library, name: str, progress: Progress) -> list[Finding]:
    entry = library.manifest.source(name)
    findings = []
    for path, expected in library.files(name):
        if file_digest(path, progress) != expected:
            message = f"{path} has changed since it was added: restore it, or remove the source and add it again"
            findings.append(Finding("error", "hashes", name, message))
    if findings:
        return findings
    if name != library.manifest.base:
        findings = _differences(library, entry)
        if not is_ok(findings):
            return findings
    source = library.open_source(name)
    if content_digest(source, library.specs, f"source {name!r}", progress) != entry.digest:
        message = "its contents differ from their digest in library.json: remove the source and add it again"
        findings.append(Finding("error", "hashes", name, message))
    return findings + differing_buffers(library, name)


def _differences(library: Library, entry: SourceEntry) -> list[Finding]:
    """How a source differs from the base, as far as headers and side files tell."""
    folder = library.path_of(entry)
    if entry.form == "whole":
        checkpoint = open_checkpoint(folder)
        return compare(library.base, checkpoint, entry.name, library.manifest.exclude, accept=entry.accepted)
    return compare_side_files(
        library.base,
        folder,
        read_config(folder),
        name=entry.name,
        exclude=library.manifest.exclude,
        accept=entry.accepted,
    )


def differing_buffers(library: Library, name: str) -> list[Finding]:
    """Integer tensors are copied, not mixed, so they must agree with the base's."""

    def differs(tensor: str, n_elements: int) -> bool:
        for start, stop in ranges(n_elements):
            mine = library.read(name, tensor, start, stop)
            if not np.array_equal(mine, library.read(library.manifest.base, tensor, start, stop)):
                return True
        return False

    message = "holds integers that differ from the base's: they cannot be mixed, only replaced by the base's"
    return [
        Finding("error", "buffers", name, f"{tensor} {message}", tensor)
        for tensor, spec in library.specs.items()
        if not spec.is_floating and differs(tensor, spec.n_elements)
    ]
