"""What a check finds, and which findings a user may overrule."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from smatter.errors import IncompatibleSource, InvalidSettings
from smatter.library.manifest import is_excluded

Severity = Literal["error", "accepted", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One difference of a source from the base, and what to do about it.

    Args:
        severity: an error keeps a source out of the library; one that the user has accepted does not.
        kind: which check found it.
        source: of whom.
        message: what it is, and a remedy.
        key: what `--accept` calls it; none where a mixture cannot be computed at all.
    """

    severity: Severity
    kind: str
    source: str
    message: str
    key: str | None = None

    def __str__(self) -> str:
        return f"{self.source}: {self.message}"

    @property
    def remedy(self) -> str:
        """The message, with what to say if one knows better."""
        return self.message if self.key is None else f"{self.message} (--accept {self.key} if you know better)"


def is_ok(findings: Iterable[Finding]) -> bool:
    """Whether mixtures mean something in spite of all findings."""
    return not any(finding.severity == "error" for finding in findings)


def accepted(findings: Iterable[Finding], keys: tuple[str, ...]) -> list[Finding]:
    """The findings; errors that the user has accepted by key, or by a pattern of keys, are none any more."""
    return [
        replace(finding, severity="accepted")
        if finding.severity == "error" and finding.key is not None and is_excluded(finding.key, keys)
        else finding
        for finding in findings
    ]


def refuse_errors(findings: Iterable[Finding], what: str) -> None:
    """Raise the first error, with the keys of the others."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        others = [finding.key or finding.kind for finding in errors[1:]]
        more = f"; further differences: {shown(others)}" if others else ""
        raise IncompatibleSource(f"{what}: {errors[0].remedy}{more}")


def check_used(keys: tuple[str, ...], findings: Iterable[Finding], tensors: Iterable[str]) -> None:
    """Refuse a key that accepts no difference and names no tensor: it may be misspelt.

    Args:
        keys: what the user accepts.
        findings: of the source.
        tensors: names of the base's tensors and of the source's.
    """
    met = sorted({finding.key for finding in findings if finding.severity == "accepted" and finding.key})
    names = [*met, *tensors]
    for key in keys:
        if not any(is_excluded(name, (key,)) for name in names):
            others = f"those that it accepts are {shown(met)}" if met else "nothing need be accepted"
            raise InvalidSettings(f"--accept {key[:80]} names no difference of this source: leave it out; {others}")


def shown(names: Sequence[str]) -> str:
    """Some names for people.

    >>> shown(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
