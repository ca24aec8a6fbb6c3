"""Places that commands are given, looked at before torch is imported: a typing error costs no seconds."""

from pathlib import Path
from typing import TYPE_CHECKING

from smatter.errors import InvalidSettings

if TYPE_CHECKING:
    from smatter.library.library import Library


def library_before(folder: Path, other: Path, router: Path | None = None) -> "Library":
    """The library of a command's first argument; refused where the second one is it, or the router is another's."""
    from smatter.cli.output import shell
    from smatter.library.library import open_library
    from smatter.library.manifest import MANIFEST

    if (other / MANIFEST).is_file() and not (folder / MANIFEST).exists():
        raise InvalidSettings(f"{other} is the library and {folder} is not: exchange them, {shell(other, folder)}")
    library = open_library(folder)
    if router is not None:
        from smatter.route.place import check_router

        check_router(router, library.manifest)
    return library
