"""The one door to the Hugging Face libraries: they are offline and quiet, and what they raise ends in one line.

`import smatter` changes nothing. The first network or tokenizer that is built sets `OFFLINE` in the environment before
transformers is imported, unless the user has set these variables. A program that imported transformers earlier keeps
its own settings; then nothing is downloaded either, because no name that the hub could resolve gets past `configs` and
`tokenizer_files`.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from smatter.errors import SmatterError
from smatter.records import printable

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "USE_HUB_KERNELS": "NO",
}
"""Environment variables that keep the Hugging Face libraries from the network."""

LONGEST_REASON = 200
"""Characters of a stranger's error that are told."""

_STANDARD_ERROR = 2
_REDIRECTING = threading.RLock()


def transformers(module: str = "") -> Any:
    """The library transformers, or one of its modules, offline.

    Args:
        module: name of the module within transformers; the library itself by default.
    """
    for name, value in OFFLINE.items():
        os.environ.setdefault(name, value)
    return importlib.import_module(f"transformers.{module}" if module else "transformers")


def quiet_transformers() -> None:
    """Keep transformers from warning and from drawing bars: for the command line, whose output is its own."""
    logging = transformers("utils.logging")
    logging.set_verbosity_error()
    logging.disable_progress_bar()


class StrangersError(Exception):
    """Something that a library raised because of a stranger's file, in a few words."""


@contextmanager
def strangers_errors() -> Iterator[None]:
    """Turn whatever a library raises, panics of Rust among it, into a `StrangersError`; interruptions pass."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, SmatterError) or not (isinstance(error, Exception) or _is_panic(error)):
            raise
        reason = " ".join(str(error).split())[:LONGEST_REASON] or type(error).__name__
        raise StrangersError(reason) from error


@contextmanager
def without_panic_messages() -> Iterator[None]:
    """Keep what a panic of Rust prints off the terminal; anything else that is printed meanwhile appears afterwards.

    Rust writes to the process's standard error and knows nothing of Python's, hence the detour by file numbers.
    """
    with _REDIRECTING, ExitStack() as stack:
        try:
            caught = stack.enter_context(tempfile.TemporaryFile())
            terminal = os.dup(_STANDARD_ERROR)
        except OSError:  # no standard error, or no room for what is written to it
            yield
            return
        is_panic = False
        os.dup2(caught.fileno(), _STANDARD_ERROR)
        try:
            yield
        except BaseException as error:
            is_panic = _is_panic(error)
            raise
        finally:
            os.dup2(terminal, _STANDARD_ERROR)
            os.close(terminal)
            caught.seek(0)
            if not is_panic and (text := caught.read()):
                lines = [printable(line) for line in text.decode(errors="replace").splitlines()]
                os.write(_STANDARD_ERROR, "".join(f"{line}\n" for line in lines).encode())


def _is_panic(error: BaseException) -> bool:
    """Whether Rust code gave up: pyo3 has a class for that which can be named, but not imported."""
    return type(error).__name__ == "PanicException"
