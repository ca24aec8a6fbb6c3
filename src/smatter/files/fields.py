"""Fields that the JSON files of several rooms share, and what to say when one is wrong."""

from typing import Annotated

from pydantic import StringConstraints, ValidationError

from smatter.files.reading import MAX_NAME_CHARACTERS

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"


Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]


_FILE = r"[^/\\\x00.][^/\\\x00]{0,254}"


FileName = Annotated[str, StringConstraints(pattern=f"^{_FILE}(/{_FILE})?$")]
"""Of a file in a folder, or in a folder of that."""


TensorName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARACTERS)]


def first_mistake(error: ValidationError) -> str:
    """Where the first thing that is wrong with a file's contents stands, and what it is."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])[:200]
    return f"{where}: {first['msg'].removeprefix('Value error, ')[:300]}"
