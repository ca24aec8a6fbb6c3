"""`library check`: everything that makes mixing meaningless or unsafe, and how many sources are really distinct."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from smatter.compose.execute import ranges
from smatter.errors import SmatterError
from smatter.files.hashing import file_digest
from smatter.library.checkpoint import Checkpoint
from smatter.library.compare import Finding, compare
from smatter.library.contents import content_digest
from smatter.library.library import Library
from smatter.library.manifest import BankEntry
from smatter.library.similarity import NEAR_DUPLICATE, SAME_BASIN, Similarity, measure
from smatter.records import Progress, silent


@dataclass(frozen=True)
class Report:
    """What a check found; `similarity` is missing when the sources cannot be read side by side."""

    findings: tuple[Finding, ...]
    similarity: Similarity | None
    experts: tuple[BankEntry, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether mixtures of this library mean something."""
        return not any(finding.severity == "error" for finding in self.findings)

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
            "experts": [entry.model_dump() for entry in self.experts],
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
    if any(finding.severity == "error" for finding in findings):
        return Report(tuple(findings), None, library.manifest.experts)
    names = (library.manifest.base, *(name for name in library.names if name != library.manifest.base))
    similarity = measure(library, names, library.specs, library.partition, progress)
    return Report((*findings, *relations(similarity)), similarity, library.manifest.experts)


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
    source = library.open_source(name)
    if isinstance(source, Checkpoint) and name != library.manifest.base:
        findings = compare(library.base, source, name, library.manifest.exclude)
        if any(finding.severity == "error" for finding in findings):
            return findings
    if content_digest(source, library.specs, f"source {name!r}", progress) != entry.digest:
        message = "its contents differ from their digest in library.json: remove the source and add it again"
        findings.append(Finding("error", "hashes", name, message))
    return findings + differing_buffers(library, name)


def differing_buffers(library: Library, name: str) -> list[Finding]:
    """Integer tensors are copied, not mixed, so they must agree with the base's."""

    def differs(tensor: str, n_elements: int) -> bool:
        for start, stop in ranges(n_elements):
            mine = library.read(name, tensor, start, stop)
            if not np.array_equal(mine, library.read(library.manifest.base, tensor, start, stop)):
                return True
        return False

    return [
        Finding("error", "buffers", name, f"{tensor} holds integers that differ from the base's: they cannot be mixed")
        for tensor, spec in library.specs.items()
        if not spec.is_floating and differs(tensor, spec.n_elements)
    ]


def relations(similarity: Similarity) -> list[Finding]:
    """Near-duplicates and sources of another basin, as warnings."""
    findings = []
    for first, *others in similarity.clusters:
        for name in others:
            message = f"is a near-duplicate of {first!r} (closer than {NEAR_DUPLICATE:.0%} of their deltas)"
            findings.append(Finding("warning", "near-duplicates", name, f"{message}: mixing the two changes little"))
    for name in similarity.strangers:
        cosine = similarity.overall_cosine[similarity.names.index(name)]
        message = f"has cosine {cosine:.2f} to the base, below {SAME_BASIN}: it comes from another initialisation"
        findings.append(
            Finding("warning", "unrelated basin", name, f"{message}; a mixture with it works as neither: leave it out")
        )
    return findings
