"""library.json: what a library is made of."""

import json
import re
import shlex
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from smatter.errors import InvalidManifest, SmatterError, UnknownSource
from smatter.files.fields import NAME, Digest, FileName, Name, TensorName, first_mistake
from smatter.files.patterns import Patterns
from smatter.files.reading import MAX_LABEL_CHARACTERS, MAX_NAME_CHARACTERS, read_small_json
from smatter.records import Partition

MANIFEST = "library.json"
MAX_SOURCES = 1_000
MAX_ACCEPTED = 100

FormName = Literal["whole", "delta", "bf16-delta", "low-rank", "int8"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class FileEntry(_Record):
    """One file of a source, as it was when it was added."""

    size: int = Field(ge=0)
    sha256: Digest


class StorageLoss(_Record):
    """What a lossy storage form changed, as norms of the difference."""

    of_weights: float = Field(ge=0, allow_inf_nan=False)
    """Relative to the source's own norm."""
    of_delta: float | None = Field(ge=0, allow_inf_nan=False)
    """Relative to the source's distance from the base: the part of its specialisation that is lost."""


class SourceEntry(_Record):
    """One source: where it is, how it is stored, what it contains."""

    name: Name
    path: Annotated[str, StringConstraints(pattern=r"^[^\x00]+$", max_length=4096)]
    form: FormName = "whole"
    digest: Digest
    n_parameters: int = Field(ge=0)
    files: dict[FileName, FileEntry]
    loss: StorageLoss | None = None
    accepted: tuple[Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARACTERS)], ...] = Field(
        default=(), max_length=MAX_ACCEPTED
    )
    """Differences from the base that the user said not to mind: settings, checks, or patterns of tensors."""

    @model_validator(mode="after")
    def _kept_by_digest(self) -> Self:
        if self.form != "whole" and not re.fullmatch(r"sources/[0-9a-f]{64}", self.path):
            raise ValueError(f"source {self.name!r} is stored in the layout of an earlier version")
        if not any(file.endswith(".safetensors") for file in self.files):
            raise ValueError(f"source {self.name!r} lists no file with weights")
        return self

    @property
    def n_bytes(self) -> int:
        """Size on disk."""
        return sum(entry.size for entry in self.files.values())


class BankEntry(_Record):
    """A bank of experts that the library keeps a copy of, under its digest."""

    digest: Digest
    size: int = Field(ge=0)
    router: Name
    """Of the router's folder, for people."""


class Manifest(_Record):
    """The whole of library.json."""

    version: Literal[1] = Field(alias="schema")
    architecture: str = Field(min_length=1, max_length=MAX_LABEL_CHARACTERS)
    model_type: str | None = Field(default=None, max_length=MAX_LABEL_CHARACTERS)
    base: Name
    safe: Name | None = None
    """The source to fall back to where nothing must go wrong."""
    exclude: tuple[Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARACTERS)], ...] = ()
    modules: dict[TensorName, tuple[TensorName, ...]]
    sources: tuple[SourceEntry, ...] = Field(max_length=MAX_SOURCES)
    experts: tuple[BankEntry, ...] = Field(default=(), max_length=MAX_SOURCES)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [source.name for source in self.sources]
        if len(set(names)) != len(names):
            raise ValueError(f"a source is named twice in {names}")
        if self.base not in names:
            raise ValueError(f"the base {self.base!r} is not among the sources {names}")
        if self.safe is not None and self.safe not in names:
            raise ValueError(f"the safe source {self.safe!r} is not among the sources {names}")
        if self.source(self.base).form != "whole":
            raise ValueError(f"the base {self.base!r} must be stored whole")
        if len({bank.digest for bank in self.experts}) != len(self.experts):
            raise ValueError("a bank of experts is listed twice")
        _ = self.partition
        return self

    @cached_property
    def partition(self) -> Partition:
        """The module partition."""
        return Partition(self.modules)

    @property
    def digests(self) -> dict[str, str]:
        """Content digest of each source."""
        return {source.name: source.digest for source in self.sources}

    def source(self, name: str) -> SourceEntry:
        """The entry of a source."""
        for source in self.sources:
            if source.name == name:
                return source
        known = ", ".join(source.name for source in self.sources)
        raise UnknownSource(f"no source is named {name!r}: the library has {known}")

    def to_json(self) -> bytes:
        """The text of library.json."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1).encode() + b"\n"


def check_name(name: str) -> None:
    """Refuse what cannot name a source, and so a folder of the library."""
    if not re.fullmatch(NAME, name):
        raise InvalidManifest(
            f"{name[:120]!r} cannot name a source; use up to 100 letters, digits and .+_-, a letter or digit first"
        )


def is_excluded(tensor: str, patterns: tuple[str, ...]) -> bool:
    """Whether a tensor's name on disk matches one of the shell-style patterns."""
    return bool(patterns) and _patterns(patterns).match(tensor)


_patterns = lru_cache(maxsize=8)(Patterns)


def parse_manifest(data: object, path: Path) -> Manifest:
    """Check the parsed JSON of a manifest."""
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        mistake = first_mistake(error)
    except SmatterError as error:
        mistake = f"modules: {error}"
    raise InvalidManifest(f"{path} is not a library ({mistake}); make it again with `smatter library init`")


def read_manifest(folder: Path) -> Manifest:
    """Read library.json in a folder."""
    path = folder / MANIFEST
    if not path.exists():
        place = shlex.quote(str(folder))
        if not folder.exists():
            told = f"{folder} does not exist, so there is no {MANIFEST}; check the path, or"
        elif (folder / "config.json").exists():
            raise InvalidManifest(
                f"{folder} is a checkpoint and has no {MANIFEST}; make one with `smatter library init LIB {place}`"
            )
        else:
            told = f"{folder} has no {MANIFEST};"
        raise InvalidManifest(f"{told} make a library with `smatter library init {place} BASE`")
    return parse_manifest(read_small_json(path, 16 * 4_000_000), path)
