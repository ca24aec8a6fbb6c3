"""However a command is stopped, it says so in one line, and cleans up."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_libraries import texts_support

import smatter
from smatter.library.library import Library

SMATTER = [sys.executable, "-m", "smatter"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
def test_a_signal_ends_in_its_line_and_leaves_nothing(topics: Library, tmp_path: Path, number: signal.Signals) -> None:
    smatter.adapt(topics, texts_support("food")).save(tmp_path / "r.safetensors")
    recipe, library, output = (str(each) for each in (tmp_path / "r.safetensors", topics.folder, tmp_path / "o"))
    words = ["predict", recipe, "-", "--library", library, "-o", output]
    process = subprocess.Popen(
        [*SMATTER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin
    process.stdin.write("food0a\n" * 64)  # a chunk, so that it is at work
    process.stdin.flush()
    while not list(tmp_path.glob(".o.partial-*")):
        assert process.poll() is None
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.count("\n") == 1 and errors.startswith("smatter: interrupted") and not out
    assert [path.name for path in tmp_path.iterdir()] == ["r.safetensors"]


def test_a_closed_pipe_is_quiet(topics: Library) -> None:
    process = subprocess.Popen(
        [*SMATTER, "library", "list", str(topics.folder), "--modules"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.wait(60) == 0 and process.stderr.read() == b""
    process.stderr.close()


def test_who_ignores_hangups_goes_on(topics: Library) -> None:
    script = f"trap '' HUP; exec {sys.executable} -m smatter library list {topics.folder} & wait $!"
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=False).returncode == 0
