"""Writing that a power cut or `kill -9` cannot leave half done: the old state or the new, never a mixture."""

import ctypes
import errno
import fcntl
import glob
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from smatter.errors import AlreadyExists, CannotWrite, NotFound, SmatterError
from smatter.files.reading import MAX_HEADER_BYTES, Array
from smatter.records import TensorSpec

LOCK_SECONDS = 60.0
PARTIAL = ".partial-"
"""In the names of temporary files and folders, between what they will be called and random digits."""


def write_file(path: Path, *chunks: bytes) -> None:
    """Replace a file's content, but not its permissions: temporary file, fsync, rename, fsync of the folder."""
    with _partial(path, _new_file) as (temporary, descriptor):
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
        with open(descriptor, "wb", closefd=False) as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    _settle(path)


def copy_file(folder: Path, name: str, target: Path) -> str:
    """Copy a small file of a folder to the same place in another one, not published yet; the sha256 of the copy."""
    content = (folder / name).read_bytes()
    (target / name).parent.mkdir(exist_ok=True)
    (target / name).write_bytes(content)
    return hashlib.sha256(content).hexdigest()


@contextmanager
def new_text(path: Path) -> Iterator[TextIO]:
    """Write a text, in UTF-8, to a file that appears under `path` all at once when the block ends without an error."""
    check_absent(path)
    with _partial(path, _new_file) as (temporary, descriptor):
        with open(descriptor, "w", encoding="utf-8", newline="", closefd=False) as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        if not _rename(temporary, path, _WITHOUT_REPLACING):
            if path.exists() or path.is_symlink():
                raise AlreadyExists(f"{path} has appeared meanwhile; choose another name")
            temporary.replace(path)  # a disk that knows no other way
    _settle(path)


@contextmanager
def new_folder(path: Path, replace: bool = False) -> Iterator[Path]:
    """Fill a folder that appears under `path` all at once when the block ends without an error.

    Args:
        path: where the folder will be; must not exist, or be empty, unless `replace`.
        replace: exchange an existing folder for the new one in a single step, then delete the old one.
    """
    check_free(path, replace)
    with _partial(path, _new_folder) as (temporary, _):
        yield temporary
        for file in temporary.rglob("*"):
            sync_folder(file)
        sync_folder(temporary)
        if replace and path.is_dir() and any(path.iterdir()):
            _exchange(temporary, path)
        else:
            temporary.replace(path)
        _settle(path)


@dataclass
class Pending:
    """A folder that is being filled.

    Args:
        path: where to write its files.
        name: what it will be called; nothing is kept of it without one.
    """

    path: Path
    name: str | None = None


@contextmanager
def folder_named_later(parent: Path) -> Iterator[Pending]:
    """Fill a folder that appears in `parent`, under a name which its contents give, when the block ends well."""
    with _partial(parent / "new", _new_folder) as (temporary, _):
        pending = Pending(temporary)
        yield pending
        if pending.name is not None:
            check_free(parent / pending.name)
            for file in (*temporary.rglob("*"), temporary):
                sync_folder(file)
            temporary.replace(parent / pending.name)
            _settle(parent / pending.name)


def check_free(path: Path, replace: bool = False) -> None:
    """Refuse an output that would overwrite something, before any work is spent on it."""
    if path.is_dir():
        if any(path.iterdir()) and not replace:
            raise AlreadyExists(f"{path} already exists and is not empty; choose another name, or say --replace")
    elif path.exists() or path.is_symlink():
        raise AlreadyExists(f"{path} already exists and is not a folder; choose another name")
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} does not exist; create it first")


def check_absent(path: Path) -> None:
    """Refuse a place for a new file that is taken, before any work is spent on it."""
    if path.exists() or path.is_symlink():
        raise AlreadyExists(f"{path} exists already; choose another name")
    if not path.parent.is_dir():
        raise NotFound(f"the folder {path.parent} does not exist; create it first")


@contextmanager
def _partial(path: Path, create: Callable[[Path], int]) -> Iterator[tuple[Path, int]]:
    """A temporary file or folder beside `path`, and a descriptor of it; what is left of it afterwards is deleted.

    It is locked while it is in use, by whatever process in whatever container; one that nobody has locked was left by a
    process that was killed, and is deleted by the next one to write the same name.
    """
    if path.name in ("", ".."):
        raise NotFound(f"{path} names nothing new; give the name of a file or folder to write")
    stem = f".{path.name}{PARTIAL}"
    with suppress(OSError):  # a leftover that cannot be deleted is no reason to refuse new work
        for other in path.parent.glob(f"{glob.escape(stem)}*"):
            _sweep(other)
    temporary, descriptor = path, -1
    try:
        while descriptor < 0:
            temporary = path.with_name(f"{stem}{secrets.token_hex(8)}")
            descriptor = _owned(temporary, create)
        status = os.fstat(descriptor)
        _own.add((status.st_dev, status.st_ino))
        yield temporary, descriptor
    except OSError as error:
        about_source = error.filename is not None and stem not in str(error.filename)
        if isinstance(error, SmatterError) or about_source:
            raise
        raise _explained(error, path) from error
    finally:
        if temporary != path:
            _clean(temporary)
        if descriptor >= 0:
            status = os.fstat(descriptor)
            _own.discard((status.st_dev, status.st_ino))
            os.close(descriptor)


_own: set[tuple[int, int]] = set()
"""Devices and inodes of what this process is writing."""


@contextmanager
def locked_folder(folder: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold a folder for one writer; a second one waits, and gives up after a while.

    A folder that this process is only just writing is its own.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        deadline = time.monotonic() + seconds
        while (status.st_dev, status.st_ino) not in _own and not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise CannotWrite(
                    f"{folder} is in use by {_holder(status)} for {seconds:.0f} s: wait until that ends, or stop it"
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        return True
    return True


def _holder(status: os.stat_result) -> str:
    """Who has locked a file, as far as the system tells."""
    where = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError, ValueError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if "FLOCK" in words and where in words and "->" not in words:
                number = int(words[words.index(where) - 1])
                command = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                return f"process {number} ({command.strip()[:100]})"
    return "another process"


def _owned(temporary: Path, create: Callable[[Path], int]) -> int:
    """A descriptor of something new that we hold the lock of; -1 where a process that sweeps was quicker."""
    descriptor = create(temporary)
    with suppress(OSError):  # on a disk without locks nothing is ever swept
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    status = os.fstat(descriptor)
    if temporary.exists() and temporary.stat().st_ino == status.st_ino:
        return descriptor
    os.close(descriptor)
    return -1


def _new_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _new_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _sweep(leftover: Path) -> None:
    """Delete a temporary file or folder that nobody has locked."""
    if leftover.is_symlink() or not (leftover.is_dir() or leftover.is_file()):
        return
    descriptor = os.open(leftover, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _delete(leftover)
    except OSError:  # in use
        return
    finally:
        os.close(descriptor)


def _clean(temporary: Path) -> None:
    """Delete what is left of a temporary file or folder, whatever happens meanwhile."""
    try:
        _delete(temporary)
    except OSError:  # the next writer sweeps it; an error that is on its way says more than this one
        return
    except BaseException:  # a signal; the next ones are ignored
        _delete(temporary)
        raise


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


_EXCHANGING = 2
_WITHOUT_REPLACING = 4 if sys.platform == "darwin" else 1
"""Flags of the systems' calls for renaming."""


def _exchange(first: Path, second: Path) -> None:
    """Swap two folders in one step of the file system."""
    if not _rename(first, second, _EXCHANGING):
        raise AlreadyExists(f"this system cannot replace {second} in one step; delete it first, or choose another name")


def _rename(first: Path, second: Path, flag: int) -> bool:
    """Rename in one step of the file system, in a way that Python does not offer; whether that was possible."""
    names = os.fsencode(first), os.fsencode(second)
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        return not library.renamex_np(*names, flag)
    if not hasattr(library, "renameat2"):
        return False
    here = -100  # AT_FDCWD: relative names count from the working folder
    return not library.renameat2(here, names[0], here, names[1], flag)


def write_tensors(path: Path, tensors: Iterable[tuple[str, TensorSpec, Array]], metadata: dict[str, str]) -> None:
    """Replace a small safetensors file whose tensors are all in memory."""
    items = list(tensors)
    header = encode_header([(name, spec) for name, spec, _ in items], metadata)
    if len(header) > MAX_HEADER_BYTES:
        raise CannotWrite(f"cannot write {path}: its names take {len(header)} bytes, more than is read; shorten them")
    write_file(path, header, *(np.ascontiguousarray(array).tobytes() for _, _, array in items))


def encode_header(specs: Iterable[tuple[str, TensorSpec]], metadata: dict[str, str]) -> bytes:
    """The bytes in front of the values, padded so that these start on a multiple of 64."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    position = 0
    for name, spec in specs:
        entries[name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [position, position + spec.n_bytes],
        }
        position += spec.n_bytes
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text
