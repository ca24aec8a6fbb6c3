"""Writing that a power cut or `kill -9` cannot leave half done: the old state or the new, never a mixture."""

import ctypes
import errno
import glob
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from smatter.compose.arrays import NUMPY_DTYPES, Array
from smatter.compose.plan import Step
from smatter.errors import AlreadyExists, CannotWrite, NotFound, SmatterError
from smatter.library.headers import encode_header
from smatter.records import ITEM_SIZES, TensorSpec


def write_file(path: Path, *chunks: bytes) -> None:
    """Replace a file's content: temporary file beside it, fsync, rename, fsync of the folder."""
    with _partial(path) as temporary:
        with temporary.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    _settle(path)


@contextmanager
def new_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Fill a folder that appears under `path` all at once when the block ends without an error.

    Args:
        path: where the folder will be; must not exist, or be empty, unless `replace`.
        replace: exchange an existing folder for the new one in a single step, then delete the old one.
    """
    check_free(path, replace)
    with _partial(path) as temporary:
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            sync_folder(file)
        sync_folder(temporary)
        if replace and path.is_dir() and any(path.iterdir()):
            _exchange(temporary, path)
        else:
            temporary.replace(path)
        _settle(path)


def check_free(path: Path, replace: bool = False) -> None:
    """Refuse an output that would overwrite something, before any work is spent on it."""
    if path.is_dir():
        if any(path.iterdir()) and not replace:
            raise AlreadyExists(f"{path} already exists and is not empty; choose another name, or say --replace")
    elif path.exists() or path.is_symlink():
        raise AlreadyExists(f"{path} already exists and is not a folder; choose another name")
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} does not exist; create it first")


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; what is left under it afterwards, by this or a killed process, is deleted."""
    if path.name in ("", ".."):
        raise NotFound(f"{path} names nothing new; give the name of a file or folder to write")
    stem = f".{path.name}.partial-"
    try:
        for other in path.parent.glob(f"{glob.escape(stem)}*"):
            if other not in _in_use and not _alive(other.name.removeprefix(stem)):
                _delete(other)
    except OSError:
        pass  # a leftover that cannot be deleted is no reason to refuse new work
    temporary = path.with_name(f"{stem}{os.getpid()}-{secrets.token_hex(4)}")
    _in_use.add(temporary)
    try:
        yield temporary
    except OSError as error:
        about_source = error.filename is not None and temporary.name not in str(error.filename)
        if isinstance(error, SmatterError) or about_source:
            raise
        raise _explained(error, path) from error
    finally:
        _delete(temporary)
        _in_use.discard(temporary)


_in_use: set[Path] = set()
"""Temporary names of this process; any other with its number is of a killed one that had the same."""


def _alive(suffix: str) -> bool:
    """Whether the process that chose a temporary name, other than this one, still runs."""
    process = suffix.partition("-")[0]
    if not process.isdecimal() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except (OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "your disk quota is used up; free some space",
    errno.EFBIG: "the file would exceed this system's size limit; free or raise it",
    errno.EACCES: "you may not write there; choose another folder or change its permissions",
    errno.EPERM: "you may not write there; choose another folder or change its permissions",
    errno.EROFS: "the file system is read-only; choose another folder",
}


def _explained(error: OSError, path: Path) -> CannotWrite:
    remedy = REMEDIES.get(error.errno or 0, f"{error.strerror or error}; choose another folder")
    return CannotWrite(f"cannot write {path}: {remedy}; nothing was changed")


def sync_folder(path: Path) -> None:
    """Make a file or a folder's entries durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _settle(path: Path) -> None:
    """Make a new name durable; by now it is there for all to see, so that a disk which cannot is no failure."""
    with suppress(OSError):
        sync_folder(path.parent)


def _exchange(first: Path, second: Path) -> None:
    """Swap two folders in one step of the file system."""
    names = os.fsencode(first), os.fsencode(second)
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        failed = library.renamex_np(*names, 2)
    elif hasattr(library, "renameat2"):
        here = -100  # AT_FDCWD: relative names count from the working folder
        failed = library.renameat2(here, names[0], here, names[1], 2)
    else:
        failed = 1
    if failed:
        raise AlreadyExists(f"this system cannot replace {second} in one step; delete it first, or choose another name")


SYNC_BYTES = 64 << 20
"""How much is written before the disk is told to keep it."""


class TensorFile:
    """A safetensors file of known layout, written block by block in any order.

    The header comes first and the space is reserved at once, so that a full disk is noticed before any work.
    """

    def __init__(self, path: Path, specs: Mapping[str, TensorSpec], metadata: dict[str, str]) -> None:
        self._scratch = threading.local()
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
        self.write(step.tensor, start, block)

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


def write_tensors(path: Path, tensors: Iterable[tuple[str, TensorSpec, Array]], metadata: dict[str, str]) -> None:
    """Replace a small safetensors file whose tensors are all in memory."""
    items = list(tensors)
    header = encode_header([(name, spec) for name, spec, _ in items], metadata)
    write_file(path, header, *(np.ascontiguousarray(array).tobytes() for _, _, array in items))


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
