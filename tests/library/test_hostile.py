"""Whatever a stranger or a disk hands out: one line that names fault and remedy, exit code 2, nothing written."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile_files
import hostile_libraries
import hostile_recipes  # noqa: F401
import hostile_requests
import numpy as np
import pytest
from disk_calls import hook_disk
from hostile_shelf import (
    OUTPUT,
    QUERY,
    Case,
    Shelf,
    copy_shelf,
    encode,
    snapshot,
    sound_tensors,
    write_checkpoint,
)

from smatter.cli.main import main
from smatter.files import hashing

CASES = [case for table in (hostile_files, hostile_libraries, hostile_requests) for case in table.CASES.values()]


@pytest.fixture(autouse=True)
def no_hanging() -> Iterator[None]:
    """Whoever opens a pipe that nobody writes to waits for ever; here, half a minute."""

    def expired(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def assert_one_line(code: int, errors: str) -> None:
    assert code == 2, errors
    assert errors.startswith("smatter: ") and errors.endswith("\n") and errors.count("\n") == 1
    assert errors[:-1].isprintable()
    assert "Traceback" not in errors and "internal error" not in errors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_is_refused_in_one_line_and_nothing_is_written(
    case: Case, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    words = case.lay_out(shelf)
    before = snapshot(shelf.root)
    capsys.readouterr()
    code = main(words)
    errors = capsys.readouterr().err
    assert_one_line(code, errors)
    assert case.naming in errors
    assert case.remedy in errors
    assert snapshot(shelf.root) == before


@pytest.mark.parametrize("case", hostile_libraries.CASES.values(), ids=lambda case: case.name)
def test_checking_a_spoiled_library_ends_in_a_verdict(
    case: Case, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    case.lay_out(shelf)
    capsys.readouterr()
    code = main(["library", "check", str(shelf.library), "--json"])
    output, errors = capsys.readouterr()
    if errors:
        assert_one_line(code, errors)
    else:
        assert code == (0 if json.loads(output)["ok"] else 2)


def test_a_sound_shelf_is_accepted(shelf: Shelf) -> None:
    """Without the fault, the commands of the table succeed: it is the fault that is refused."""
    assert main(shelf.add(shelf.candidate())) == 0
    assert main(shelf.add(shelf.sharded("sharded"))) == 0
    for name in ("law", "code", "news", "poem", "soft", "candidate", "sharded"):
        words = ["compose", str(shelf.library), "--weights", f"{name}=1", "-o", str(shelf.root / f"out-{name}")]
        assert main(words) == 0
    assert main(shelf.compose_recipe(shelf.export / "recipe.safetensors")) == 0
    assert main(["library", "check", str(shelf.library)]) == 0


def test_the_hugging_face_cache_is_welcome(shelf: Shelf) -> None:
    home = shelf.root / "models--owner--name"
    snapshot_folder = home / "snapshots" / "0123abcd"
    snapshot_folder.parent.mkdir(parents=True)
    (home / "blobs").mkdir()
    shelf.candidate().rename(snapshot_folder)
    for number, file in enumerate(sorted(snapshot_folder.iterdir())):
        file.rename(home / "blobs" / f"{number:040x}")
        file.symlink_to(Path("../../blobs") / f"{number:040x}")
    assert main(shelf.add(snapshot_folder)) == 0
    assert main(shelf.compose("owner--name=1")) == 0


def test_a_sealed_source_that_is_tampered_with_is_noticed(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seal spares hashing; restoring size and time stamp after a change must not deceive it."""
    monkeypatch.setattr(hashing, "RACY_NANOSECONDS", -(10**18))
    plan = ["compose", str(shelf.library), "--weights", "base=.5,law=.5"]
    assert main(plan) == 0
    assert (shelf.library / ".smatter-seal.json").exists()
    with monkeypatch.context() as without_hashing:
        without_hashing.setattr(hashing, "file_digest", None)
        assert main(plan) == 0
    file = shelf.library / "checkpoints/law/model.safetensors"
    status = file.stat()
    with file.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        opened.write(b"\x01")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    capsys.readouterr()
    code = main(plan)
    errors = capsys.readouterr().err
    assert_one_line(code, errors)
    assert str(file) in errors


Writer = Callable[[Shelf], list[str]]

WRITERS: dict[str, Writer] = {
    "export": lambda shelf: shelf.compose(),
    "export that replaces": lambda shelf: [*shelf.compose()[:-1], str(shelf.export), "--replace"],
    "recipe": lambda shelf: shelf.compose("base=.5,law=.5", "--as", "recipe"),
    "merge": lambda shelf: shelf.compose("base=.5,law=.5", "--as", "mergekit"),
    "init": lambda shelf: shelf.init(shelf.root / "candidate"),
    "add": lambda shelf: shelf.add(shelf.root / "candidate"),
    "add as delta": lambda shelf: shelf.add(shelf.root / "candidate", "--store", "delta"),
    "add the first delta": lambda shelf: [
        "library", "add", str(shelf.root / "bare"), str(shelf.root / "candidate"), "--store", "delta",
    ],
    "remove": lambda shelf: ["library", "remove", str(shelf.library), "code"],
}  # fmt: skip
REFUSALS = {
    errno.ENOSPC: "space", errno.EDQUOT: "quota", errno.EACCES: "permissions", errno.EROFS: "read-only",
    errno.EIO: "choose another",
}  # fmt: skip
"""What a disk may answer, and a word of the remedy."""


def shelf_for_writers(template: Path, root: Path) -> Shelf:
    shelf = copy_shelf(template, root)
    shelf.candidate()
    assert main(["library", "init", str(root / "bare"), str(shelf.library / "checkpoints/base")]) == 0
    return shelf


@pytest.mark.parametrize("writer", WRITERS.values(), ids=list(WRITERS))
def test_a_disk_that_refuses_at_any_moment_changes_nothing_or_all(
    writer: Writer,
    shelf_template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(hashing, "RACY_NANOSECONDS", 10**20)  # no seal, which may be lost without harm
    root = tmp_path / "shelf"
    shelf = shelf_for_writers(shelf_template, root)
    old = snapshot(root)
    assert main(writer(shelf)) == 0
    new = snapshot(root)
    n_refused = 0
    for moment in range(1000):
        number, word = list(REFUSALS.items())[moment % len(REFUSALS)]
        shutil.rmtree(root)
        shelf = shelf_for_writers(shelf_template, root)
        calls: list[str] = []

        def refuse(
            call: str, subject: object, calls: list[str] = calls, moment: int = moment, number: int = number
        ) -> None:
            calls.append(call)
            if len(calls) == moment + 1:
                raise OSError(number, os.strerror(number), None if isinstance(subject, int) else subject)

        capsys.readouterr()
        with monkeypatch.context() as patch:
            hook_disk(patch.setattr, refuse, lambda *_: None)
            code = main(writer(shelf))
        errors = capsys.readouterr().err
        if code == 0:
            assert snapshot(root) == new
        else:
            assert_one_line(code, errors)
            assert str(root) in errors and word in errors.lower()
            assert snapshot(root) == old, calls
            n_refused += 1
        if len(calls) <= moment:
            break
    assert code == 0 and n_refused >= 3


PROGRAM = [sys.executable, "-c", "from smatter.cli.main import run_program; run_program()"]


def run_program(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["weights_cut_short", "weights_a_pipe", "manifest_cut_short", "weights_nan"])
def test_the_program_itself_refuses_as_the_function_does(name: str, shelf: Shelf) -> None:
    case = next(case for case in CASES if case.name == name)
    words = case.lay_out(shelf)
    before = snapshot(shelf.root)
    done = run_program(*words)
    assert_one_line(done.returncode, done.stderr)
    assert case.naming in done.stderr and case.remedy in done.stderr
    assert snapshot(shelf.root) == before


@pytest.mark.parametrize("product", ["folder", "recipe"])
def test_a_real_limit_on_file_sizes_is_explained(product: str, tmp_path: Path) -> None:
    """The kernel itself refuses here: a file beyond 32 bytes, or 1 kB, cannot be written."""
    base = write_checkpoint(tmp_path / "base", sound_tensors(0))
    assert main(["library", "init", str(tmp_path / "library"), str(base)]) == 0
    before = snapshot(tmp_path)
    limit = 1000 if product == "folder" else 32
    done = run_program(
        "compose", str(tmp_path / "library"), "--weights", "base=1", "--as", product, "-o", str(tmp_path / "out"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert_one_line(done.returncode, done.stderr)
    assert str(tmp_path / "out") in done.stderr and "size limit" in done.stderr
    assert snapshot(tmp_path) == before


def test_names_that_the_terminal_cannot_show_are_no_error(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "bäse", sound_tensors(0))
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = run_program("library", "init", str(tmp_path / "lïbrary"), str(base), env=environment)
    assert done.returncode == 0 and done.stderr == ""
    done = run_program("library", "list", str(tmp_path / "lïbrary"), env=environment)
    assert done.returncode == 0 and "b\\xe4se" in done.stdout


@pytest.mark.parametrize("name", [b"caf\xe9", b"two\nlines"])
def test_folders_of_any_name_are_added_or_refused_in_one_line(
    name: bytes, shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shelf.root / os.fsdecode(name)
    shelf.candidate().rename(folder)
    capsys.readouterr()
    code = main(shelf.add(folder))
    if code:
        assert_one_line(code, capsys.readouterr().err)
    assert main(["library", "list", str(shelf.library), "--json"]) == 0


def test_a_leftover_of_a_process_with_our_number_is_no_obstacle(shelf: Shelf) -> None:
    """In a container every run may have the same process number as the one that was killed."""
    for suffix in (str(os.getpid()), f"{os.getpid()}-0123abcd", "99999999999999999999", "x", ""):
        leftover = shelf.root / f".out.partial-{suffix}"
        leftover.mkdir()
        (leftover / "model.safetensors").write_bytes(encode({QUERY: ("F32", np.zeros(1, np.float32))}))
    assert main(shelf.compose()) == 0
    assert not list(shelf.root.glob(".out.partial-*"))


def test_an_output_without_a_name_is_refused(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shelf.root / "empty").mkdir()
    monkeypatch.chdir(shelf.root / "empty")
    for output in (".", "", ".."):
        for product in ("folder", "recipe", "mergekit"):
            capsys.readouterr()
            code = main(["compose", str(shelf.library), "--weights", "base=1", "--as", product, "-o", output])
            assert_one_line(code, capsys.readouterr().err)
    assert not list((shelf.root / "empty").iterdir())


def test_weights_that_overflow_in_storage_are_refused_and_nothing_stays(
    shelf: Shelf, capsys: pytest.CaptureFixture[str]
) -> None:
    """The delta of two huge values of opposite sign is infinite in bfloat16."""
    tensors = sound_tensors(0)
    huge = ("F32", np.full((8, 8), 3e38, np.float32))
    base = write_checkpoint(shelf.root / "huge", tensors | {OUTPUT: huge})
    assert main(shelf.init(base)) == 0
    folder = shelf.candidate(tensors=tensors | {OUTPUT: ("F32", -huge[1])})
    before = snapshot(shelf.root)
    capsys.readouterr()
    code = main(["library", "add", str(shelf.root / "new"), str(folder), "--store", "bf16-delta"])
    errors = capsys.readouterr().err
    assert_one_line(code, errors)
    assert OUTPUT in errors
    assert snapshot(shelf.root) == before
