"""Whether Smatter can be trusted with strangers' files, kills, neighbours and its own promises.

Sections: hostile inputs through the command line, kills at any moment, many processes on one library, pairs of
checkpoints that must not be mixed, and what all the care costs beside the code of an earlier commit.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import machine, show, write_result
from trust_hostile import hostile
from trust_world import MEMORY

Section = Callable[[Path, bool], dict[str, Any]]
SECTIONS: dict[str, Section] = {"hostile": hostile}
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
    for name, section in SECTIONS.items():
        if arguments.only not in (None, name):
            continue
        scratch = Path(tempfile.mkdtemp(prefix="smatter-trust-", dir=MEMORY if MEMORY.is_dir() else None))
        extra = {"only": arguments.cases} if name == "hostile" else {}
        started = time.perf_counter()
        try:
            found = section(scratch, arguments.quick, **extra)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        figures |= found["figures"] | {f"seconds_of_{name}": time.perf_counter() - started}
        tables |= found["tables"]
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
