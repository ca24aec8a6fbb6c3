"""The compact form of a suite: suite.json and a sheet of pictures, or a file of texts, for each domain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from smatter.backbones.images import MAX_PIXELS
from smatter.errors import InvalidSuite
from smatter.files.fields import FileName, Name, first_mistake
from smatter.files.reading import read_small_json, safe_path
from smatter.files.writing import new_folder, write_file
from smatter.records import Progress, silent
from smatter.tasks.given import Kind
from smatter.tasks.rows import MAX_FILE_BYTES
from smatter.tasks.stores import COLUMNS, Sheet, TextFile
from smatter.tasks.suite import (
    MAX_CHARACTERS,
    MAX_CLASSES,
    MAX_DOMAINS,
    MAX_EXAMPLES,
    Domain,
    Store,
    Suite,
    SuiteClass,
)

TABLE = "suite.json"
MAX_TABLE_BYTES = 16_000_000
WEBP_SIDE = 16_383
"""The longest side of a picture that WebP can hold; larger sheets are PNG."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CHARACTERS)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassEntry(_Record):
    """A class: its name, its concept, and the number of each example's style, 0 where the domain names none."""

    name: Text
    key: Text
    examples: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, max_length=MAX_EXAMPLES)]


class DomainEntry(_Record):
    """A domain and the sheet, or the file of texts, that its examples are on."""

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
    kind: Kind = "images"
    image_size: Annotated[int, Field(ge=1, le=1024)] | None = None
    domains: Annotated[tuple[DomainEntry, ...], Field(max_length=MAX_DOMAINS)]
    packages: tuple[PackageEntry, ...] = ()

    @model_validator(mode="after")
    def _check_size(self) -> SuiteTable:
        if (self.image_size is None) != (self.kind == "texts"):
            raise ValueError("pictures have an image_size, texts have none")
        return self


def read_packed(folder: Path) -> Suite:
    """Open a suite in its compact form; a domain is read when its first example is asked for."""
    path = folder / TABLE
    try:
        table = SuiteTable.model_validate(read_small_json(path, MAX_TABLE_BYTES))
    except ValidationError as error:
        raise InvalidSuite(f"{path} is not a suite ({first_mistake(error)}); build it again") from None
    domains = tuple(_domain(folder, entry, table.image_size) for entry in table.domains)
    return Suite(table.name, table.kind, domains, tuple(package.model_dump() for package in table.packages))


def _domain(folder: Path, entry: DomainEntry, side: int | None) -> Domain:
    classes = []
    style_of: list[int] = []
    for each in entry.classes:
        start = len(style_of)
        style_of += each.examples
        classes.append(SuiteClass(each.name, each.key, start, len(style_of)))
    if style_of and max(style_of) >= max(1, len(entry.styles)):
        raise InvalidSuite(f"{folder / TABLE}: domain {entry.name!r} has a style without a name; build it again")
    path = safe_path(folder, entry.sheet)
    store: Store
    if side is None:
        store = TextFile(path, [each.name for each in entry.classes for _ in each.examples])
    else:
        store = Sheet(path, len(style_of), side)
    styles = tuple(style_of) if entry.styles else ()
    return Domain(
        entry.name,
        entry.title,
        entry.role,
        classes=tuple(classes),
        store=store,
        styles=entry.styles,
        style_of=styles,
        packages=entry.packages,
    )


def is_packed(folder: Path) -> bool:
    """Whether a folder holds a suite in its compact form."""
    return (folder / TABLE).is_file()


def write_packed(folder: Path, suite: Suite, replace: bool = False, progress: Progress = silent) -> None:
    """Write the compact form of a suite; the folder appears at once, or not at all.

    Args:
        folder: where to.
        suite: what.
        replace: exchange an older suite for it; anything else is left alone.
        progress: called with 1 for every domain.
    """
    side = _side(suite) if suite.kind == "images" else None
    with new_folder(folder, replace and is_packed(folder)) as new:
        entries = []
        for domain in suite.domains:
            name = _write_texts(new, domain) if side is None else _write_sheet(new, domain, side)
            entries.append(_entry(domain, name))
            progress(1)
        head = {"schema": 1, "name": suite.name, "kind": suite.kind}
        table = head | ({} if side is None else {"image_size": side})
        table |= {"domains": entries, "packages": list(suite.packages)}
        write_file(new / TABLE, (json.dumps(table, ensure_ascii=False, separators=(",", ":")) + "\n").encode())


def _side(suite: Suite) -> int:
    """Height and width of the pictures; refused where sheets cannot hold them."""
    shapes = {np.asarray(domain.store.take([0])).shape[1:] for domain in suite.domains}
    if len(shapes) > 1 or next(iter(shapes))[0] != next(iter(shapes))[1]:
        raise InvalidSuite(f"the pictures of suite {suite.name!r} are not square and of one size; resize them")
    side = int(next(iter(shapes))[0])
    for domain in suite.domains:
        if len(domain.store) * side * side > MAX_PIXELS - COLUMNS * side * side:
            largest = int((MAX_PIXELS / (len(domain.store) + COLUMNS)) ** 0.5)
            raise InvalidSuite(
                f"domain {domain.name!r} has {len(domain.store)} pictures of {side} x {side} pixels, too many for one "
                f"sheet; ask for a size of at most {largest}"
            )
    return side


def _entry(domain: Domain, sheet: str) -> dict[str, Any]:
    style_of = domain.style_of or (0,) * len(domain.store)
    classes = [
        {"name": each.name, "key": each.key, "examples": style_of[each.start : each.stop]} for each in domain.classes
    ]
    return {
        "name": domain.name, "title": domain.title, "role": domain.role, "sheet": sheet, "styles": domain.styles,
        "classes": classes, "packages": domain.packages,
    }  # fmt: skip


def _write_sheet(folder: Path, domain: Domain, side: int) -> str:
    """Row after row of pictures, without loss; the file's name."""
    from PIL import Image

    pictures = np.asarray(domain.store.take(range(len(domain.store))))
    n_rows = -(-len(pictures) // COLUMNS)
    tiles = np.full((n_rows * COLUMNS, side, side, 3), 255, np.uint8)
    tiles[: len(pictures)] = pictures
    page = tiles.reshape(n_rows, COLUMNS, side, side, 3).swapaxes(1, 2).reshape(n_rows * side, COLUMNS * side, 3)
    image = Image.fromarray(page)
    if max(image.size) <= WEBP_SIDE:
        # Without loss, quality is effort: 100 takes six times as long to save a thousandth.
        image.save(folder / f"{domain.name}.webp", lossless=True, quality=50, method=4)
        return f"{domain.name}.webp"
    image.save(folder / f"{domain.name}.png", optimize=True)
    return f"{domain.name}.png"


def _write_texts(folder: Path, domain: Domain) -> str:
    """A row for each text, class after class; the file's name."""
    texts = domain.store.take(range(len(domain.store)))
    rows = [
        json.dumps({"text": str(texts[number]), "label": each.name}, ensure_ascii=False)
        for each in domain.classes
        for number in range(each.start, each.stop)
    ]
    content = ("\n".join(rows) + "\n").encode()
    if len(content) > MAX_FILE_BYTES:
        raise InvalidSuite(
            f"domain {domain.name!r} has {len(content) // 1_000_000} MB of texts, above {MAX_FILE_BYTES // 1_000_000}; "
            "give fewer"
        )
    write_file(folder / f"{domain.name}.jsonl", content)
    return f"{domain.name}.jsonl"
