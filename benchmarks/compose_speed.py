"""Mixing R checkpoints of BERT-base size: Smatter beside mergekit, a plain torch loop and the copy limit.

The network is DistilBERT with twelve layers and a classifier: 109.5 M parameters, BERT-base's count. BertModel
itself cannot be the example, because mergekit 0.1.5 stops on it (it adds a list to a tuple in `plan_tensor`).
Everything runs on one thread. --quick gives the same tables from a small network in about a minute.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from common import (
    PLAIN_PROCESS,
    SCRATCH,
    Rows,
    Timings,
    interleave,
    keep_freed_memory,
    machine,
    peak_memory,
    show,
    stage,
    write_result,
)

if TYPE_CHECKING:
    import torch

    from smatter.library.library import Library

NAME = "compose_speed"
ARCHITECTURE = "DistilBertForSequenceClassification"
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
N_SOURCES = {"fp32": 4, "bf16": 16}
PEER = "mergekit"
OURS = "Smatter compiled, reused arena"
WITHOUT_EXTRA = "Smatter without the extra, reused arena"
EXPORT = "Smatter export"
COPY = "copy limit"
UNSYNCED = ", fsync made a no-op"

FRESH = ", fresh memory"

Case = Callable[[], Any]
Prepare = Callable[[str], Any]


@dataclass(frozen=True)
class Size:
    """How large the network is and how often each case is timed."""

    network: Mapping[str, int]
    rounds: int
    few_rounds: int
    commands: int
    processes: int


FULL = Size({"n_layers": 12}, rounds=9, few_rounds=4, commands=5, processes=3)
QUICK = Size(
    {"n_layers": 4, "dim": 256, "hidden_dim": 1024, "n_heads": 4}, rounds=5, few_rounds=2, commands=1, processes=1
)


@dataclass(frozen=True)
class Data:
    """Checkpoint folders and libraries on disk."""

    folder: Path

    def names(self, n_sources: int) -> list[str]:
        return [f"s{index:02}" for index in range(n_sources)]

    def weights(self, n_sources: int) -> dict[str, float]:
        """Unequal weights on the simplex."""
        total = n_sources * (n_sources + 1) / 2
        return {name: (index + 1) / total for index, name in enumerate(self.names(n_sources))}

    def source(self, dtype: str, name: str) -> Path:
        return self.folder / dtype / name

    def weight_file(self, dtype: str, name: str) -> Path:
        return self.source(dtype, name) / "model.safetensors"

    def library(self, dtype: str) -> Path:
        return self.folder / f"library-{dtype}"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def clear_output(self, _case: str = "") -> None:
        """Room for the next writer, and a disk that is no longer busy with the last one's pages."""
        shutil.rmtree(self.output, ignore_errors=True)
        os.sync()


def prepare(folder: Path, network: Mapping[str, int]) -> Data:
    """The data of an earlier run when it is intact, else new data."""
    from smatter.errors import SmatterError
    from smatter.library.library import open_library

    data, described = Data(folder), json.dumps([1, ARCHITECTURE, dict(network), N_SOURCES])
    try:
        if (folder / "made.json").read_text() == described:
            for dtype in DTYPES:
                open_library(data.library(dtype)).verify()
            return data
    except (OSError, SmatterError):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    with stage("making checkpoints and libraries", sum(N_SOURCES.values())) as tick:
        for dtype in DTYPES:
            make_sources(data, dtype, network)
            make_library(data, dtype, tick)
    time.sleep(2.1)  # Smatter seals no file as young as this
    for dtype in DTYPES:
        open_library(data.library(dtype)).verify()
    (folder / "made.json").write_text(described)
    return data


def make_sources(data: Data, dtype: str, network: Mapping[str, int]) -> None:
    """Hugging Face folders: one random network, and for each source small noise of its own."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(**network, architectures=[ARCHITECTURE], dtype=DTYPES[dtype])
    with torch.device("meta"):
        shapes = {name: value.shape for name, value in DistilBertForSequenceClassification(config).state_dict().items()}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"word{index}" for index in range(config.vocab_size - len(special)))]
    tokenizer = Tokenizer(WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    generator = torch.Generator().manual_seed(0)
    base = {name: 0.05 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    for name in data.names(N_SOURCES[dtype]):
        folder = data.source(dtype, name)
        folder.mkdir(parents=True)
        values = {key: value + 0.005 * torch.randn(value.shape, generator=generator) for key, value in base.items()}
        stored = {key: value.to(getattr(torch, DTYPES[dtype])) for key, value in values.items()}
        save_file(stored, data.weight_file(dtype, name), {"format": "pt"})
        config.save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "DistilBertTokenizer"}))


def make_library(data: Data, dtype: str, tick: Callable[[], None]) -> None:
    """One library of all sources of a dtype."""
    from smatter.library.edit import add_source, init_library

    base, *others = data.names(N_SOURCES[dtype])
    init_library(data.library(dtype), data.source(dtype, base))
    tick()
    for name in others:
        add_source(data.library(dtype), data.source(dtype, name))
        tick()


class Resident:
    """Sources in memory, as a reader of `compose.execute`."""

    def __init__(self, library: "Library", states: Mapping[str, Mapping[str, "torch.Tensor"]]) -> None:
        import torch

        self._specs = library.specs
        self._arrays = {
            source: {
                name: (value.view(torch.uint16) if value.dtype == torch.bfloat16 else value).numpy().reshape(-1)
                for name, value in state.items()
            }
            for source, state in states.items()
        }

    def spec(self, _source: str, tensor: str) -> Any:
        return self._specs[tensor]

    def read(self, source: str, tensor: str, start: int, stop: int) -> Any:
        return self._arrays[source][tensor][start:stop]


def without_extra() -> AbstractContextManager[Any]:
    """Smatter as it computes where numba is not installed."""
    from smatter.compose import blocked, execute

    return patch.object(execute, "_kernel", lambda _compiled: blocked.blend_blocked)


def memory_settings(dtype: str, states: Sequence[Any], weights: Sequence[float]) -> dict[str, Case]:
    """mergekit's `linear` in every setting that sums in float32 and returns the sources' dtype.

    It keeps its sum in float32 by itself; asked for `dtype=float32` it also converts the sources first.
    """
    import torch
    from mergekit.merge_methods import BatchOptions, merge_state_dicts

    batches: dict[str, dict[str, Any]] = {"": {}, ", one by one": {"batch_options": BatchOptions(max_groups=1)}}
    scalings: dict[str, dict[str, Any]] = {"": {}, ", not normalised": {"normalize": False}}
    types: dict[str, dict[str, Any]] = {"": {}}
    if dtype == "bf16":
        types[", converted"] = {"dtype": torch.float32, "out_dtype": torch.bfloat16}

    def case(parameters: dict[str, Any], arguments: dict[str, Any]) -> Case:
        return lambda: merge_state_dicts(states, "linear", parameters=parameters, **arguments)

    return {
        f"default{batch}{scaling}{kind}": case(
            {"weight": list(weights)} | scalings[scaling], batches[batch] | types[kind]
        )
        for batch in batches
        for scaling in scalings
        for kind in types
    }


def fastest_setting(settings: Mapping[str, Case], label: str, before: Prepare | None = None) -> tuple[str, Rows]:
    """The peer's best of all settings, and how they compared."""
    with stage(f"mergekit's settings, {label}", 4 * len(settings)) as tick:
        tried = interleave(settings, 3, before, tick)
    return tried.fastest(), tried.rows("default", work=label)


def measure_memory(
    data: Data, dtype: str, n_sources: int, rounds: int, setting: str, recycled: bool = False
) -> tuple[Timings, dict[str, Any]]:
    """Time resident sources to a result in memory; also says what was checked.

    `recycled`: let the peer run once untimed before each timed call, so that it finds the pages it frees.
    """
    import torch
    from safetensors.torch import load_file

    from smatter.compose.execute import Arena
    from smatter.compose.mixture import Mixture
    from smatter.library.library import open_library

    weights = data.weights(n_sources)
    states = {name: _copied(load_file(data.weight_file(dtype, name))) for name in weights}
    library = open_library(data.library(dtype))
    plan, reader = library.plan(Mixture.of(weights)), Resident(library, states)
    arena = Arena(plan.specs)

    def naive() -> dict[str, torch.Tensor]:
        pairs = list(zip(weights.values(), states.values(), strict=True))
        return {
            name: sum((weight * state[name].float() for weight, state in pairs), torch.tensor(0.0)).to(value.dtype)
            for name, value in pairs[0][1].items()
        }

    def ours(reused: bool, compiled: bool) -> Arena:
        with nullcontext() if compiled else without_extra():
            return (arena if reused else Arena(plan.specs)).fill(plan, reader, threads=1)

    settings, tried = memory_settings(dtype, list(states.values()), list(weights.values())), []
    if not setting:
        setting, tried = fastest_setting(settings, f"{n_sources} {dtype} in memory")
    cases: dict[str, Case] = {
        f"{PEER}, fastest setting": settings[setting],
        f"{PEER}, default setting": settings["default"],
        "torch, one sum a tensor": naive,
        OURS: lambda: ours(reused=True, compiled=True),
        WITHOUT_EXTRA: lambda: ours(reused=True, compiled=False),
        f"Smatter compiled{FRESH}": lambda: ours(reused=False, compiled=True),
        f"Smatter without the extra{FRESH}": lambda: ours(reused=False, compiled=False),
    }

    def ready(case: str) -> None:
        if case.startswith(PEER) and recycled:
            cases[case]()

    with stage(f"{n_sources} {dtype} in memory", (rounds + 1) * len(cases)) as tick:
        timings = interleave(cases, rounds, ready, tick)
    fused, blocked = ours(reused=False, compiled=True), ours(reused=True, compiled=False)
    return timings, {
        "bit_equal": all(np.array_equal(fused.array(name), blocked.array(name)) for name in plan.specs),
        "difference": difference(fused.tensors(), settings[setting](), dtype),
        "setting": setting,
        "tried": tried,
    }


def _copied(state: Mapping[str, "torch.Tensor"]) -> dict[str, "torch.Tensor"]:
    return {name: value.clone() for name, value in state.items()}


def difference(ours: Mapping[str, "torch.Tensor"], theirs: Mapping[str, "torch.Tensor"], dtype: str) -> float:
    """The largest absolute difference; stops the benchmark where it is more than rounding."""
    if set(ours) != set(theirs):
        raise SystemExit(f"tensors differ: {sorted(set(ours) ^ set(theirs))[:5]}")
    step = 2.0**-7 if dtype == "bf16" else 2.0**-21  # of a value: one step of bfloat16, four of float32
    largest = 0.0
    for name, value in ours.items():
        mine, other = value.float(), theirs[name].float()
        apart = (mine - other).abs()
        if value.dtype != theirs[name].dtype or bool((apart > step * mine.abs().maximum(other.abs()) + 1e-7).any()):
            raise SystemExit(f"{name} differs from mergekit's by up to {apart.max():.3g}, more than rounding")
        largest = max(largest, float(apart.max()))
    return largest


def merge_config(data: Data, dtype: str, n_sources: int) -> dict[str, Any]:
    """What mergekit's YAML file would say."""
    models = [
        {"model": str(data.source(dtype, name)), "parameters": {"weight": weight}}
        for name, weight in data.weights(n_sources).items()
    ]
    return {"merge_method": "linear", "models": models}


def disk_settings(data: Data, dtype: str, n_sources: int) -> dict[str, Case]:
    """mergekit's `run_merge` as its users may set it; its process-wide cache of open files stays as it is."""
    from mergekit.config import MergeConfiguration
    from mergekit.merge import run_merge
    from mergekit.options import MergeOptions

    def case(config: dict[str, Any], **options: bool) -> Case:
        return lambda: run_merge(
            MergeConfiguration.model_validate(merge_config(data, dtype, n_sources) | config),
            str(data.output),
            MergeOptions(cuda=False, copy_tokenizer=False, lazy_unpickle=True, quiet=True, **options),
        )

    converted = {"converted": case({"dtype": "float32", "out_dtype": "bfloat16"})} if dtype == "bf16" else {}
    return converted | {
        "default": case({}),
        "not normalised": case({"parameters": {"normalize": False}}),
        "async_write": case({}, async_write=True),
        "low_cpu_memory": case({}, low_cpu_memory=True),
    }


def measure_disk(data: Data, dtype: str, n_sources: int, rounds: int, setting: str) -> tuple[Timings, dict[str, Any]]:
    """Time checkpoint folders to a checkpoint folder, all sources in the page cache; also says what was checked."""
    from mergekit.io.tasks import LoaderCache
    from safetensors.torch import load_file

    from smatter.compose.mixture import Mixture
    from smatter.library.export import export
    from smatter.library.library import open_library

    mixture, files = Mixture.of(data.weights(n_sources)), [data.weight_file(dtype, s) for s in data.names(n_sources)]

    def ours() -> None:
        export(open_library(data.library(dtype)), mixture, data.output, threads=1)

    def opened_anew() -> None:
        LoaderCache().loaders.clear()
        settings[setting]()

    def copy() -> None:
        copy_limit(files, data.output)

    def unsynced(work: Case) -> None:
        with patch("os.fsync"):
            work()

    settings, tried = disk_settings(data, dtype, n_sources), []
    if not setting:
        setting, tried = fastest_setting(settings, f"{n_sources} {dtype} on disk", data.clear_output)
    cases: dict[str, Case] = {
        f"{PEER}, fastest setting": settings[setting],
        f"{PEER}, fastest setting, files opened anew": opened_anew,
        EXPORT: ours,
        EXPORT + UNSYNCED: lambda: unsynced(ours),
        COPY: copy,
        COPY + UNSYNCED: lambda: unsynced(copy),
    }
    with stage(f"{n_sources} {dtype} on disk", (rounds + 1) * len(cases)) as tick:
        timings = interleave(cases, rounds, data.clear_output, tick)
    results = []
    for case in (ours, settings[setting]):
        data.clear_output()
        case()
        results.append(_copied(load_file(data.output / "model.safetensors")))
    return timings, {"difference": difference(*results, dtype), "setting": setting, "tried": tried}


def copy_limit(sources: Sequence[Path], folder: Path) -> None:
    """Read R files and write one of their size, through one small buffer that stays in cache."""
    folder.mkdir()
    buffer = memoryview(bytearray(1 << 20))
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb", buffering=0)) for path in sources]
        out = stack.enter_context((folder / "copy").open("xb", buffering=0)).fileno()
        os.posix_fallocate(out, 0, sources[0].stat().st_size)
        offset = 0
        while length := [file.readinto(buffer) for file in files][-1]:
            offset += os.pwrite(out, buffer[:length], offset)
        os.fsync(out)


def measure_commands(data: Data, rounds: int) -> Timings:
    """Time the two command lines as a shell sees them, imports included."""
    import yaml

    config = data.folder / "merge.yml"
    config.write_text(yaml.safe_dump(merge_config(data, "fp32", 4)))
    mix = ",".join(f"{name}={weight!r}" for name, weight in data.weights(4).items())

    def command(program: str, *arguments: str | Path) -> None:
        words = [Path(sys.executable).parent / program, *arguments]
        finished = subprocess.run(words, env=os.environ | PLAIN_PROCESS, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise SystemExit(f"{program} failed:\n{finished.stderr[-2000:]}")

    cases: dict[str, Case] = {
        "mergekit-yaml": lambda: command(
            "mergekit-yaml", config, data.output, "--quiet", "--lazy-unpickle", "--num-threads", "1"
        ),
        "smatter compose": lambda: command(
            "smatter", "compose", data.library("fp32"), "--weights", mix, "-o", data.output
        ),
    }
    with stage("whole commands", (rounds + 1) * 2) as tick:
        return interleave(cases, rounds, data.clear_output, tick)


JOBS = {
    "mergekit run_merge": """
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
wait()
options = MergeOptions(cuda=False, copy_tokenizer=False, lazy_unpickle=True, quiet=True)
run_merge(MergeConfiguration.model_validate(job["config"]), job["output"], options)
""",
    EXPORT: """
from smatter.compose import fused
from smatter.compose.mixture import Mixture
from smatter.library.export import export
from smatter.library.library import open_library
wait()
export(open_library(job["library"]), Mixture.of(job["weights"]), job["output"], threads=1)
""",
}


def measure_peaks(data: Data, repeats: int) -> Rows:
    """Memory of a fresh process that mixes four float32 sources disk to disk; medians of `repeats` processes."""
    job = {
        "config": merge_config(data, "fp32", 4), "weights": data.weights(4),
        "library": str(data.library("fp32")), "output": str(data.output),
    }  # fmt: skip
    runs: dict[str, Rows] = {name: [] for name in JOBS}
    with stage("memory of fresh processes", repeats * len(JOBS)) as tick:
        for name in [*JOBS] * repeats:
            data.clear_output()
            runs[name].append(peak_memory(JOBS[name], job))
            tick()
    return [
        {"case": name} | {key: float(np.median([run[key] for run in found])) for key in found[0]}
        for name, found in runs.items()
    ]


NOTES = [
    "times_faster: the median over rounds of mergekit's time divided by the case's, with a 95 % bootstrap interval. "
    "mergekit's time is that of its fastest case in the table.",
    "Memory: sources are resident and a result is dropped before the next call; Smatter writes into an arena that it "
    "keeps, mergekit into memory that it allocates, as its interface has it. malloc is left alone, and what "
    "it gives back to the system differs from process to process: so does mergekit's time, by a factor of up to two.",
    "memory_recycled, memory_speedup_*_over_recycled: the same with malloc told to keep all that is freed and each "
    "timed call of mergekit after an untimed one, so that it too works in pages it had before: its best case.",
    "Disk: sources are in the page cache. Smatter opens the library anew in each round and finds its files sealed: "
    "their sha256 was checked when they had the size, inode and times they have now. mergekit checks no hashes, does "
    "not fsync, and keeps its files open from round to round unless the row says otherwise.",
    "Smatter's export is durable (fsync of files and folders) before it counts as done, and so is the copy it is "
    "compared with; rows without fsync are labelled.",
    "copy_limit_ratio: Smatter export / copy limit, both with fsync; the larger of the two rows with four sources.",
    "anonymous_memory_ratio: largest RssAnon of a fresh process over its whole life, imports included, of Smatter's "
    "export / of mergekit's run_merge; four fp32 sources.",
    "agrees_with_mergekit: largest absolute difference of any fp32 value, in memory or on disk; _bf16: of any bf16 "
    "value, none of which is more than one bfloat16 step away.",
]


@dataclass(frozen=True)
class Outcome:
    """One comparison with its checks."""

    dtype: str
    n_sources: int
    timings: Timings
    checks: Mapping[str, Any]

    def speedup(self, case: str) -> float:
        """Over the fastest of mergekit's cases."""
        return self.timings.ratio(self.timings.fastest(PEER), case).median

    @property
    def rows(self) -> Rows:
        return self.timings.rows(self.timings.fastest(PEER), dtype=self.dtype, sources=self.n_sources)

    @property
    def copies(self) -> Rows:
        """How far the export is from the copy limit, with and without fsync."""
        rows = []
        for suffix in ("", UNSYNCED):
            ratio = self.timings.ratio(EXPORT + suffix, COPY + suffix)
            values = {"times_copy": ratio.median, "times_copy_low": ratio.low, "times_copy_high": ratio.high}
            rows.append({"case": EXPORT + suffix, "dtype": self.dtype, "sources": self.n_sources} | values)
        return rows


def measure_all(data: Data, size: Size, measure: Callable[..., tuple[Timings, dict[str, Any]]]) -> list[Outcome]:
    """Four sources in both dtypes, each in the peer's best setting, then sixteen in the setting found for four."""
    fp32 = Outcome("fp32", 4, *measure(data, "fp32", 4, size.rounds, ""))
    bf16 = Outcome("bf16", 4, *measure(data, "bf16", 4, size.rounds, ""))
    many = Outcome("bf16", 16, *measure(data, "bf16", 16, size.few_rounds, bf16.checks["setting"]))
    return [fp32, bf16, many]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small network, about a minute")
    quick = parser.parse_args().quick
    start, size = time.perf_counter(), QUICK if quick else FULL
    os.environ |= PLAIN_PROCESS
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    data = prepare(SCRATCH / NAME / ("quick" if quick else "full"), size.network)
    disk = measure_all(data, size, measure_disk)
    memory = measure_all(data, size, measure_memory)
    keep_freed_memory()
    recycled = [
        Outcome(o.dtype, 4, *measure_memory(data, o.dtype, 4, size.rounds, o.checks["setting"], recycled=True))
        for o in memory[:2]
    ]
    commands = measure_commands(data, size.commands)
    peaks = measure_peaks(data, size.processes)
    data.clear_output()

    tables: dict[str, Rows] = {
        "memory": [row for outcome in memory for row in outcome.rows],
        "memory_recycled": [row for outcome in recycled for row in outcome.rows],
        "disk": [row for outcome in disk for row in outcome.rows],
        "copy_limit": [row for outcome in disk for row in outcome.copies],
        "command": commands.rows("mergekit-yaml", dtype="fp32", sources=4),
        "process_memory": peaks,
        "mergekit_settings": [row for outcome in (*memory, *disk) for row in outcome.checks["tried"]],
    }
    figures: dict[str, float] = {}
    for in_memory, again, on_disk in zip(memory[:2], recycled, disk[:2], strict=True):
        dtype = in_memory.dtype
        figures[f"memory_speedup_{dtype}"] = in_memory.speedup(OURS)
        figures[f"memory_speedup_{dtype}_without_extra"] = in_memory.speedup(WITHOUT_EXTRA)
        figures[f"memory_speedup_{dtype}_over_recycled"] = again.speedup(OURS)
        figures[f"disk_speedup_{dtype}"] = on_disk.speedup(EXPORT)
    apart = {dtype: [o.checks["difference"] for o in (*memory, *disk) if o.dtype == dtype] for dtype in DTYPES}
    figures |= {
        "command_speedup": commands.ratio("mergekit-yaml", "smatter compose").median,
        "anonymous_memory_ratio": peaks[1]["peak_anonymous_mb"] / peaks[0]["peak_anonymous_mb"],
        "copy_limit_ratio": max(outcome.copies[0]["times_copy"] for outcome in disk[:2]),
        "bit_equal": int(all(outcome.checks["bit_equal"] for outcome in memory)),
        "agrees_with_mergekit": max(apart["fp32"]),
        "agrees_with_mergekit_bf16": max(apart["bf16"]),
    }
    described = machine(["torch", "numpy", "numba", "mergekit", "transformers", "safetensors"], threads=1)
    path = write_result(NAME, figures, tables | {"notes": NOTES}, described, time.perf_counter() - start, quick)
    for title, rows in tables.items():
        show(title.replace("_", " "), rows)
    show("figures", [{"figure": name, "value": value} for name, value in figures.items()])
    print(f"wrote {path.relative_to(SCRATCH.parent)}")


if __name__ == "__main__":
    main()
