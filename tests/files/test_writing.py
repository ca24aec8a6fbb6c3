"""Temporary files have an owner that a lock tells, permissions stay, nothing that appears meanwhile is lost."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smatter.errors import AlreadyExists, CannotWrite
from smatter.files.writing import locked_folder, new_folder, new_text, write_file

HOLD = """
import sys, time
from pathlib import Path
from smatter.files import writing
path = Path(sys.argv[1])
with writing.new_folder(path) as temporary:
    (temporary / "half").write_text("half")
    print("at work", flush=True)
    time.sleep(60)
"""


def holder(path: Path, *before: str) -> subprocess.Popen[str]:
    """A process that is half way through writing a folder."""
    command = [*before, sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    if process.stdout.readline() != "at work\n":
        process.wait()
        pytest.skip("no other process can be made this way here")
    return process


@pytest.mark.parametrize("before", [(), ("unshare", "--fork", "--pid", "--mount-proc")], ids=["process", "namespace"])
def test_temporaries_belong_to_who_locks_them(tmp_path: Path, before: tuple[str, ...]) -> None:
    """In another container the same process numbers are others' processes."""
    process = holder(tmp_path / "out", *before)
    (leftover,) = tmp_path.glob(".out.partial-*")
    with new_folder(tmp_path / "out") as temporary:
        (temporary / "whole").write_text("whole")
    assert (leftover / "half").read_text() == "half"  # somebody is at work on it
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 10
    while leftover.exists() and time.monotonic() < deadline:
        with new_folder(tmp_path / "out", replace=True) as temporary:
            (temporary / "whole").write_text("whole")
    assert not leftover.exists() and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write_file(path, b"one")
    path.chmod(0o640)
    write_file(path, b"two")
    assert path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o640
    umask = os.umask(0o027)
    try:
        write_file(tmp_path / "new", b"")
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(umask)


def test_what_has_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with pytest.raises(AlreadyExists, match="meanwhile"), new_text(path) as file:
        file.write("ours")
        path.write_text("theirs")
    assert path.read_text() == "theirs" and [each.name for each in tmp_path.iterdir()] == ["out.csv"]


def test_a_busy_folder_says_who_has_it_and_is_given_up(tmp_path: Path) -> None:
    script = "import fcntl, os, sys, time; fcntl.flock(os.open(sys.argv[1], 0), 2); print('held'); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-u", "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "held\n"
    told = rf"in use by (process {process.pid} \(|another process)"
    with pytest.raises(CannotWrite, match=told), locked_folder(tmp_path, 0.2):
        pass
    process.kill()
    process.communicate()
    with locked_folder(tmp_path, 0.2), new_folder(tmp_path / "new") as own, locked_folder(own, 0.2):
        pass  # what nobody else knows of is ours


def test_a_signal_while_cleaning_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    remove, calls = shutil.rmtree, []

    def interrupted(path: Path, ignore_errors: bool) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        remove(path, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "out", replace=True) as folder:
        (folder / "new").write_text("new")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new"]


def test_a_temporary_file_that_cannot_be_deleted_does_not_hide_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_source: Path, _target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def refused(_path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "replace", full)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(CannotWrite, match="the disk is full"):
        write_file(tmp_path / "file", b"content")
