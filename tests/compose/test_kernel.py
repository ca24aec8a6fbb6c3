"""The weighted sum: both implementations against float64 and against each other."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from smatter.compose.blocked import blend_blocked
from smatter.compose.execute import blend
from smatter.compose.fused import blend_fused
from smatter.files.reading import NUMPY_DTYPES, Array, as_torch
from smatter.records import TensorSpec

TORCH = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
SHORT = ("F32", "BF16", "F16")


def as_array(tensor: torch.Tensor) -> Array:
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def random_arrays(dtypes: list[str], size: int, seed: int) -> list[Array]:
    generator = torch.Generator().manual_seed(seed)
    return [as_array(torch.randn(size, generator=generator).to(TORCH[dtype])) for dtype in dtypes]


def run(implementation: Any, sources: list[Array], dtypes: list[str], weights: list[float], out_dtype: str) -> Array:
    out = np.zeros(sources[0].size, NUMPY_DTYPES[out_dtype])
    implementation(sources, dtypes, weights, out, out_dtype)
    return out


@settings(max_examples=60, deadline=None)
@given(
    dtypes=st.lists(st.sampled_from(SHORT), min_size=1, max_size=6),
    out_dtype=st.sampled_from(SHORT),
    size=st.sampled_from([1, 7, 2047, 2048, 2049, 70_001]),
    seed=st.integers(0, 2**20),
)
def test_compiled_and_blocked_give_the_same_bits(dtypes: list[str], out_dtype: str, size: int, seed: int) -> None:
    sources = random_arrays(dtypes, size, seed)
    weights = np.random.default_rng(seed).normal(size=len(dtypes)).astype(np.float32).tolist()
    compiled, reference = (run(kernel, sources, dtypes, weights, out_dtype) for kernel in (blend_fused, blend_blocked))
    assert compiled.tobytes() == reference.tobytes()


@pytest.mark.parametrize("out_dtype", SHORT)
def test_every_bit_pattern_is_rounded_as_torch_rounds_it(out_dtype: str) -> None:
    # All exponents and signs with mantissas around every rounding boundary, infinities and NaN included.
    high = np.arange(2**16, dtype=np.uint32) << np.uint32(16)
    low = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = (high[:, None] | low).reshape(-1)
    values = bits.view(np.float32)
    compiled, reference = (run(kernel, [values], ["F32"], [1.0], out_dtype) for kernel in (blend_fused, blend_blocked))
    spec = TensorSpec(out_dtype, values.shape)
    assert torch.equal(as_torch(compiled, spec).isnan(), as_torch(reference, spec).isnan())
    numbers = ~np.isnan(values)
    assert compiled[numbers].tobytes() == reference[numbers].tobytes()


@pytest.mark.parametrize("dtype", SHORT)
def test_weight_one_returns_every_bit_pattern(dtype: str) -> None:
    sixteen = np.arange(2**16, dtype=np.uint32)
    bits = sixteen << np.uint32(16) if dtype == "F32" else sixteen.astype(np.uint16)
    values = bits.view(NUMPY_DTYPES[dtype])
    finite = as_torch(values, TensorSpec(dtype, values.shape)).isfinite().numpy()
    for kernel in (blend_fused, blend_blocked):
        assert run(kernel, [values[finite]], [dtype], [1.0], dtype).tobytes() == values[finite].tobytes()


@pytest.mark.parametrize(("dtype", "tolerance"), [("F32", 3e-7), ("BF16", 4e-3), ("F16", 5e-4), ("F64", 1e-15)])
def test_agrees_with_float64_arithmetic(dtype: str, tolerance: float) -> None:
    sources = random_arrays([dtype] * 5, 10_000, 3)
    weights = np.float32([0.1, 0.2, 0.3, 0.15, 0.25]).tolist()
    out = np.zeros(10_000, NUMPY_DTYPES[dtype])
    blend(sources, [dtype] * 5, weights, out, dtype)
    spec = TensorSpec(dtype, out.shape)
    exact = sum(weight * as_torch(source, spec).double() for source, weight in zip(sources, weights, strict=True))
    assert torch.allclose(as_torch(out, spec).double(), exact, rtol=tolerance, atol=tolerance)


def test_no_multiply_add_is_fused() -> None:
    # 1 + 2^-12 squared is 1 + 2^-11 + 2^-24: the last term survives only in a fused multiply-add with -1.
    value = np.full(4096, 1 + 2**-12, np.float32)
    for kernel in (blend_fused, blend_blocked):
        result = run(kernel, [np.ones_like(value), value], ["F32", "F32"], [-1.0, float(value[0])], "F32")
        assert (result == np.float32(2**-11)).all()
