"""A recipe's head as the classifier of an export, where transformers has one that takes the same features."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from smatter.backbones.linear_classifiers import LINEAR_CLASSIFIERS, LinearClassifier, width_of
from smatter.compose.execute import blend
from smatter.compose.head import ClassHead
from smatter.errors import InvalidRecipe
from smatter.files.reading import NUMPY_DTYPES, Array, all_finite
from smatter.records import TensorSpec


@dataclass(frozen=True)
class ExportHead:
    """What an export has in the place of its sources' head.

    Args:
        family: which classifier it is.
        names: tensors of the backbone by name on disk, and their names in the export.
        left_out: names of tensors of other heads, which a classifier has no place for.
        specs: the classifier's tensors.
        arrays: their values.
        config: content of config.json.
    """

    family: LinearClassifier
    names: Mapping[str, str]
    left_out: tuple[str, ...]
    specs: Mapping[str, TensorSpec]
    arrays: Mapping[str, Array]
    config: Mapping[str, Any]

    @property
    def adds_prefix(self) -> bool:
        """Whether the backbone's tensors have longer names than those of the sources."""
        return any(name != other for name, other in self.names.items())


def export_head(
    head: ClassHead | None, config: Mapping[str, Any], specs: Mapping[str, TensorSpec]
) -> ExportHead | None:
    """The classifier that stands in for a head; None where there is no such classifier or no need of it.

    A classifier does not divide by the length of a feature, so the mean length of the examples is in its weights.

    Args:
        head: of the recipe; the sources' own classifier needs no other.
        config: the base's config.json.
        specs: the composed tensors, by name on disk.
    """
    family = LINEAR_CLASSIFIERS.get(str(config.get("model_type")))
    names = family.backbone_names(specs) if family else None
    if head is None or head.weight is None or family is None or names is None:
        return None
    width = width_of(config)
    head.check_fits(head.weight.shape[1] if width is None else width)
    rows = list(head.classes.values())
    weight = head.weight[rows].astype(np.float64) / head.temperature / head.length
    bias = np.zeros(len(rows)) if head.bias is None else head.bias[rows].astype(np.float64) / head.temperature
    dtype = _main_dtype(specs)
    arrays = {name: _rounded(values, dtype) for name, values in zip(family.tensors, (weight, bias), strict=True)}
    shapes = {name: TensorSpec(dtype, values.shape) for name, values in zip(arrays, (weight, bias), strict=True)}
    labels = dict(enumerate(head.class_names))
    own = {
        "architectures": [family.architecture],
        "id2label": {str(row): name for row, name in labels.items()},
        "label2id": {name: row for row, name in labels.items()},
        "problem_type": "single_label_classification",
        **family.settings,
    }
    return ExportHead(
        family,
        names,
        left_out=tuple(name for name in specs if name not in names and name not in family.tensors),
        specs=shapes,
        arrays=arrays,
        config={key: value for key, value in config.items() if key != "num_labels"} | own,  # id2label says how many
    )


def _main_dtype(specs: Mapping[str, TensorSpec]) -> str:
    """The dtype that most of the network's parameters have."""
    sizes: Counter[str] = Counter()
    for spec in specs.values():
        sizes[spec.dtype] += spec.n_elements if spec.is_floating else 0
    return sizes.most_common(1)[0][0]


def _rounded(values: Array, dtype: str) -> Array:
    """Flat, in a dtype."""
    with np.errstate(over="ignore", under="ignore"):
        if dtype == "BF16":
            rounded = np.empty(values.size, np.uint16)
            blend([values.reshape(-1).astype(np.float32)], ["F32"], [1.0], rounded, dtype)
        else:
            rounded = values.reshape(-1).astype(NUMPY_DTYPES[dtype])
    if not all_finite(rounded, dtype) or (values.any() and not rounded.any()):
        raise InvalidRecipe(
            f"the recipe's head leaves the range of {dtype}, the network's dtype: make the recipe again"
        )
    return rounded
