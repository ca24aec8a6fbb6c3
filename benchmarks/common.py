"""What the benchmarks share: interleaved timing, ratios with intervals, the machine, the result file."""

import ctypes
import json
import os
import platform
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".bench"
RESULTS = ROOT / "benchmarks" / "results"
PLAIN_PROCESS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "HF_HUB_OFFLINE"), "1")
"""Environment of a subprocess: one thread, no network."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Interval:
    """A median with a 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], seed: int = 0, n_resamples: int = 4000) -> "Interval":
        sample = np.asarray(values)
        draws = np.random.default_rng(seed).integers(sample.size, size=(n_resamples, sample.size))
        low, high = np.quantile(np.median(sample[draws], axis=1), [0.025, 0.975])
        return cls(float(np.median(sample)), float(low), float(high))


@dataclass(frozen=True)
class Timings:
    """Seconds and page faults of each case, one entry a round."""

    seconds: Mapping[str, Sequence[float]]
    faults: Mapping[str, Sequence[int]]

    def median(self, case: str) -> float:
        return float(np.median(self.seconds[case]))

    def ratio(self, slow: str, fast: str) -> Interval:
        """How many times longer `slow` takes: the median of the ratios within each round."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return Interval.of([above / below for above, below in pairs])

    def fastest(self, start: str = "") -> str:
        """The fastest of the cases whose name starts so."""
        return min((case for case in self.seconds if case.startswith(start)), key=self.median)

    def rows(self, peer: str, **labels: Any) -> Rows:
        """A table: every case with its time, and how many times faster than `peer` it is."""
        table = []
        for case in sorted(self.seconds, key=self.median):
            seconds, faster = Interval.of(self.seconds[case]), self.ratio(peer, case)
            table.append(
                {
                    "case": case, **labels, "seconds": seconds.median, "seconds_low": seconds.low,
                    "seconds_high": seconds.high, "times_faster": faster.median, "times_faster_low": faster.low,
                    "times_faster_high": faster.high, "page_faults": int(np.median(self.faults[case])),
                }
            )  # fmt: skip
        return table


def interleave(
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    before: Callable[[str], object] | None = None,
    tick: Callable[[], object] | None = None,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Timings:
    """Time every case once a round, in a new order each round; a first round only warms up.

    Args:
        cases: what to time; a result is dropped, untimed, before the next case starts.
        rounds: rounds that count.
        before: untimed preparation of each call, told its case.
        tick: told of each finished call.
        seed: of the orders.
        clock: wall time, unless a case that uses one thread is timed by its processor's on a busy machine.
    """
    generator, order = random.Random(seed), list(cases)
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    faults: dict[str, list[int]] = {case: [] for case in cases}
    for index in range(rounds + 1):
        generator.shuffle(order)
        for case in order:
            if before:
                before(case)
            faults_before = _page_faults()
            start = clock()
            result = cases[case]()
            elapsed = clock() - start
            if index:
                seconds[case].append(elapsed)
                faults[case].append(_page_faults() - faults_before)
            del result
            if tick:
                tick()
    return Timings(seconds, faults)


def keep_freed_memory() -> None:
    """Let glibc's malloc keep all that is freed from now on, so that timings do not depend on what it gave back.

    It decides by its own history what to return to the system, and fresh pages can cost more than the arithmetic.
    This is the best state that a long-running process can be in. Elsewhere than on glibc nothing happens.
    """
    if hasattr(_LIBC, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3
        _LIBC.mallopt(mmap_threshold, 32 << 20)
        _LIBC.mallopt(trim_threshold, 2**31 - 1)


_LIBC = ctypes.CDLL(None)


def _page_faults() -> int:
    """Of this process and of the subprocesses it has waited for."""
    return sum(resource.getrusage(who).ru_minflt for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@contextmanager
def stage(label: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error; call what it gives for each of `total` steps."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total)
        yield lambda: progress.advance(task)


JOB_FRAME = """
import json, sys
job = json.loads(sys.argv[1])
def wait():
    print("at a stop", flush=True)
    sys.stdin.readline()
{}
wait()
"""


def peak_memory(program: str, job: Mapping[str, Any]) -> dict[str, float]:
    """Megabytes of anonymous and of mapped memory of a fresh process, looked at every 5 ms until its work is done.

    Args:
        program: Python text: imports, then `wait()`, then the work on the dictionary `job`.
        job: what the work needs.
    """
    command = [sys.executable, "-c", JOB_FRAME.format(program), json.dumps(job)]
    environment = os.environ | PLAIN_PROCESS
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stdin and process.stdout
    finished, peak = threading.Event(), {"RssAnon": 0.0, "RssFile": 0.0}

    def now() -> dict[str, float]:
        lines = (line.split() for line in _lines(f"/proc/{process.pid}/status"))
        return {words[0][:-1]: int(words[1]) * 1024 / 1e6 for words in lines if words[0][:-1] in peak}

    def watch() -> None:
        while not finished.wait(0.005):
            for key, value in now().items():
                peak[key] = max(peak[key], value)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.stdout.readline()
    after_imports = now()
    process.stdin.write("\n")
    process.stdin.flush()
    worked = process.stdout.readline()
    finished.set()
    watcher.join()
    process.communicate("\n")
    if not worked:
        raise SystemExit(f"this program failed:{program}")
    return {
        "peak_anonymous_mb": peak["RssAnon"],
        "anonymous_after_imports_mb": after_imports["RssAnon"],
        "growth_in_work_mb": peak["RssAnon"] - after_imports["RssAnon"],
        "peak_mapped_mb": peak["RssFile"],
    }


def machine(packages: Sequence[str], threads: int) -> dict[str, Any]:
    """What the numbers depend on; nothing that names a host or a path."""

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    from smatter.devices.fingerprint import matrix_instructions, processor  # after threads are set

    return {
        "cpu": processor(),
        "matrix_instructions": " ".join(matrix_instructions()),
        "cores": os.cpu_count(),
        "ram_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
        "huge_pages": "".join(_lines("/sys/kernel/mm/transparent_hugepage/enabled")),
        "python": platform.python_version(),
        "threads": threads,
    } | {package: installed(package) for package in packages}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def commit() -> str:
    """The commit that was measured; marked when the sources differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "HEAD") + (" with changes in src" if git("status", "--porcelain", "src") else "")


COMMIT = commit()
"""As it was when the run began."""


def _plain(word: str) -> str:
    """A word of a command; of a path on this machine its last part."""
    return Path(word).name if Path(word).is_absolute() else word


def write_result(
    name: str,
    figures: Mapping[str, float],
    tables: Mapping[str, Any],
    machine: Mapping[str, Any],
    seconds: float,
    quick: bool,
) -> Path:
    """Write benchmarks/results/NAME.json; a quick run goes to the scratch folder instead."""
    path = SCRATCH / f"{name}.quick.json" if quick else RESULTS / f"{name}.json"
    result = {
        "name": name,
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *map(_plain, sys.argv[1:])]),
        "commit": COMMIT,
        "machine": machine,
        "seconds": round(seconds, 1),
        "figures": figures,
        "tables": tables,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(result), indent=1) + "\n")
    return path


def _rounded(value: Any) -> Any:
    """Four significant digits for every number with a fraction: more would be noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def show(title: str, rows: Rows) -> None:
    """Print rows as a table; bounds stand beside their median, and what a row has not is left empty."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if not key.endswith(("_low", "_high"))]
    table = Table(title=title, title_justify="left")
    for key in keys:
        table.add_column(key.replace("_", " "), justify="left" if isinstance(rows[0].get(key), str) else "right")
    for row in rows:
        table.add_row(*(_cell(row.get(key, ""), row.get(f"{key}_low"), row.get(f"{key}_high")) for key in keys))
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def _cell(value: Any, low: float | None, high: float | None) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if low is None else f"{text} ({low:.3g} to {high:.3g})"
