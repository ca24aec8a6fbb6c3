"""Recipes on disk: one safetensors file of a few kB, readable with the plain safetensors library.

The header's metadata has the key `smatter_recipe`, a JSON object; docs/recipes.md lists it and the tensors.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from smatter.compose.experts import ExpertMix
from smatter.compose.head import MAX_CLASSES, ClassHead
from smatter.compose.members import MAX_MEMBERS, Member
from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.records import Notes, Pins, Share
from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidRecipe, NotFound, SmatterError, UnsafeFile
from smatter.files.fields import Digest, Name, TensorName, first_mistake
from smatter.files.reading import MAX_NAME_CHARACTERS, Array, MappedFile, parse_json
from smatter.files.writing import write_tensors
from smatter.records import TensorSpec
from smatter.settings import HeadName

KEY = "smatter_recipe"
SCHEMA = 2
Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARACTERS)]
DTYPES = {np.dtype("float32"): "F32", np.dtype("float64"): "F64", np.dtype("int64"): "I64"}


class _Bank(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    bank: Digest


class _Head(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: HeadName
    classes: dict[str, int]
    temperature: float = 1.0
    length: float = 1.0
    sizes: list[int] = Field(default=[], max_length=MAX_CLASSES)


class _Member(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: Share
    mixture: dict[Name, Share] = Field(min_length=1)
    modules: tuple[TensorName, ...] = ()


class _Header(Notes):
    version: Literal[2] = Field(alias="schema")
    architecture: Text
    rule: Literal["simplex", "arithmetic"]
    sources: tuple[tuple[Name, Digest], ...]
    modules: tuple[Text, ...]
    partition: Digest
    experts: _Bank | None = None
    head: _Head | None = None
    members: tuple[_Member, ...] = Field(default=(), max_length=MAX_MEMBERS)


def write_recipe(path: str | Path, recipe: Recipe) -> None:
    """Save a recipe; an existing file is replaced in one step."""
    path = Path(path)
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} does not exist; create it first")
    mixture, experts, head = recipe.mixture, recipe.experts, recipe.head
    header: dict[str, Any] = {
        "schema": SCHEMA,
        "architecture": recipe.architecture,
        "rule": mixture.rule,
        "sources": [[name, recipe.digests[name]] for name in mixture.sources],
        "modules": list(mixture.modules),
        "partition": recipe.partition_digest,
    }
    arrays: dict[str, Array] = {"mixture": np.array(mixture.rows, np.float64)}
    if experts is not None:
        header["experts"] = {"bank": experts.bank}
        arrays["experts:alpha"] = np.array(experts.alpha, np.float32)
        if experts.opened is not None:
            arrays |= {"experts:units": experts.opened.indices, "experts:gates": experts.opened.values}
    if head is not None:
        fields = {"temperature": head.temperature, "length": head.length}
        sizes = {"sizes": list(head.sizes)} if head.sizes else {}
        header["head"] = {"kind": head.kind, "classes": dict(head.classes)} | fields | sizes
        arrays |= {f"head:{name}": each for name in ("weight", "bias") if (each := getattr(head, name)) is not None}
    if recipe.members:
        header["members"] = [_told(member) for member in recipe.members]
        for number, member in enumerate(recipe.members):
            arrays |= {f"member:{number}:{name}": each for name, each in _head_of(member).items() if each is not None}
    residual = recipe.residual or Residual()
    for name, entry in residual.elements.items():
        arrays |= {f"elements:{name}:indices": entry.indices, f"elements:{name}:values": entry.values}
    arrays |= {f"dense:{name}": values for name, values in residual.dense.items()}
    pins = (recipe.notes.pins or Pins()).model_copy(update={"tensors": _own_digest(arrays)})
    notes = recipe.notes.model_copy(update={"pins": pins})
    header |= notes.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    tensors = [(name, TensorSpec(DTYPES[array.dtype], array.shape), array) for name, array in arrays.items()]
    write_tensors(path, tensors, {KEY: json.dumps(header, separators=(",", ":"), ensure_ascii=False)})


def read_recipe(path: str | Path) -> Recipe:
    """Load a recipe and check all of it that can be checked without the library."""
    path = Path(path)
    file = MappedFile(path)
    if KEY not in file.header.metadata:
        raise InvalidRecipe(f"{path} is a safetensors file but no recipe; `smatter compose --as recipe` writes one")
    try:
        data = parse_json(file.header.metadata[KEY].encode(), path)
        _check_schema(data)
        header, tensors = _Header.model_validate(data), _Tensors(file)
        recipe = _restored(header, tensors)
        if header.pins and header.pins.tensors not in (None, _own_digest(tensors.taken)):
            raise InvalidRecipe("its tensors are not those that it was written with")
        return recipe
    except ValidationError as error:
        raise InvalidRecipe(f"{path} is not a recipe ({first_mistake(error)}); make it again") from None
    except SmatterError as error:
        if isinstance(error, UnsafeFile):
            raise
        raise InvalidRecipe(f"{path} is not a sound recipe: {error}; make it again") from None


def _own_digest(arrays: Mapping[str, Array]) -> str:
    """Of a recipe's tensors: names, dtypes, shapes and values."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(json.dumps([name, DTYPES[array.dtype], list(array.shape)]).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def is_recipe(path: Path) -> bool:
    """Whether a file says it is a recipe; it may still not be a sound one."""
    try:
        return KEY in MappedFile(path).header.metadata
    except SmatterError:
        return False


def _check_schema(data: Any) -> None:
    """Refuse by name what this version does not know: an older or later schema, a record of a later one."""
    schema = data.get("schema") if isinstance(data, dict) else None
    if type(schema) is int and schema != SCHEMA:
        when = "an earlier version wrote it" if schema < SCHEMA else "a later Smatter reads it"
        raise InvalidRecipe(f"it is of schema {schema} and this version reads {SCHEMA}: {when}")
    known = {field.alias or name for name, field in _Header.model_fields.items()}
    for name in data if isinstance(data, dict) else ():
        if name not in known:
            raise InvalidRecipe(f"it has a record {name[:80]!r}, which this version cannot honour")


def _restored(header: _Header, tensors: "_Tensors") -> Recipe:
    rows = tensors.take("mixture", "F64")
    names = tuple(name for name, _ in header.sources)
    if rows.shape != (max(1, len(header.modules)), len(names)):
        raise InvalidRecipe(
            f"its mixture is {list(rows.shape)} for {len(header.modules)} modules, {len(names)} sources"
        )
    mixture = Mixture(names, tuple(tuple(map(float, row)) for row in rows), header.modules, header.rule)
    experts, head = None, None
    if header.experts:
        alpha = tensors.take("experts:alpha", "F32")
        if alpha.ndim != 1:
            raise InvalidRecipe("its experts' weights are not a list")
        opened = None
        if "experts:units" in tensors:
            opened = Elements(tensors.take("experts:units", "I64"), tensors.take("experts:gates", "F32"))
        experts = ExpertMix(header.experts.bank, tuple(map(float, alpha)), opened)
    if header.head:
        told = header.head
        head = ClassHead(
            told.kind,
            told.classes,
            tensors.take("head:weight", "F32") if "head:weight" in tensors else None,
            tensors.take("head:bias", "F32") if "head:bias" in tensors else None,
            told.temperature,
            length=told.length,
            sizes=tuple(told.sizes),
        )
    members = tuple(_member(told, number, tensors) for number, told in enumerate(header.members))
    residual = _residual(tensors)
    if tensors.left:
        raise InvalidRecipe(f"it has a tensor {tensors.left[0]!r}, which no such recipe has")
    notes = Notes(**{name: getattr(header, name) for name in Notes.model_fields})
    return Recipe(
        mixture,
        dict(header.sources),
        header.architecture,
        header.partition,
        residual=residual,
        experts=experts,
        head=head,
        notes=notes,
        members=members,
    )


def _told(member: Member) -> dict[str, Any]:
    """What the header says of a member."""
    row = dict(zip(member.mixture.sources, member.mixture.rows[0], strict=True))
    return {"weight": member.weight, "mixture": row} | ({"modules": list(member.modules)} if member.modules else {})


def _head_of(member: Member) -> dict[str, Array | None]:
    return {"weight": member.coefficients, "bias": member.constants}


def _member(told: _Member, number: int, tensors: "_Tensors") -> Member:
    weight, bias = (
        tensors.take(key, "F32") if (key := f"member:{number}:{name}") in tensors else None
        for name in ("weight", "bias")
    )
    return Member(told.weight, Mixture.of(told.mixture), told.modules, weight, bias)


def _residual(tensors: "_Tensors") -> Residual | None:
    elements, dense = {}, {}
    for key in tensors.left:
        kind, _, rest = key.partition(":")
        if kind == "dense":
            dense[rest] = tensors.take(key, "F32")
        name, _, part = rest.rpartition(":")
        if kind == "elements" and part in ("indices", "values") and name not in elements:
            indices, values = (f"elements:{name}:{each}" for each in ("indices", "values"))
            elements[name] = Elements(tensors.take(indices, "I64"), tensors.take(values, "F32"))
    return Residual(elements, dense) if elements or dense else None


class _Tensors:
    """The tensors of a file; each is taken once, so that what nobody asked for is known."""

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self._left = dict.fromkeys(file.header.tensors)
        self.taken: dict[str, Array] = {}

    @property
    def left(self) -> tuple[str, ...]:
        """Names of those that were not taken."""
        return tuple(self._left)

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def take(self, key: str, dtype: str) -> Array:
        """A copy of one of them, which must be of this dtype: what happens to the file later does not matter."""
        if key not in self._left:
            raise InvalidRecipe(f"it lacks its tensor {key!r}")
        found = self._file.header.tensors[key].spec.dtype
        if found != dtype:
            raise InvalidRecipe(f"its tensor {key!r} is {found}, not {dtype}")
        del self._left[key]
        self.taken[key] = self._file.whole(key).copy()
        return self.taken[key]
