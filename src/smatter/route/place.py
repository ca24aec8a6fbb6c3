"""A router's folder, as far as it can be told without torch: what is in it, and which library it is for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smatter.errors import InvalidRouter, NotFound
from smatter.files.reading import MappedFile, parse_json, read_small_json, safe_path
from smatter.library.banks import BANK
from smatter.library.manifest import Manifest

TABLE, WEIGHTS, POSTERIOR = "router.json", "router.safetensors", "posterior.safetensors"
MAX_TABLE_BYTES = 64_000_000
ROUTING = ("settings", "base", "partition", "sources", "groups", "texts", "weights", "experts")
"""What router.json holds that routing depends on."""


def is_router(folder: Path) -> bool:
    """Whether a folder says it is a router and holds nothing else; it may still not be a sound one."""
    return (folder / TABLE).is_file() and {path.name for path in folder.iterdir()} <= {TABLE, WEIGHTS, BANK, POSTERIOR}


def router_table(folder: Path) -> object:
    """What router.json holds, unchecked."""
    if not (folder / TABLE).exists():
        raise NotFound(f"{folder} has no {TABLE}: give the folder that `smatter train` wrote")
    return read_small_json(folder / TABLE, MAX_TABLE_BYTES)


def has_posterior(folder: Path) -> bool:
    """Whether a router says that it has a posterior."""
    table = router_table(folder)
    return isinstance(table, dict) and table.get("posterior") is not None


def router_identity(folder: Path, with_posterior: bool = True) -> str:
    """Digest of all that routes; calibrations, certificates and the record of the training change nothing of it.

    Args:
        folder: the router's.
        with_posterior: of all that decides, too; what the router itself says of a task does not depend on that.
    """
    table = router_table(folder)
    return identity_of(table, folder, with_posterior) if isinstance(table, dict) else ""


def identity_of(table: Mapping[str, Any], folder: Path, with_posterior: bool = True) -> str:
    """The same, of a table that is not written yet.

    Args:
        table: contents of router.json.
        folder: where the other files are.
        with_posterior: of the posterior, too.
    """
    whole = hashlib.sha256(json.dumps([table.get(name) for name in ROUTING], sort_keys=True).encode())
    if with_posterior and table.get("posterior") is not None:
        file = MappedFile(safe_path(folder, POSTERIOR))
        told = {key: parse_json(text.encode(), folder) for key, text in sorted(file.header.metadata.items())}
        kept = [
            {name: value for name, value in each.items() if name not in ("calibrations", "record")}
            for each in told.values()
            if isinstance(each, dict)
        ]
        whole.update(json.dumps(kept, sort_keys=True).encode())
        for name in sorted(file.header.tensors):
            if not name.startswith("calibration."):
                whole.update(file.whole(name).tobytes())
    return whole.hexdigest()


def check_trained_for(base: object, partition: object, manifest: Manifest) -> None:
    """Refuse a router for a library whose base or modules are not those that it was trained with.

    Args:
        base: content digest of the router's base.
        partition: digest of the router's modules.
        manifest: of the library.
    """
    remedy = "give the library that it was trained with, leave the router out, or train one with `smatter train`"
    if base != manifest.digests[manifest.base]:
        raise InvalidRouter(f"the router was trained for another base than {manifest.base!r}: {remedy}")
    if partition != manifest.partition.digest:
        raise InvalidRouter(f"the router was trained for other modules than the library has: {remedy}")


def check_router(folder: Path, manifest: Manifest) -> None:
    """Refuse, before torch is imported, a folder that is no router or one of another library."""
    table = router_table(folder)
    if (
        isinstance(table, dict) and {"base", "partition"} <= table.keys()
    ):  # whoever reads all of it tells other mistakes
        check_trained_for(table["base"], table["partition"], manifest)
