"""Recipes on disk: one safetensors file of a few kB, readable with the plain safetensors library.

The header's metadata has the key `smatter_recipe`, a JSON object: sources with their digests, modules, rule.
Tensors: `mixture` (rows, sources) as float64; `elements:T:indices`, `elements:T:values` and `dense:T` for a
residual on tensor T.
"""

import json
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from smatter.compose.mixture import Mixture
from smatter.compose.recipe import Recipe
from smatter.compose.residual import Elements, Residual
from smatter.errors import InvalidRecipe, NotFound, SmatterError, UnsafeFile
from smatter.files.fields import Digest, Name, first_mistake
from smatter.files.reading import MAX_NAME_CHARACTERS, Array, MappedFile, parse_json
from smatter.files.writing import write_tensors
from smatter.records import TensorSpec

KEY = "smatter_recipe"
Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARACTERS)]


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = Field(alias="schema")
    architecture: Text
    rule: Literal["simplex", "arithmetic"]
    sources: tuple[tuple[Name, Digest], ...]
    modules: tuple[Text, ...]
    partition: Digest


def write_recipe(path: str | Path, recipe: Recipe) -> None:
    """Save a recipe; an existing file is replaced in one step."""
    path = Path(path)
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} does not exist; create it first")
    mixture, residual = recipe.mixture, recipe.residual or Residual()
    header = {
        "schema": 1,
        "architecture": recipe.architecture,
        "rule": mixture.rule,
        "sources": [[name, recipe.digests[name]] for name in mixture.sources],
        "modules": list(mixture.modules),
        "partition": recipe.partition_digest,
    }
    rows = np.array(mixture.rows, np.float64)
    tensors: list[tuple[str, TensorSpec, Array]] = [("mixture", TensorSpec("F64", rows.shape), rows)]
    for name, entry in residual.elements.items():
        shape = entry.indices.shape
        tensors.append((f"elements:{name}:indices", TensorSpec("I64", shape), entry.indices))
        tensors.append((f"elements:{name}:values", TensorSpec("F32", shape), entry.values))
    for name, values in residual.dense.items():
        tensors.append((f"dense:{name}", TensorSpec("F32", values.shape), values))
    write_tensors(path, tensors, {KEY: json.dumps(header, separators=(",", ":"))})


def read_recipe(path: str | Path) -> Recipe:
    """Load a recipe and check all of it that can be checked without the library."""
    path = Path(path)
    file = MappedFile(path)
    if KEY not in file.header.metadata:
        raise InvalidRecipe(f"{path} is a safetensors file but no recipe; `smatter compose --as recipe` writes one")
    try:
        header = _Header.model_validate(parse_json(file.header.metadata[KEY].encode(), path))
        rows = _tensor(file, "mixture", "F64")
        if rows.ndim != 2:
            raise InvalidRecipe("its mixture is not a matrix")
        mixture = Mixture(
            tuple(name for name, _ in header.sources),
            tuple(tuple(map(float, row)) for row in rows),
            header.modules,
            header.rule,
        )
        residual = _residual(file)
        return Recipe(mixture, dict(header.sources), header.architecture, header.partition, residual)
    except ValidationError as error:
        raise InvalidRecipe(f"{path} is not a recipe ({first_mistake(error)}); make it again") from None
    except SmatterError as error:
        if isinstance(error, UnsafeFile):
            raise
        raise InvalidRecipe(f"{path} is not a sound recipe: {error}; make it again") from None


def is_recipe(path: Path) -> bool:
    """Whether a file says it is a recipe; it may still not be a sound one."""
    try:
        return KEY in MappedFile(path).header.metadata
    except SmatterError:
        return False


def _residual(file: MappedFile) -> Residual | None:
    elements, dense = {}, {}
    for key in file.header.tensors:
        kind, _, rest = key.partition(":")
        if kind == "dense":
            dense[rest] = _tensor(file, key, "F32")
        elif kind == "elements" and rest.endswith(":indices"):
            name = rest.removesuffix(":indices")
            elements[name] = Elements(_tensor(file, key, "I64"), _tensor(file, f"elements:{name}:values", "F32"))
        elif kind == "elements" and rest.endswith(":values"):
            _tensor(file, f"{key.removesuffix(':values')}:indices", "I64")
        elif key != "mixture":
            raise InvalidRecipe(f"it has a tensor {key!r}, which no recipe has")
    return Residual(elements, dense) if elements or dense else None


def _tensor(file: MappedFile, key: str, dtype: str) -> Array:
    if key not in file.header.tensors:
        raise InvalidRecipe(f"it lacks its tensor {key!r}")
    if file.header.tensors[key].spec.dtype != dtype:
        raise InvalidRecipe(f"its tensor {key!r} is {file.header.tensors[key].spec.dtype}, not {dtype}")
    return file.whole(key)
