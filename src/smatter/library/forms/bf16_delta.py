"""Delta to the base rounded to bfloat16: half the size of float32, off by 2^-9 of the delta at most."""

from collections.abc import Callable

import numpy as np

from smatter.compose.execute import blend
from smatter.files.reading import NUMPY_DTYPES, Array
from smatter.library.forms import PartReader, Parts
from smatter.records import TensorSpec


class Bf16Delta:
    """Lossy; relative to the delta, not to the weight, so small changes survive."""

    exact = False

    def encode(self, spec: TensorSpec, source: Array, base: Array) -> Parts:
        """One part `delta`, bfloat16, the tensor's shape."""
        delta = np.empty(spec.n_elements, np.uint16)
        blend([source, base], [spec.dtype, spec.dtype], [1.0, -1.0], delta, "BF16")
        return {"delta": (TensorSpec("BF16", spec.shape), delta)}

    def decode(self, spec: TensorSpec, parts: PartReader, base: Callable[[], Array], start: int, stop: int) -> Array:
        """Base plus delta, rounded to the tensor's dtype."""
        delta = parts.part("delta", "BF16", spec.shape).reshape(-1)[start:stop]
        out = np.empty(stop - start, NUMPY_DTYPES[spec.dtype])
        blend([base(), delta], [spec.dtype, "BF16"], [1.0, 1.0], out, spec.dtype)
        return out
