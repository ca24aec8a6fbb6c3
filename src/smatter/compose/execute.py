"""Carrying out a plan block by block, from any reader into any sink."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Protocol

import numpy as np

from smatter.compose.kernel import blend
from smatter.compose.plan import Plan, Step
from smatter.compose.residual import Elements
from smatter.errors import InvalidWeights
from smatter.files.arrays import NUMPY_DTYPES, Array, all_finite
from smatter.records import Progress, TensorSpec, silent

BLOCK = 1 << 20
"""Elements per block: large enough that Python's share vanishes, small enough to stay in the last cache."""


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

    def run(step: Step, start: int, stop: int) -> int:
        out = sink.buffer(step, start, stop)
        compute(plan, reader, step, start, stop, out)
        sink.done(step, start, stop, out)
        return out.nbytes

    blocks = ((step, *block) for step in plan.steps for block in ranges(step.spec.n_elements))
    if threads == 1:
        for block in blocks:
            finished = run(*block)
            progress(finished)
        return
    with ThreadPoolExecutor(threads) as pool:
        for finished in _in_flight((pool.submit(run, *block) for block in blocks), 4 * threads):
            progress(finished)


def compute(plan: Plan, reader: Reader, step: Step, start: int, stop: int, out: Array) -> None:
    """Compute the elements start..stop of one step into `out`."""
    sources = [reader.read(term.source, step.tensor, start, stop) for term in step.terms]
    if not step.spec.is_floating:
        np.copyto(out, sources[0])
        return
    dtypes = [reader.spec(term.source, step.tensor).dtype for term in step.terms]
    weights = [term.weight for term in step.terms]
    if step.tensor in plan.residual.dense:
        correction = plan.residual.dense[step.tensor].reshape(-1)[start:stop]
        sources, dtypes, weights = [*sources, correction], [*dtypes, "F32"], [*weights, 1.0]
    blend(sources, dtypes, weights, out, step.spec.dtype)
    if step.tensor in plan.residual.elements:
        _correct(plan.residual.elements[step.tensor], sources, dtypes, weights, start, stop, out, step.spec.dtype)
    if plan.may_overflow and not all_finite(out, step.spec.dtype):
        raise InvalidWeights(
            f"{step.tensor!r} leaves the range of {step.spec.dtype}; use smaller coefficients or corrections"
        )


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
