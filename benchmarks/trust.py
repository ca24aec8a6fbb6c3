"""Whether Smatter can be trusted with strangers' files, kills, neighbours and its own promises.

Sections: hostile inputs through the command line, kills at any moment, many processes on one library, pairs of
checkpoints that must not be mixed, and what all the care costs beside the code of an earlier commit.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common import machine, show, write_result
from trust_hostile import hostile
from trust_kills import kills
from trust_neighbours import neighbours
from trust_overhead import overhead
from trust_world import MEMORY, Server, Stand, build_world, warm_commands


def pairs(stand: Stand) -> dict[str, Any]:
    """What `library check` says of pairs of checkpoints, where that table is there."""
    if find_spec("trust_pairs") is None:
        return {"figures": {}, "tables": {}}
    found: dict[str, Any] = import_module("trust_pairs").pairs(stand.quick)
    return found


Section = Callable[[Stand], dict[str, Any]]
SECTIONS: dict[str, Section] = {
    "hostile": hostile,
    "kills": kills,
    "neighbours": neighbours,
    "pairs": pairs,
    "overhead": overhead,
}
SHOWN = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=list(SECTIONS), help="one section")
    parser.add_argument("--cases", default="", help="with --only hostile: cases whose family and name hold this text")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    figures: dict[str, float] = {}
    tables: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="smatter-trust-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        template = build_world(Path(name) / "template")
        stand = Stand(Path(name), template, Server(warm_commands(template)), arguments.quick, arguments.cases)
        for title, section in SECTIONS.items():
            if arguments.only in (None, title):
                started = time.perf_counter()
                found = section(stand)
                figures |= found["figures"] | {f"seconds_of_{title}": time.perf_counter() - started}
                tables |= found["tables"]
        stand.server.close()
    for title, rows in tables.items():
        if rows and len({tuple(row) for row in rows}) == 1:
            show(title, rows[:SHOWN])
    print(figures)
    described = machine(["torch", "transformers", "tokenizers", "safetensors", "numba", "pillow"], 1)
    name = "trust" if arguments.only is None else f"trust-{arguments.only}"
    quick = arguments.quick or arguments.only is not None
    print("wrote", write_result(name, figures, tables, described, time.perf_counter() - begin, quick))


if __name__ == "__main__":
    main()
