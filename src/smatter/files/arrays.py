"""Arrays with a safetensors dtype: numpy views of raw bytes, and torch views of those without a copy."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from smatter.records import FLOATING, TensorSpec

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]

NUMPY_DTYPES: dict[str, DTypeLike] = {
    "F64": np.float64, "F32": np.float32, "BF16": np.uint16, "F16": np.float16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
"""How each dtype lies in a numpy array; bfloat16 as its bit pattern."""


def all_finite(block: Array, dtype: str) -> bool:
    """Whether a block has neither NaN nor Inf; integers never have."""
    if dtype == "BF16":
        return not bool(((block & np.uint16(0x7F80)) == np.uint16(0x7F80)).any())
    if dtype in FLOATING:
        return bool(np.isfinite(block).all())
    return True


def as_torch(array: Array, spec: TensorSpec) -> "torch.Tensor":
    """A torch tensor on the same memory, with the dtype and shape of `spec`.

    The array may be a read-only view of a mapped file: torch knows no read-only tensors, so writing to the
    result of such a view is the caller's mistake (the mapping is private; the file stays as it is).
    """
    import torch

    flat = array.reshape(-1)
    if not flat.flags.writeable:
        flat = flat.view()
        flat.flags.writeable = True
    tensor = torch.from_numpy(flat)
    if spec.dtype == "BF16":
        tensor = tensor.view(torch.bfloat16)
    return tensor.reshape(spec.shape)
