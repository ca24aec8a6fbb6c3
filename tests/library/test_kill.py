"""A writer that dies at any moment leaves the old state or the new one, and nothing in the way of the next."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_shelf import OUTPUT, WORDS, Shelf, Tensors, copy_shelf, snapshot, write_checkpoint

from smatter.cli.main import main
from smatter.library.library import open_library

KILLED = -9
N_RANDOM_KILLS = 12


class Server:
    """The process that forks, runs and kills."""

    def __init__(self) -> None:
        threads = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"], "1")
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("kill_server.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | threads,
        )  # fmt: skip

    def run(
        self, words: list[str], at: int | None = None, after: float | None = None, slow: float = 0
    ) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps({"words": words, "at": at, "after": after, "slow": slow}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@dataclass(frozen=True)
class Kind:
    """A command that writes; `again` says whether it can be repeated once it has succeeded."""

    words: Callable[[Shelf], list[str]]
    again: bool


KINDS = {
    "add a delta": Kind(lambda shelf: shelf.add(shelf.root / "candidate", "--store", "delta"), again=False),
    "replace an export": Kind(lambda shelf: [*shelf.compose()[:-1], str(shelf.export), "--replace"], again=True),
    "export": Kind(lambda shelf: shelf.compose(), again=False),
    "replace a recipe": Kind(
        lambda shelf: [
            *shelf.compose("base=.5,law=.5", "--as", "recipe", "--replace"),
            "-o",
            str(shelf.root / "old.safetensors"),
        ],
        again=True,
    ),
    "remove": Kind(lambda shelf: ["library", "remove", str(shelf.library), "code"], again=False),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def visible(root: Path) -> dict[str, Any]:
    """The state as a reader sees it: without temporary names, and without stored folders that nothing refers to."""
    listed = {f"library/{source.path}" for source in open_library(root / "library").manifest.sources}

    def is_orphan(path: str) -> bool:
        is_stored = path == "library/sources" or path.startswith("library/sources/")
        return is_stored and not any(
            f"{entry}/".startswith(f"{path}/") or path.startswith(f"{entry}/") for entry in listed
        )

    return {path: state for path, state in snapshot(root).items() if ".partial-" not in path and not is_orphan(path)}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process does not care, and syncing to a disk takes its time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@dataclass
class Bench:
    """A shelf that is put back to its old state before every kill."""

    server: Server
    template: Path
    root: Path
    kind: Kind

    def reset(self) -> Shelf:
        shutil.rmtree(self.root, ignore_errors=True)
        return copy_shelf(self.template, self.root)

    def both_states(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Old and new, each a library that checks out."""
        shelf = self.reset()
        old = visible(self.root)
        assert main(["library", "check", str(shelf.library)]) == 0
        assert self.server.run(self.kind.words(shelf))["code"] == 0
        assert main(["library", "check", str(shelf.library)]) == 0
        new = visible(self.root)
        assert old != new and new == snapshot(self.root)
        return old, new

    def assert_whole(self, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """The state is one of the two, and the next run ends in the new one; returns whether it was new already."""
        state = visible(self.root)
        assert state in (old, new)
        words = self.kind.words(Shelf(self.root))
        refused = state == new and not self.kind.again
        assert self.server.run(words)["code"] == (2 if refused else 0)
        assert visible(self.root) == new
        assert not [path for path in snapshot(self.root) if ".partial-" in path]
        return state == new


def make_shelf(root: Path, n_rows: int) -> Path:
    """Three sources, one of them stored as a delta, an export, a recipe, and a candidate to add."""
    shelf = Shelf(root)
    generator = np.random.default_rng(0)
    start = {WORDS: generator.normal(size=(6, 8)), OUTPUT: generator.normal(size=(n_rows, 768))}
    for folder in ("library/checkpoints/base", "library/checkpoints/law", "library/checkpoints/code", "candidate"):
        tensors: Tensors = {
            name: ("F32", (values + 0.01 * generator.normal(size=values.shape)).astype(np.float32))
            for name, values in start.items()
        }
        write_checkpoint(root / folder, tensors)
    compose = ["compose", str(shelf.library), "--weights", "base=1"]
    for words in (
        ["library", "init", str(shelf.library), str(shelf.library / "checkpoints/base")],
        shelf.add(shelf.library / "checkpoints/law"),
        shelf.add(shelf.library / "checkpoints/code", "--store", "delta"),
        [*compose, "-o", str(shelf.export)],
        [*compose, "--as", "recipe", "-o", str(root / "old.safetensors")],
    ):
        assert main(words) == 0
    return root


@pytest.fixture(scope="module")
def small_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shelf(tmp_path_factory.mktemp("small"), 2)


@pytest.fixture(scope="module")
def large_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources of 2 MB, so that a command takes its time."""
    return make_shelf(tmp_path_factory.mktemp("large"), 700)


@kinds
def test_killed_before_and_after_every_step(kind: Kind, server: Server, small_template: Path, folder: Path) -> None:
    bench = Bench(server, small_template, folder / "shelf", kind)
    old, new = bench.both_states()
    undisturbed = server.run(kind.words(bench.reset()))
    assert undisturbed["code"] == 0 and visible(bench.root) == new
    outcomes = set()
    for step in range(len(undisturbed["steps"])):
        shelf = bench.reset()
        assert server.run(kind.words(shelf), at=step)["code"] == KILLED
        outcomes.add(bench.assert_whole(old, new))
    assert outcomes == {False, True}


@kinds
def test_killed_at_random_times(kind: Kind, server: Server, large_template: Path, folder: Path) -> None:
    bench = Bench(server, large_template, folder / "shelf", kind)
    old, new = bench.both_states()
    slow = 0.0005
    seconds = min(server.run(kind.words(bench.reset()), slow=slow)["seconds"] for _ in range(2))
    generator = random.Random(0)
    n_killed = n_tried = 0
    while n_killed < N_RANDOM_KILLS:
        n_tried += 1
        assert n_tried < 10 * N_RANDOM_KILLS, "the command ends before it can be killed"
        shelf = bench.reset()
        moment = (n_killed + generator.random()) / N_RANDOM_KILLS * seconds
        if server.run(kind.words(shelf), after=moment, slow=slow)["code"] == KILLED:
            n_killed += 1
        else:
            seconds *= 0.9  # it was measured on a busier machine
        bench.assert_whole(old, new)


@kinds
def test_what_gets_a_name_was_made_durable_before(
    kind: Kind, server: Server, small_template: Path, folder: Path
) -> None:
    """A power cut can undo whatever was not synced: contents before the name, then the name itself."""
    steps = server.run(kind.words(Bench(server, small_template, folder / "shelf", kind).reset()))["steps"]
    calls = [call for call in steps if call in ("fsync", "replace", "_exchange")]
    assert {"replace", "_exchange"} & set(calls)
    for before, call, after in zip(["", *calls], calls, [*calls[1:], ""], strict=False):
        assert call == "fsync" or before == after == "fsync"
