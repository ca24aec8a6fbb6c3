"""A process that has imported everything and forks a child per command, watches it, and can kill it.

Each line on standard input is a JSON list of jobs that run at the same time, the answer a line with one result each.
A child is the program itself: `smatter.cli.main.run_program` in a process of its own, without the seconds of imports.
Whoever opens an internet connection or starts a program in it is refused and counted.
"""

import ctypes
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

LOOK_SECONDS = 0.004
WALL_SECONDS, SURVIVED_SECONDS = 120.0, 10.0
"""After which a child that uses no processor hangs too."""


@dataclass
class Child:
    """A command that is running.

    Args:
        job: `words`, the command line; `then`, further ones to run after it; `folder` to run in; `cpu`, seconds of
            processor time that it may take; `bytes` of memory at which it is stopped; `signal` to send, `after` seconds
            or before the disk call number `at`; `count`, whether disk calls are counted; `input` for stdin.
    """

    job: dict[str, Any]
    pid: int = 0
    started: float = 0.0
    peak: int = 0
    files: dict[str, BinaryIO] = field(default_factory=dict)
    result: dict[str, Any] | None = None

    def start(self) -> None:
        self.files = {name: tempfile.TemporaryFile() for name in ("input", "out", "err", "told")}  # noqa: SIM115
        self.files["input"].write(self.job.get("input", "").encode(errors="surrogateescape"))
        self.files["input"].seek(0)
        self.started = time.perf_counter()
        self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                os.setsid()
                code = run(self.job, self.files)
            finally:
                os._exit(code)

    def look(self, base: dict[str, int]) -> None:
        """See what it does, and stop it where that was asked for or it takes too much."""
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        seconds = time.perf_counter() - self.started
        if pid:
            self.result = self.answer(os.waitstatus_to_exitcode(status), usage, seconds, base)
            return
        self.peak = max(self.peak, memory(self.pid)["RssAnon"] - base["RssAnon"])
        if (limit := self.job.get("bytes")) and self.peak > limit:
            os.kill(self.pid, signal.SIGKILL)
        after = self.job.get("after")
        if after is not None and seconds >= after:
            os.kill(self.pid, self.job["signal"])
            self.job["after"] = None
        if seconds > WALL_SECONDS:
            os.kill(self.pid, signal.SIGKILL)

    def answer(self, code: int, usage: Any, seconds: float, base: dict[str, int]) -> dict[str, Any]:
        texts = {}
        for name in ("out", "err", "told"):
            self.files[name].seek(0)
            texts[name] = self.files[name].read().decode(errors="surrogateescape")
        told = [json.loads(line) for line in texts["told"].splitlines()]
        for file in self.files.values():
            file.close()
        return {
            "code": code,
            "seconds": seconds,
            "cpu": usage.ru_utime + usage.ru_stime,
            "growth": max(self.peak, usage.ru_maxrss * 1024 - base["VmRSS"]),
            "out": texts["out"],
            "err": texts["err"],
            "sockets": [each["socket"] for each in told if "socket" in each],
            "programs": [each["program"] for each in told if "program" in each],
            "calls": sum("call" in each for each in told),
            "left": survivors(self.pid),
        }


def memory(pid: int) -> dict[str, int]:
    """Bytes that a process has in memory, in all and without mapped files; none of one that has ended."""
    found = {"VmRSS": 0, "RssAnon": 0}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if (name := line.split(":")[0]) in found:
                found[name] = int(line.split()[1]) * 1024
    return found


def survivors(group: int) -> int:
    """Whether processes of a command outlive it by seconds; they are ended."""
    try:
        for _ in range(int(SURVIVED_SECONDS / 0.05)):
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return 0
    return 1


def run(job: dict[str, Any], files: dict[str, BinaryIO]) -> int:
    """Be the program; returns its exit code."""
    told = files["told"]

    def tell(what: str, value: str) -> None:
        told.write(json.dumps({what: value}).encode() + b"\n")
        told.flush()

    for number, name in enumerate(("input", "out", "err")):
        os.dup2(files[name].fileno(), number)
    for name in ("stdin", "stdout", "stderr"):
        mode = "r" if name == "stdin" else "w"
        stream = open(("stdin", "stdout", "stderr").index(name), mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(job["folder"])
    seconds = int(job.get("cpu", 60))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    refuse_outside(tell)
    be_nobody_special()
    if job.get("count") or job.get("at") is not None:
        hook(job, tell)
    from smatter.cli.main import run_program

    gc.enable()
    code = 0
    for words in (job["words"], *job.get("then", [])):
        sys.argv = ["smatter", *words]
        try:
            run_program()
        except SystemExit as ended:
            code = max(code, ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def refuse_outside(tell: Any) -> None:
    """Refuse and count connections and programs; local sockets between our own processes are none."""

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.getaddrinfo", "socket.gethostbyname") or (
            event in ("socket.connect", "socket.sendto") and arguments[0].family != socket.AF_UNIX
        ):
            tell("socket", f"{event} {arguments[0] if event.startswith('socket.get') else arguments[1]}"[:200])
            raise OSError(101, "the network is blocked")
        if event in ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pty.spawn"):
            words = str(arguments[1] if len(arguments) > 1 else arguments[0])
            if "multiprocessing" not in words:
                tell("program", words[:200])

    sys.addaudithook(heard)


def be_nobody_special() -> None:
    """Give up what the administrator may do, so that permissions hold for us too; a file's owner we stay."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    libc.capset(header, nothing)


def hook(job: dict[str, Any], tell: Any) -> None:
    """Count the calls that change the disk, and send the signal before one of them."""
    from disk_calls import hook_disk

    calls = 0

    def step(name: str) -> None:
        nonlocal calls
        if calls == job.get("at"):
            os.kill(os.getpid(), job["signal"])
        calls += 1
        if job.get("count"):
            os.write(told_fd, json.dumps({"call": name}).encode() + b"\n")

    told_fd = tell.__closure__[0].cell_contents.fileno()
    hook_disk(setattr, lambda call, _: step(call), lambda call, _: step(f"{call} done"), deletions=True)


def warm_up(commands: list[list[str]]) -> None:
    """Import and compile all that commands need, by running some in this process."""
    import io
    from contextlib import redirect_stderr, redirect_stdout

    import torch
    import transformers  # noqa: F401

    from smatter.cli.main import main

    torch.set_num_threads(1)
    for words in commands:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
            code = main(words)
        assert code == 0, (words, errors.getvalue())
    gc.collect()
    gc.freeze()
    gc.disable()


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        jobs = json.loads(line)
        if isinstance(jobs, dict):
            warm_up(jobs["warm"])
            print("null", file=answers, flush=True)
            continue
        base = memory(os.getpid())
        children = [Child(job) for job in jobs]
        for child in children:
            child.start()
        while running := [child for child in children if child.result is None]:
            for child in running:
                child.look(base)
            time.sleep(LOOK_SECONDS)
        print(json.dumps([child.result for child in children]), file=answers, flush=True)


if __name__ == "__main__":
    serve()
