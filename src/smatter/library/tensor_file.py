"""A safetensors file that is written block by block: what an export is composed into."""

import errno
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from smatter.compose.plan import Step
from smatter.files.reading import NUMPY_DTYPES, Array
from smatter.files.writing import encode_header
from smatter.records import ITEM_SIZES, TensorSpec

SYNC_BYTES = 64 << 20
"""How much is written before the disk is told to keep it."""


class TensorFile:
    """A safetensors file of known layout, written block by block in any order.

    The header comes first and the space is reserved at once, so that a full disk is noticed before any work.

    Args:
        path: where to; must not exist.
        specs: what it will hold, in this order.
        metadata: for its header.
        names: tensors of a plan that have another name here.
    """

    def __init__(
        self,
        path: Path,
        specs: Mapping[str, TensorSpec],
        metadata: dict[str, str],
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._scratch, self._names = threading.local(), names or {}
        self._pool, self._syncs, self._unsynced = ThreadPoolExecutor(1), list[Future[None]](), 0
        header = encode_header(specs.items(), metadata)
        self._offsets, end = {}, len(header)
        for name, spec in specs.items():
            self._offsets[name] = end
            end += spec.n_bytes
        self._descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        try:
            _reserve(self._descriptor, end)
            _write_all(self._descriptor, memoryview(header), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, name: str, start: int, block: Array) -> None:
        """Write a flat block of a tensor's elements, beginning with element `start`."""
        _write_all(self._descriptor, block.data.cast("B"), self._offsets[name] + start * block.itemsize)
        self._unsynced += block.nbytes
        if self._unsynced >= SYNC_BYTES:  # let the disk work while the next blocks are computed
            self._unsynced = 0
            self._syncs.append(self._pool.submit(os.fsync, self._descriptor))

    def buffer(self, step: Step, start: int, stop: int) -> Array:
        """Memory for one block, the same for every block of a thread; as a sink of `compose.execute`."""
        n_bytes = (stop - start) * ITEM_SIZES[step.spec.dtype]
        memory: Array | None = getattr(self._scratch, "memory", None)
        if memory is None or memory.size < n_bytes:
            memory = self._scratch.memory = np.empty(n_bytes, np.uint8)
        return memory[:n_bytes].view(NUMPY_DTYPES[step.spec.dtype])

    def done(self, step: Step, start: int, _stop: int, block: Array) -> None:
        """Write a finished block; as a sink of `compose.execute`."""
        self.write(self._names.get(step.tensor, step.tensor), start, block)

    def close(self) -> None:
        """Make the file durable."""
        try:
            self._pool.shutdown()
            for sync in self._syncs:
                sync.result()
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def __enter__(self) -> "TensorFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reserve(descriptor: int, size: int) -> None:
    try:
        os.posix_fallocate(descriptor, 0, size)
    except (AttributeError, OSError) as error:  # macOS has no such call, some file systems no such thing
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(descriptor, size)


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written
