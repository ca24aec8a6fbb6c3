"""Parsers under a fuzzer: what it once started from or found is refused or read, quickly; and it still runs."""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from targets import CORPUS, SECONDS, TARGETS, refused_or_read

SLOW_SECONDS = 60
SPARE = 3 << 30
"""Bytes of address space that a test may take beyond what the process has: a bomb must not take the machine along."""


@pytest.fixture(autouse=True)
def bounded_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + SPARE, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_refused_or_read(name: str, tmp_path: Path) -> None:
    target = TARGETS[name](tmp_path)
    seeds = sorted((CORPUS / name).iterdir())
    assert len(seeds) >= 2
    for seed in seeds:
        started = time.process_time()
        refused_or_read(target, seed.read_bytes())
        assert time.process_time() - started < SECONDS, seed


@pytest.mark.parametrize("name", TARGETS)
def test_a_sound_file_of_the_corpus_is_read(name: str, tmp_path: Path) -> None:
    """Otherwise the fuzzer would only ever see refusals."""
    target = TARGETS[name](tmp_path)
    target((CORPUS / name / "sound").read_bytes())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="needs atheris, which has wheels for Linux only")
@pytest.mark.parametrize("name", TARGETS)
def test_a_minute_of_fuzzing_finds_nothing(name: str, tmp_path: Path) -> None:
    program = Path(__file__).with_name("run.py")
    done = subprocess.run(
        [sys.executable, str(program), name, str(SLOW_SECONDS), str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
