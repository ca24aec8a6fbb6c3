"""Merges described in mergekit's YAML: `linear` and `task_arithmetic` read as mixtures, mixtures written as YAML."""

import math
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from smatter.compose.mixture import LARGEST, Mixture
from smatter.compose.recipe import Recipe
from smatter.errors import InvalidRecipe, InvalidWeights
from smatter.files.reading import read_small_file
from smatter.library.fitted import Fitted
from smatter.library.library import Library

MAX_YAML_BYTES = 1_000_000
"""PyYAML takes ten seconds and 300 MB for it at worst."""
LONGEST_SCALAR = 4_096
"""Characters, as many as a path has: `1:2:3:...` is a number in YAML, and reading it takes the square of its length."""
MAX_COMPARISONS = 20_000_000
"""Filters times tensors: a filter is looked for in each name, a few seconds for all of them."""
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "float64": "F64"}
METHOD_PARAMETERS = {"linear": {"normalize"}, "task_arithmetic": {"normalize", "lambda"}}


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, where yaml would keep the last, and what would never end."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        if isinstance(node, yaml.ScalarNode) and len(node.value) > LONGEST_SCALAR:
            raise yaml.YAMLError(f"a value of {len(node.value)} characters, above {LONGEST_SCALAR}")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        # `<<`, which copies another mapping and so could double itself without end, is no key that can be constructed.
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key, count in Counter(key for key in keys if isinstance(key, Hashable)).items():
            if count > 1:
                raise yaml.YAMLError(f"the key {_shown(key)} stands twice")
        return super().construct_mapping(node, deep)


def read_merge(path: str | Path, library: Library) -> Mixture:
    """A mergekit configuration as a mixture of this library's sources.

    Models are found by their name in the library or by their folder. Weights may differ by tensor
    (`filter`/`value` lists) as long as they agree within each module. What has no counterpart here (slices,
    gradients, tokenizers, other methods) is refused, never ignored.
    """
    path = Path(path)
    text = read_small_file(path, MAX_YAML_BYTES)
    try:
        config = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError, LookupError, AttributeError) as error:
        # yaml itself trips over values that do not fit their tags, such as `!!bool maybe`.
        reason = " ".join(str(error).split())[:200]
        raise InvalidRecipe(f"{path} is not readable YAML ({reason}); correct it") from None
    try:
        return _Merge(config, library).mixture()
    except (_Refused, InvalidWeights) as refused:
        raise InvalidRecipe(f"{path}: {refused}") from None


class _Refused(Exception):
    pass


class _Merge:
    """One configuration, resolved against a library."""

    def __init__(self, config: Any, library: Library) -> None:
        self.library = library
        allowed = {"models", "merge_method", "base_model", "parameters", "dtype", "out_dtype"}
        self.config = _mapping(config, allowed, "the configuration")
        self.method = self.config.get("merge_method")
        if not isinstance(self.method, str) or self.method not in METHOD_PARAMETERS:
            raise _Refused(
                f"merge_method {_shown(self.method)} is not linear or task_arithmetic; run it with mergekit itself"
            )
        self.parameters = _mapping(
            self.config.get("parameters") or {}, METHOD_PARAMETERS[self.method] | {"weight"}, "parameters"
        )
        if not isinstance(self.parameters.get("normalize", True), bool):
            raise _Refused("normalize is not one of true and false; write one")
        models = self.config.get("models")
        if not isinstance(models, list) or not models:
            raise _Refused("it has no list of models; write one")
        self.weights: dict[str, Any] = {}
        for model in models:
            entry = _mapping(model, {"model", "parameters"}, "a model")
            settings = _mapping(entry.get("parameters") or {}, {"weight"}, "a model's parameters")
            name = self._source(entry.get("model"))
            if name in self.weights:
                raise _Refused(f"model {name!r} is there twice; list it once")
            self.weights[name] = settings.get("weight", self.parameters.get("weight"))
        n_filters = sum(len(weight) for weight in self.weights.values() if isinstance(weight, list))
        if n_filters * len(library.specs) > MAX_COMPARISONS:
            raise _Refused(f"{n_filters} filters for {len(library.specs)} tensors are more than are read; write fewer")
        self.base = self._source(self.config["base_model"]) if self.config.get("base_model") else None
        self._check_dtype()

    def mixture(self) -> Mixture:
        """One row where weights do not depend on the tensor, else a row per module."""
        rows = {}
        for module, tensors in self.library.partition.modules.items():
            found = {tuple(self._row(tensor).items()) for tensor in tensors if self.library.specs[tensor].is_floating}
            if len(found) > 1:
                raise _Refused(f"weights differ within module {module!r}; a mixture has one row per module")
            if found:
                rows[module] = dict(found.pop())
        default = next(iter(rows.values()))
        rows = {module: rows.get(module, default) for module in self.library.partition.modules}
        on_simplex = all(_on_simplex(row) for row in rows.values())
        if all(row == default for row in rows.values()):
            return Mixture.of(default) if on_simplex else Mixture.arithmetic(default)
        return Mixture.per_module(rows, "simplex" if on_simplex else "arithmetic")

    def _row(self, tensor: str) -> dict[str, float]:
        weights = {name: _resolve(setting, tensor, name) for name, setting in self.weights.items()}
        if self.method == "linear":
            if self.parameters.get("normalize", True) is True:
                total = math.fsum(weights.values())
                if abs(total) < 1e-8:
                    raise _Refused("weights sum to zero; change them, or say normalize: false")
                return {name: weight / total for name, weight in weights.items()}
            return weights
        if self.base is None:
            raise _Refused("task_arithmetic needs a base_model; add it")
        weights.pop(self.base, None)
        scale = _number(self.parameters.get("lambda", 1.0), "lambda")
        if self.parameters.get("normalize", False) is True:
            total = math.fsum(weights.values())
            scale /= total if abs(total) >= 1e-8 else 1.0
        mix = Mixture.task_arithmetic(self.base, weights, scale)
        return dict(zip(mix.sources, mix.rows[0], strict=True))

    def _source(self, model: Any) -> str:
        path = model.get("path") if isinstance(model, dict) and isinstance(model.get("path"), str) else model
        if not isinstance(path, str):
            raise _Refused("a model is not a name or path; write one")
        if path in self.library.names:
            return path
        for entry in self.library.manifest.sources:
            if _same_folder(path, self.library.path_of(entry)):
                return entry.name
        raise _Refused(f"model {_shown(path)} is not in the library; add it with `smatter library add`")

    def _check_dtype(self) -> None:
        wanted = self.config.get("out_dtype") or self.config.get("dtype")
        ours = {spec.dtype for spec in self.library.specs.values() if spec.is_floating}
        if wanted is not None and (not isinstance(wanted, str) or {DTYPES.get(wanted)} != ours):
            raise _Refused(
                f"dtype {_shown(wanted)} is not the base's ({', '.join(sorted(ours))}); drop it, or convert the base"
            )


def _mapping(value: Any, allowed: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Refused(f"{what} is not a mapping; write key: value")
    unknown = sorted(str(key) for key in value if key not in allowed)
    if unknown:
        raise _Refused(
            f"{what} has {_shown(unknown[0])}, which has no counterpart in a mixture; run it with mergekit itself"
        )
    return value


def _resolve(setting: Any, tensor: str, name: str) -> float:
    """The first entry of a filter list whose filter is part of the tensor's name, as mergekit resolves it."""
    entries = setting if isinstance(setting, list) else [setting]
    for entry in entries:
        if not isinstance(entry, dict):
            if isinstance(setting, list):
                raise _Refused(f"the weights of {name!r} are a gradient over layers; give one per module instead")
            return _number(entry, f"the weight of {name!r}")
        wanted = _mapping(entry, {"filter", "value"}, f"a weight of {name!r}").get("filter")
        if wanted in (None, "*") or (isinstance(wanted, str) and wanted in tensor):
            return _number(entry.get("value"), f"the weight of {name!r}")
    raise _Refused(f"no weight of {name!r} applies to {tensor!r}; add an entry without a filter")


def _number(value: Any, what: str) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) < LARGEST:  # also rejects NaN
        raise _Refused(f"{what}, {_shown(value)}, is not a number below {LARGEST:g}; write one")
    return number


def _shown(value: object) -> str:
    """A value for a message; by its type alone where aliases or digits could make it endless."""
    return repr(value)[:200] if isinstance(value, str | float | bool | None) else f"of type {type(value).__name__}"


def _same_folder(written: str, folder: Path) -> bool:
    try:
        return Path(written).expanduser().resolve() == folder.resolve()
    except (OSError, RuntimeError, ValueError):  # no such home, links in a circle, a NUL
        return False


def _on_simplex(row: dict[str, float]) -> bool:
    return min(row.values()) >= 0 and abs(math.fsum(row.values()) - 1) <= 1e-6


def write_merge(library: Library, what: Recipe | Mixture) -> str:
    """A mixture as a mergekit `linear` configuration; a residual or a stored source has no counterpart there."""
    if isinstance(what, Recipe):
        what.check_is_one()
    if isinstance(what, Recipe) and (what.residual or (what.experts and not what.experts.is_idle)):
        raise InvalidRecipe("mergekit knows no residuals and no experts; export the recipe to a folder instead")
    mixture = what.mixture_in(library.manifest.digests) if isinstance(what, Recipe) else what
    library.plan(mixture)
    models = []
    for name in mixture.sources:
        entry = library.manifest.source(name)
        if entry.form != "whole":
            raise InvalidRecipe(f"source {name!r} is stored as {entry.form}, which mergekit cannot read; add it whole")
        source = library.open_source(name)
        if isinstance(source, Fitted) and not source.is_as_saved:
            raise InvalidRecipe(
                f"source {name!r} has other names than the base, or tensors of the base, which mergekit does not know: "
                "export to a folder instead"
            )
        models.append({
            "model": str(library.path_of(entry).resolve()),
            "parameters": {"weight": _weights(library, mixture, name)},
        })  # fmt: skip
    config: dict[str, Any] = {"merge_method": "linear", "models": models, "parameters": {"normalize": False}}
    dtypes = {spec.dtype for spec in library.specs.values() if spec.is_floating}
    if len(dtypes) == 1:  # accumulate in float32 as Smatter does, then round to the base's dtype
        named = {code: name for name, code in DTYPES.items()}
        config |= {"dtype": "float32", "out_dtype": named[dtypes.pop()]}
    return yaml.safe_dump(config, sort_keys=False)


def _weights(library: Library, mixture: Mixture, name: str) -> Any:
    if not mixture.modules:
        return mixture.coefficient("", name)
    tensors = sorted(library.specs, key=len, reverse=True)  # longest first: a filter is a substring of names
    return [
        {"filter": tensor, "value": mixture.coefficient(library.partition.module_of(tensor), name)}
        for tensor in tensors
        if library.specs[tensor].is_floating
    ]
