"""The compact form of a suite: suite.json and a sheet of pictures, or a file of texts, for each domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from smatter.errors import InvalidSuite
from smatter.library.checkpoint import safe_path
from smatter.library.headers import read_small_json
from smatter.library.manifest import FileName, Name
from smatter.tasks.stores import Sheet
from smatter.tasks.suite import Domain, Suite, SuiteClass

TABLE = "suite.json"
MAX_TABLE_BYTES = 16_000_000
MAX_DOMAINS = 1_000
MAX_CLASSES = 100_000

Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassEntry(_Record):
    """A class: its name, its concept, and the number of the style of each example."""

    name: Text
    key: Text
    examples: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, max_length=10_000)]


class DomainEntry(_Record):
    """A domain and the sheet its examples are on."""

    name: Name
    title: Text
    role: Literal["id", "ood"]
    sheet: FileName
    styles: tuple[Text, ...]
    classes: Annotated[tuple[ClassEntry, ...], Field(max_length=MAX_CLASSES)]
    packages: tuple[Text, ...] = ()


class PackageEntry(_Record):
    """A package that examples were taken from."""

    registry: Text
    name: Text
    version: Text
    licence: Annotated[str, StringConstraints(max_length=2_000)]
    use: Annotated[str, StringConstraints(max_length=2_000)]


class SuiteTable(_Record):
    """The contents of suite.json."""

    format: Literal[1] = Field(alias="schema")
    name: Name
    image_size: Annotated[int, Field(ge=1, le=1024)]
    domains: Annotated[tuple[DomainEntry, ...], Field(max_length=MAX_DOMAINS)]
    packages: tuple[PackageEntry, ...] = ()


def read_packed(folder: Path) -> Suite:
    """Open a suite in its compact form; sheets are decoded when their first example is asked for."""
    path = folder / TABLE
    try:
        table = SuiteTable.model_validate(read_small_json(path, MAX_TABLE_BYTES))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])[:200]
        raise InvalidSuite(f"{path} is not a suite ({where}: {first['msg'][:300]}); build it again") from None
    domains = tuple(_domain(folder, entry, table.image_size) for entry in table.domains)
    return Suite(table.name, "images", domains, tuple(package.model_dump() for package in table.packages))


def _domain(folder: Path, entry: DomainEntry, side: int) -> Domain:
    classes = []
    style_of: list[int] = []
    for each in entry.classes:
        start = len(style_of)
        style_of += each.examples
        classes.append(SuiteClass(each.name, each.key, start, len(style_of)))
    if style_of and max(style_of) >= len(entry.styles):
        raise InvalidSuite(f"{folder / TABLE}: domain {entry.name!r} has a style without a name; build it again")
    store = Sheet(safe_path(folder, entry.sheet), len(style_of), side)
    packages = entry.packages
    return Domain(entry.name, entry.title, entry.role, tuple(classes), store, entry.styles, tuple(style_of), packages)
