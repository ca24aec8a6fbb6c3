"""Classifiers of transformers that are one linear layer on the features of `Network`: a task's head can be theirs.

Most are not: those of ViT and BERT look at the class token, those of decoders at the last one. To add a family, add its
line here and its settings to tests/library/test_export_heads.py, which holds each line against transformers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PIPELINES = {"ForImageClassification": "image-classification", "ForSequenceClassification": "text-classification"}
"""What the Hugging Face hub calls the task of a model, by the end of its class's name."""

_ROOTS = frozenset({"embed_tokens", "embedder", "embeddings", "encoder", "layernorm", "layers", "norm"})
"""How names of the backbones' tensors begin where they have no prefix."""


@dataclass(frozen=True)
class LinearClassifier:
    """A classifier as transformers knows it.

    Args:
        architecture: class of the whole model.
        prefix: of the backbone's tensors on disk.
        layer: name of the linear layer.
        settings: what config.json must say, so that the layer gets our features.
    """

    architecture: str
    prefix: str
    layer: str = "classifier"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def tensors(self) -> tuple[str, str]:
        """Names of the layer's weight and bias."""
        return f"{self.layer}.weight", f"{self.layer}.bias"

    def backbone_names(self, tensors: Iterable[str]) -> dict[str, str] | None:
        """The backbone's tensors and their names with prefix; None where they are named as no model names them.

        Tensors of heads are not among them: beside a prefix, all that lacks it; without one, the classifier's.
        """
        prefix, names = f"{self.prefix}.", [name for name in tensors if name not in self.tensors]
        bare = [name for name in names if not name.startswith(prefix)]
        if any(name.partition(".")[0] in _ROOTS for name in bare):
            return {name: f"{prefix}{name}" for name in bare} if bare == names else None
        return {name: name for name in names if name.startswith(prefix)} or None


LINEAR_CLASSIFIERS = {
    "bit": LinearClassifier("BitForImageClassification", "bit", "classifier.1"),
    "convnext": LinearClassifier("ConvNextForImageClassification", "convnext"),
    "convnextv2": LinearClassifier("ConvNextV2ForImageClassification", "convnextv2"),
    "donut-swin": LinearClassifier("DonutSwinForImageClassification", "donut"),
    "focalnet": LinearClassifier("FocalNetForImageClassification", "focalnet"),
    "ijepa": LinearClassifier("IJepaForImageClassification", "ijepa"),
    "pvt_v2": LinearClassifier("PvtV2ForImageClassification", "pvt_v2"),
    "segformer": LinearClassifier("SegformerForImageClassification", "segformer"),
    "swin": LinearClassifier("SwinForImageClassification", "swin"),
    "swinv2": LinearClassifier("Swinv2ForImageClassification", "swinv2"),
    "ultrabert": LinearClassifier(
        "UltrabertForSequenceClassification", "ultrabert", settings={"classifier_pooling": "mean"}
    ),
}
"""By the `model_type` of config.json."""


def pipeline_of(architecture: str) -> tuple[str, str] | None:
    """The Auto class that loads a classifier, and the hub's name of its task; None where the class is none.

    >>> pipeline_of("SwinForImageClassification")
    ('AutoModelForImageClassification', 'image-classification')
    """
    for ending, pipeline in PIPELINES.items():
        if architecture.endswith(ending):
            return f"AutoModel{ending}", pipeline
    return None


def width_of(config: Mapping[str, Any]) -> int | None:
    """Numbers of one vector of features of these families, as far as config.json tells."""
    first, depths, sizes = (config.get(key) for key in ("embed_dim", "depths", "hidden_sizes"))
    if isinstance(first, int) and isinstance(depths, list) and depths:  # each stage doubles the width
        return int(first) << (len(depths) - 1)
    width = sizes[-1] if isinstance(sizes, list) and sizes else config.get("hidden_size")
    return width if isinstance(width, int) else None
