"""Every call by which Smatter changes the disk, with a hook around it: to make one fail, or to die in it."""

import builtins
import io
import os
from collections.abc import Callable
from typing import Any

from smatter.files import writing

Hook = Callable[[str, Any], None]
"""Hears the name of a call and its first argument, a path or a descriptor."""

CHANGES = [
    (os, "mkdir"), (os, "posix_fallocate"), (os, "pwrite"), (os, "sendfile"), (os, "fsync"), (os, "replace"),
    (writing, "_exchange"), (io, "open"), (builtins, "open"),
]  # fmt: skip
DELETIONS = [(os, "unlink"), (os, "rmdir")]


def hook_disk(
    set_attribute: Callable[[Any, str, Any], None], before: Hook, after: Hook, deletions: bool = False
) -> None:
    """Wrap the calls so that `before` and `after` hear of them; opening a file counts if it is to be written."""
    for owner, name in CHANGES + (DELETIONS if deletions else []):
        set_attribute(owner, name, _wrapped(getattr(owner, name), name, before, after))


def _wrapped(original: Callable[..., Any], name: str, before: Hook, after: Hook) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        mode = str(options.get("mode", arguments[1] if len(arguments) > 1 else "r"))
        if name == "open" and not set(mode) & set("wxa+"):
            return original(*arguments, **options)
        before(name, arguments[0])
        result = original(*arguments, **options)
        after(name, arguments[0])
        return result

    return call
