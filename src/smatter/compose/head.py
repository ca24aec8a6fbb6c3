"""How a task's classes are told apart, as a recipe holds it: by coefficients, or by the sources' own classifier."""

import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from smatter.errors import InvalidRecipe
from smatter.settings import HeadName

MAX_CLASSES = 50_000
MAX_CLASS_CHARACTERS = 1_000
HOSTILE = {"Cc": "a control character", "Cs": "half a character", "Zl": "a line break", "Zp": "a line break"}
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that make what follows read in another direction: a name could pass for another."""


@dataclass(frozen=True)
class ClassHead:
    """Scores of classes, (W x / |x| + b) / temperature, for features x; probabilities are their softmax.

    Args:
        kind: which head it is; `linear`, the sources' own classifier, has no coefficients here.
        classes: the row of W and b of each class, by name; predictions have the classes in this order.
        weight: W, (n_classes, n_features), float32.
        bias: b, (n_classes,), float32; zero without one.
        temperature: divides the scores.
        length: mean |x| of the examples that it was fitted to; for programs whose classifiers do not divide by |x|.
        sizes: how many examples each row's class had; empty where that is not known.
    """

    kind: HeadName
    classes: Mapping[str, int]
    weight: NDArray[np.float32] | None = None
    bias: NDArray[np.float32] | None = None
    temperature: float = 1.0
    length: float = 1.0
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(HeadName):
            raise InvalidRecipe(f"unknown head {str(self.kind)[:80]!r}: use {', '.join(get_args(HeadName))}")
        if not 2 <= len(self.classes) <= MAX_CLASSES:
            raise InvalidRecipe(f"its head has {len(self.classes)} classes, not 2 to {MAX_CLASSES}")
        if mistake := wrong_class_name(self.classes):
            raise InvalidRecipe(f"its head has {mistake}")
        rows = list(self.classes.values())
        if not all(type(row) is int for row in rows) or sorted(rows) != list(range(len(rows))):
            raise InvalidRecipe("the classes of its head do not each have one of its rows")
        if self.kind == "linear" and rows != sorted(rows):
            raise InvalidRecipe("the sources' own classifier has no rows here: number its classes in their order")
        if (self.weight is None) != (self.kind == "linear") or (self.weight is None and self.bias is not None):
            raise InvalidRecipe(f"its head is {self.kind} and does {'' if self.weight is None else 'not '}lack weights")
        for values, shape in ((self.weight, (len(self.classes), -1)), (self.bias, (len(self.classes),))):
            if values is None:
                continue
            if values.dtype != np.float32 or len(values.shape) != len(shape) or len(values) != shape[0]:
                raise InvalidRecipe(
                    f"its head has {len(self.classes)} classes and {values.dtype} coefficients {list(values.shape)}"
                )
            if not values.size or not np.isfinite(values).all():
                raise InvalidRecipe("its head's coefficients are none, NaN or Inf")
        if not (0 < self.temperature < math.inf and 0 < self.length < math.inf):
            raise InvalidRecipe("its head's temperature and length must be positive numbers")

        if self.sizes and (len(self.sizes) != len(self.classes) or min(self.sizes) < 1):
            raise InvalidRecipe("its head does not tell how many examples each class had, one or more")

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of predictions."""
        return tuple(self.classes)

    def check_fits(self, n_features: int) -> None:
        """Refuse a network whose features it is not for."""
        if self.weight is not None and self.weight.shape[1] != n_features:
            raise InvalidRecipe(
                f"the recipe's head is for {self.weight.shape[1]} features and the network has {n_features}: "
                "make the recipe again"
            )


def wrong_class_name(names: Iterable[str]) -> str | None:
    """What is wrong with the first name that differs from another in what cannot be seen, or would harm who prints it.

    Letters of different scripts that look alike are different.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not name.strip() or len(name) > MAX_CLASS_CHARACTERS:
            return f"a class name of {len(name)} characters: use 1 to {MAX_CLASS_CHARACTERS}"
        for character in name:
            if (kind := HOSTILE.get(unicodedata.category(character))) or character in TURNING:
                return f"a class name with {kind or 'a change of direction'}, {name[:80]!a}: rename it"
        visible = (character for character in name if unicodedata.category(character) != "Cf")
        plain = unicodedata.normalize("NFC", "".join(visible)).strip()
        if not plain:
            return f"a class name that cannot be seen, {name[:80]!a}: rename it"
        if plain in seen:
            return f"two classes that read alike, {seen[plain][:80]!a} and {name[:80]!a}: rename one"
        seen[plain] = name
    return None
