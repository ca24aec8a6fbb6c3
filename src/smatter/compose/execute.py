"""Carrying out a plan block by block, from any reader into any sink: the one arithmetic of composing.

A weighted sum has a fixed order and fixed rounding, whoever computes it: numba's compiled pass, or numpy and torch.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from smatter.compose.plan import Plan, Step
from smatter.compose.residual import Elements
from smatter.errors import InvalidRecipe, InvalidWeights
from smatter.files.reading import NUMPY_DTYPES, Array, all_finite, as_torch
from smatter.records import Progress, TensorSpec, silent

if TYPE_CHECKING:
    import torch

BLOCK = 1 << 20
"""Elements per block: large enough that Python's share vanishes, small enough to stay in the last cache."""

ALIGNMENT = 64
"""Bytes, of the tensors in an arena."""


class Reader(Protocol):
    """Where blocks of sources come from."""

    def spec(self, source: str, tensor: str) -> TensorSpec:
        """Dtype and shape of a tensor as `read` gives it."""
        ...

    def read(self, source: str, tensor: str, start: int, stop: int) -> Array:
        """The elements start..stop of the flattened tensor; flat, contiguous, not to be written to."""
        ...


class Sink(Protocol):
    """Where blocks of the result go."""

    def buffer(self, step: Step, start: int, stop: int) -> Array:
        """A flat array to compute the elements start..stop of a step into."""
        ...

    def done(self, step: Step, start: int, stop: int, block: Array) -> None:
        """The block in this buffer is finished."""
        ...


def execute(plan: Plan, reader: Reader, sink: Sink, threads: int = 1, progress: Progress = silent) -> None:
    """Compute every step of a plan; each block on one thread, independent blocks on several if asked.

    Args:
        plan: what to compute.
        reader: gives blocks of the sources.
        sink: takes blocks of the result, in any order when `threads` > 1.
        threads: number of workers; the result does not depend on it.
        progress: told the bytes finished, from the caller's thread.
    """

    blocks = ((step, *block) for step in plan.steps for block in ranges(step.spec.n_elements))
    if threads == 1:
        for step, start, stop in blocks:
            progress(compute(plan, reader, sink, step=step, start=start, stop=stop))
        return
    with ThreadPoolExecutor(threads) as pool:
        submitted = (pool.submit(compute, plan, reader, sink, *block) for block in blocks)
        for finished in _in_flight(submitted, 4 * threads):
            progress(finished)


def compute(plan: Plan, reader: Reader, sink: Sink, step: Step, start: int, stop: int) -> int:
    """Compute the elements start..stop of one step into a buffer of the sink; the bytes of the result."""
    out = sink.buffer(step, start, stop)
    sources = [reader.read(term.source, step.tensor, start, stop) for term in step.terms]
    if step.spec.is_floating:
        dtypes = [reader.spec(term.source, step.tensor).dtype for term in step.terms]
        weights = [term.weight for term in step.terms]
        if step.tensor in plan.residual.dense:
            correction = plan.residual.dense[step.tensor].reshape(-1)[start:stop]
            sources, dtypes, weights = [*sources, correction], [*dtypes, "F32"], [*weights, 1.0]
        blend(sources, dtypes, weights, out, step.spec.dtype)
        if step.tensor in plan.residual.elements:
            _correct(
                plan.residual.elements[step.tensor],
                sources,
                dtypes,
                weights=weights,
                start=start,
                stop=stop,
                out=out,
                out_dtype=step.spec.dtype,
            )
        if plan.may_overflow and not all_finite(out, step.spec.dtype):
            raise InvalidWeights(
                f"{step.tensor!r} leaves the range of {step.spec.dtype}; use smaller coefficients or corrections"
            )
    else:
        np.copyto(out, sources[0])
    sink.done(step, start, stop, out)
    return out.nbytes


def _correct(
    entry: Elements,
    sources: list[Array],
    dtypes: list[str],
    weights: list[float],
    start: int,
    stop: int,
    out: Array,
    out_dtype: str,
) -> None:
    """Recompute the corrected elements of a block with their correction as one more term, before rounding."""
    first, last = np.searchsorted(entry.indices, [start, stop])
    if first == last:
        return
    where = entry.indices[first:last] - start
    gathered = [np.ascontiguousarray(source[where]) for source in sources]
    corrected = np.empty(where.size, NUMPY_DTYPES[out_dtype])
    blend([*gathered, entry.values[first:last]], [*dtypes, "F32"], [*weights, 1.0], corrected, out_dtype)
    out[where] = corrected


def ranges(n_elements: int, size: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut n_elements into (start, stop) of `size` elements, `BLOCK` by default; the last may be shorter.

    >>> list(ranges(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    step = size or BLOCK
    for start in range(0, n_elements, step):
        yield start, min(start + step, n_elements)


def _in_flight(futures: Iterable[Future[int]], limit: int) -> Iterator[int]:
    """Results in order, with at most `limit` blocks submitted at a time."""
    source = iter(futures)
    waiting = list(islice(source, limit))
    while waiting:
        yield waiting.pop(0).result()
        waiting.extend(islice(source, 1))


class Blend(Protocol):
    """How a weighted sum is called, whoever computes it."""

    def __call__(
        self,
        sources: Sequence[Array],
        dtypes: Sequence[str],
        weights: Sequence[float],
        out: Array,
        out_dtype: str,
    ) -> None:
        """Write the weighted sum to `out`."""


def blend(
    sources: Sequence[Array], dtypes: Sequence[str], weights: Sequence[float], out: Array, out_dtype: str
) -> None:
    """Write sum_r weights[r] * sources[r] to `out`, accumulated in float32 in the order given, rounded once.

    Uses the compiled pass where numba is installed, torch elsewhere; both give the same bits. float64 arrays
    always go through torch and accumulate in float64.

    Args:
        sources: flat contiguous arrays of equal size, at least one.
        dtypes: safetensors dtype of each source.
        weights: float32 values.
        out: flat contiguous array that receives the result; no part of a source.
        out_dtype: safetensors dtype of the result.
    """
    _kernel("F64" not in (*dtypes, out_dtype))(sources, dtypes, weights, out, out_dtype)


def as_float32(block: Array, dtype: str) -> NDArray[np.float32]:
    """A flat block as float32 values; a view where it is float32 already."""
    if dtype == "F32":
        return block
    out = np.empty(block.size, np.float32)
    blend([block], [dtype], [1.0], out, "F32")
    return out


@cache
def _kernel(compiled: bool) -> Blend:
    if compiled:
        try:
            from smatter.compose import fused
        except (ImportError, RuntimeError):  # no numba, or one that finds no place for its cache
            pass
        else:
            return fused.blend_fused
    from smatter.compose import blocked

    return blocked.blend_blocked


class Arena:
    """Memory for every tensor of a network, allocated once; each `fill` overwrites the last.

    Fresh pages cost several times what reused ones do, so the second task in an arena composes faster than
    the first. Tensors from `tensors()` are views: they change with the next `fill`.
    """

    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self.specs = dict(specs)
        offsets, end = {}, 0
        for name, spec in self.specs.items():
            offsets[name] = end
            end += -(-spec.n_bytes // ALIGNMENT) * ALIGNMENT
        memory = np.empty(end + ALIGNMENT, np.uint8)
        shift = -memory.ctypes.data % ALIGNMENT
        self._arrays: dict[str, Array] = {
            name: memory[shift + offset : shift + offset + self.specs[name].n_bytes].view(
                NUMPY_DTYPES[self.specs[name].dtype]
            )
            for name, offset in offsets.items()
        }

    def fill(self, plan: Plan, reader: Reader, threads: int = 1, progress: Progress = silent) -> "Arena":
        """Compute a plan into this arena; returns the arena."""
        if plan.specs != self.specs:
            raise InvalidRecipe("this arena was made for another network: make one from the plan's own specs")
        execute(plan, reader, self, threads, progress)
        return self

    def array(self, name: str) -> Array:
        """One tensor as a flat numpy view (bfloat16 as bits)."""
        return self._arrays[name]

    def tensors(self) -> "dict[str, torch.Tensor]":
        """All tensors as torch views, by name on disk."""
        return {name: as_torch(self._arrays[name], spec) for name, spec in self.specs.items()}

    def buffer(self, step: Step, start: int, stop: int) -> Array:
        """The arena's own memory: blocks are computed in place."""
        return self._arrays[step.tensor][start:stop]

    def done(self, step: Step, start: int, stop: int, block: Array) -> None:
        """Nothing to move."""
