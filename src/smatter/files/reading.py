"""Reading JSON and safetensors files as if a stranger had written them, and the arrays that they hold.

The format: eight bytes of little-endian length, a JSON object, then the values. The safetensors library
accepts duplicate keys and headers of 100 MB; here every number is bounded and every byte accounted for.
"""

import hashlib
import json
import math
import mmap
import os
import re
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from smatter.errors import NotFound, UnsafeFile
from smatter.records import FLOATING, ITEM_SIZES, Progress, TensorSpec, silent

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]

NUMPY_DTYPES: dict[str, DTypeLike] = {
    "F64": np.float64, "F32": np.float32, "BF16": np.uint16, "F16": np.float16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
"""How each dtype lies in a numpy array; bfloat16 as its bit pattern."""

MAX_HEADER_BYTES = 4_000_000
MAX_TENSORS = 50_000
MAX_NAME_CHARACTERS = 512
MAX_LABEL_CHARACTERS = 200
MAX_DIMENSIONS = 8
MAX_NESTING = 100
MAX_VALUES = 3_000_000
"""Of a JSON file, keys counted too: each takes up to 100 bytes of memory. Room for half a million pairs of tokens."""
MAX_DIGITS = 300
"""Of an integer in JSON: any such number is also a float, and longer ones take more than linear time to read."""
HASHED = 4 << 20
"""Bytes that are hashed at a time."""


@dataclass(frozen=True)
class Placed:
    """A tensor and where its values begin, counted from the start of the file."""

    spec: TensorSpec
    offset: int


@dataclass(frozen=True)
class Header:
    """All tensors of one safetensors file, and its metadata."""

    tensors: dict[str, Placed]
    metadata: dict[str, str]


def read_header(path: Path) -> Header:
    """Read and check the header of a safetensors file; its values are not touched."""
    size = regular_file_size(path)
    with path.open("rb") as file:
        return header_of(file, size, path)


def header_of(file: BinaryIO | mmap.mmap, size: int, path: Path) -> Header:
    """Read and check the header of a safetensors file that is open, or in memory.

    Args:
        file: at its beginning.
        size: of all of it, in bytes.
        path: where it is, for messages.
    """
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > size - 8:
        raise UnsafeFile(f"{path} is cut short: it says it has {length} bytes of header in {size}; copy it again")
    if length > MAX_HEADER_BYTES:
        raise UnsafeFile(
            f"{path} has a header of {length} bytes, above the limit of {MAX_HEADER_BYTES}; save it in shards, or "
            "with fewer names"
        )
    return parse_header(file.read(length), size - 8 - length, path)


def parse_header(text: bytes, n_data_bytes: int, path: Path) -> Header:
    """Check a header against the number of bytes that follow it.

    Args:
        text: the JSON of the header.
        n_data_bytes: size of everything behind it.
        path: the file, for messages.
    """
    entries = parse_json(text, path)
    if not isinstance(entries, dict):
        raise UnsafeFile(f"{path} has a header that is not a JSON object; it is not a safetensors file")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise UnsafeFile(f"{path} has metadata that does not map strings to strings; save it again")
    if len(entries) > MAX_TENSORS:
        raise UnsafeFile(f"{path} lists {len(entries)} tensors, above the limit of {MAX_TENSORS}; save it in shards")
    data_start = 8 + len(text)
    tensors: dict[str, Placed] = {}
    ends: list[tuple[int, int, str]] = []
    for name, entry in entries.items():
        spec, begin, end = _entry(name, entry, path)
        tensors[name] = Placed(spec, data_start + begin)
        ends.append((begin, end, name))
    _check_cover(sorted(ends), n_data_bytes, path)
    return Header(tensors, metadata)


def _entry(name: str, entry: Any, path: Path) -> tuple[TensorSpec, int, int]:
    def refuse(what: str) -> NoReturn:
        raise UnsafeFile(f"{path}: tensor {name[:MAX_NAME_CHARACTERS]!r} {what}; save the checkpoint again")

    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        refuse("has an empty, overlong or unprintable name")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        refuse("is not described by dtype, shape and data_offsets alone")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        refuse(f"has dtype {str(dtype)[:40]!r}, which cannot be mixed (known: {', '.join(ITEM_SIZES)})")
    shape_is_sound, offsets_are_sound = (
        isinstance(values, list) and all(type(value) is int and 0 <= value < 2**53 for value in values)
        for values in (shape, offsets)
    )
    if not shape_is_sound or len(shape) > MAX_DIMENSIONS:
        refuse("has a shape that is not a short list of natural numbers")
    if not offsets_are_sound or len(offsets) != 2 or offsets[0] > offsets[1]:
        refuse("has data_offsets that are not two increasing natural numbers")
    spec = TensorSpec(dtype, tuple(shape))
    if spec.n_bytes != offsets[1] - offsets[0]:
        refuse(f"needs {spec.n_bytes} bytes for {spec} but its data_offsets span {offsets[1] - offsets[0]}")
    return spec, offsets[0], offsets[1]


def _check_cover(spans: list[tuple[int, int, str]], n_data_bytes: int, path: Path) -> None:
    position = 0
    for begin, end, name in spans:
        if begin != position:
            what = "overlaps the one before it" if begin < position else f"leaves {begin - position} bytes unused"
            raise UnsafeFile(f"{path}: tensor {name!r} {what}; save the checkpoint again")
        position = end
    if position != n_data_bytes:
        what = "is cut short" if position > n_data_bytes else "has bytes after its last tensor"
        raise UnsafeFile(f"{path} {what}: its tensors take {position} bytes, it has {n_data_bytes}; copy it again")


def parse_json(text: bytes, path: Path) -> Any:
    """Parse JSON that a stranger may have written: UTF-8, no duplicate keys, no NaN, no bottomless nesting."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise UnsafeFile(f"{path} has the key {twice[:80]!r} twice; save it again")
        return result

    def refuse_constant(constant: str) -> NoReturn:
        raise UnsafeFile(f"{path} has {constant} where JSON has none; save it again")

    def finite(digits: str) -> float:
        if math.isinf(number := float(digits)):
            raise UnsafeFile(f"{path} has {digits[:40]}, a number beyond all bounds; save it again")
        return number

    def whole(digits: str) -> int | float:
        if len(digits) > MAX_DIGITS:
            raise UnsafeFile(f"{path} has an integer of {len(digits)} digits, above {MAX_DIGITS}; save it again")
        return -0.0 if digits == "-0" else int(digits)  # what other readers make of it: no natural number

    if _has_more_values(text, MAX_VALUES):
        raise UnsafeFile(f"{path} has more than {MAX_VALUES} values, the most that is read; save it with fewer")
    try:
        content = json.loads(
            text.decode(), object_pairs_hook=unique, parse_constant=refuse_constant, parse_float=finite, parse_int=whole
        )
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnsafeFile):
            raise
        raise UnsafeFile(f"{path} is not valid JSON where JSON should be ({error}); save it again") from None
    if _is_deeper(content, MAX_NESTING):
        raise UnsafeFile(f"{path} is nested more than {MAX_NESTING} deep; save it again")
    if re.search(rb"\\u[dD][89a-fA-F]", text) and _has_half_a_character(content):
        raise UnsafeFile(f"{path} has half a character, which no file can hold; save it again")
    return content


_VALUE = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[^\s"\[\]{},:]++', re.DOTALL)
"""A string, however it ends; the beginning of a list or object; a number or word. No byte is looked at twice."""


def _has_more_values(text: bytes, limit: int) -> bool:
    """Whether JSON has more values than that, told without making them."""
    if len(text) <= 2 * limit:  # a value takes a byte, and another to part it from the next or to close it
        return False
    return any(number >= limit for number, _ in enumerate(_VALUE.finditer(text)))


def _is_deeper(content: Any, limit: int) -> bool:
    level = [content]
    for _ in range(limit):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
    return bool(level)


def _has_half_a_character(content: Any) -> bool:
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and re.search("[\ud800-\udfff]", value):
            return True
    return False


def read_small_json(path: Path, max_bytes: int = MAX_HEADER_BYTES) -> Any:
    """Read a JSON file of bounded size with `parse_json`."""
    return parse_json(read_small_file(path, max_bytes), path)


def read_small_file(path: Path, max_bytes: int) -> bytes:
    """Read a whole regular file of bounded size."""
    size = regular_file_size(path)
    if size > max_bytes:
        raise UnsafeFile(f"{path} has {size} bytes, above the limit of {max_bytes}; give a smaller one")
    with path.open("rb") as file:
        return file.read(max_bytes)


def regular_file_size(path: Path) -> int:
    """Size of a file, refusing what is missing or is a folder, pipe or device."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist; check the path") from None
    except NotADirectoryError:
        raise NotFound(f"{path} is inside something that is not a folder; check the path") from None
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFile(f"{path} is a folder, pipe or device; give a file, or copy it again")
    return status.st_size


Stamp = tuple[int, int, int, int]
"""Size, inode and times of a file: as long as they are the same, nobody has written to it."""


def stamp_of(status: os.stat_result) -> Stamp:
    """What tells whether a file was touched."""
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


class MappedFile:
    """The tensors of one safetensors file as views of mapped memory; values are not read until they are looked at.

    The file is opened once: header, digest and values are of the same one, whatever its name stands for later.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        regular_file_size(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size < 8:
                raise UnsafeFile(f"{path} is cut short, or no file any more; copy it again")
            # A private mapping: even a stray write could never reach the file.
            mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
        self.stamp = stamp_of(status)
        self.header = header_of(mapped, status.st_size, path)
        self._memory: Array = np.frombuffer(mapped, np.uint8)

    @property
    def is_untouched(self) -> bool:
        """Whether its name still stands for the file that was opened, and nobody has written to that."""
        try:
            return stamp_of(self.path.stat()) == self.stamp
        except OSError:
            return False

    def digest(self, progress: Progress = silent) -> str:
        """The sha256 of all bytes that are mapped."""
        found = hashlib.sha256()
        for start in range(0, self._memory.size, HASHED):
            block = self._memory[start : start + HASHED]
            found.update(block.data)
            progress(block.size)
        return found.hexdigest()

    def read(self, name: str, start: int, stop: int) -> Array:
        """Elements start..stop of a tensor, flat; a view."""
        placed = self.header.tensors[name]
        size = ITEM_SIZES[placed.spec.dtype]
        begin = placed.offset + start * size
        block = self._memory[begin : begin + (stop - start) * size]
        if begin % size:
            block = block.copy()  # allowed by the format, if rare; an unaligned view would be slow or refused
        if block.size != (stop - start) * size:
            raise UnsafeFile(f"{self.path} has become shorter since its header was read; copy it again")
        view = block.view(NUMPY_DTYPES[placed.spec.dtype])
        view.flags.writeable = False
        return view

    def whole(self, name: str) -> Array:
        """All elements of a tensor, in its shape; a view."""
        spec = self.header.tensors[name].spec
        return self.read(name, 0, spec.n_elements).reshape(spec.shape)


def safe_path(folder: Path, name: str) -> Path:
    """A file of a checkpoint; refuses links that lead out of it, but for those of the Hugging Face cache.

    That cache keeps a snapshot as links into `blobs` beside it: `models--x/snapshots/REVISION/file` points
    to `models--x/blobs/HASH`.
    """
    path = folder / name
    if not path.exists():
        raise NotFound(f"{path} does not exist; check the path, or copy the checkpoint again")
    regular_file_size(path)
    real, home = path.resolve(), folder.resolve()
    allowed = [home]
    if home.parent.name == "snapshots":
        allowed.append(home.parent.parent / "blobs")
    if not any(real.is_relative_to(place) for place in allowed):
        raise UnsafeFile(f"{path} is a link to {real}, outside the checkpoint; copy the file into the folder")
    return path


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
