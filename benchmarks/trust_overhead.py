"""What the care costs: opening, adding, composing and exporting beside the code of an earlier commit, interleaved."""

import io
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, SCRATCH, Rows, interleave, stage
from house import House
from trust_world import Stand

BEFORE = "febef09"
N_SOURCES, N_OPENS = 4, 20
PLACE = SCRATCH / "trust"


def overhead(stand: Stand) -> dict[str, Any]:
    """Ratios of seconds, now over before; each version has a library of its own, of the same checkpoints."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", str(PLACE)], input=archive, check=True)
    n_layers = 1 if stand.quick else 6
    for number in range(N_SOURCES + 1):
        write_source(PLACE / f"s{number}", number, n_layers)
    time.sleep(2.1)  # no file as young as this is sealed
    houses = {"before": House(PLACE / "src"), "now": House(ROOT / "src")}
    for version, house in houses.items():
        library = PLACE / f"library-{version}"
        run(house, "library", "init", library, PLACE / "s0")
        for number in range(1, N_SOURCES):
            run(house, "library", "add", library, PLACE / f"s{number}")
        run(house, "compose", library, "--weights", "s0=1")  # seals
    rows: Rows = []
    figures: dict[str, float] = {}
    rounds = 3 if stand.quick else 15
    with stage("overhead", len(WORK) * 2 * (rounds + 1)) as tick:
        for name, (work, prepare) in WORK.items():
            cases: dict[str, Callable[[], object]] = {
                version: lambda version=version, work=work: work(houses[version], PLACE / f"library-{version}")
                for version in houses
            }
            before = lambda version, prepare=prepare: prepare(houses[version], PLACE / f"library-{version}")  # noqa: E731
            timed = interleave(cases, rounds, before, tick)
            ratio = timed.ratio("now", "before")
            rows.append(
                {
                    "work": name, "seconds_before": timed.median("before"), "seconds_now": timed.median("now"),
                    "ratio": ratio.median, "ratio_low": ratio.low, "ratio_high": ratio.high,
                }
            )  # fmt: skip
            key = name.replace(", ", "_").replace(" ", "_")
            figures |= {
                f"overhead_{key}": ratio.median,
                f"overhead_{key}_low": ratio.low,
                f"overhead_{key}_high": ratio.high,
            }
    shutil.rmtree(PLACE)
    return {"figures": figures, "tables": {"overhead": rows}}


def write_source(folder: Path, seed: int, n_layers: int) -> None:
    """A BERT of plain random tensors; with six layers about 20 million parameters."""
    from safetensors.numpy import save_file

    width, start, change = 512, np.random.default_rng(0), np.random.default_rng(seed + 1)
    shapes: dict[str, tuple[int, ...]] = {"embeddings.word_embeddings.weight": (4000, width)}
    for layer in range(n_layers):
        prefix = f"encoder.layer.{layer}"
        shapes |= {f"{prefix}.attention.self.{each}.weight": (width, width) for each in ("query", "key", "value")}
        shapes[f"{prefix}.attention.output.dense.weight"] = (width, width)
        shapes[f"{prefix}.intermediate.dense.weight"] = (4 * width, width)
        shapes[f"{prefix}.output.dense.weight"] = (width, 4 * width)
    tensors = {}
    for name, shape in shapes.items():
        noise = 1e-3 * change.standard_normal(shape, np.float32)
        tensors[name] = 0.02 * start.standard_normal(shape, np.float32) + noise
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": width, "num_attention_heads": 8,
        "num_hidden_layers": n_layers, "intermediate_size": 4 * width, "vocab_size": 4000,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def run(house: House, *words: str | Path) -> None:
    """A command of one version."""
    with house.inside(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
        from smatter.cli.main import main

        assert main([str(word) for word in words]) == 0, (words, errors.getvalue())


def open_(house: House, library: Path) -> None:
    with house.inside():
        from smatter.library.library import open_library

        for _ in range(N_OPENS):
            open_library(library)


def verify(house: House, library: Path) -> None:
    with house.inside():
        from smatter.library.library import open_library

        for _ in range(N_OPENS):
            open_library(library).verify()


def compose(house: House, library: Path) -> None:
    with house.inside():
        from smatter.compose.mixture import Mixture
        from smatter.library.library import open_library

        opened = open_library(library)
        opened.verify()
        opened.compose(Mixture.of({f"s{number}": 1 / N_SOURCES for number in range(N_SOURCES)}))


def export(house: House, library: Path) -> None:
    weights = ",".join(f"s{number}={1 / N_SOURCES}" for number in range(N_SOURCES))
    run(house, "compose", library, "--weights", weights, "-o", PLACE / "out")


def no_export(_house: House, _library: Path) -> None:
    shutil.rmtree(PLACE / "out", ignore_errors=True)


def add(house: House, library: Path) -> None:
    run(house, "library", "add", library, PLACE / f"s{N_SOURCES}", "--name", "more")


def add_delta(house: House, library: Path) -> None:
    run(house, "library", "add", library, PLACE / f"s{N_SOURCES}", "--name", "more", "--store", "delta")


def without(house: House, library: Path) -> None:
    if '"more"' in (library / "library.json").read_text():
        run(house, "library", "remove", library, "more")


def nothing(_house: House, _library: Path) -> None:
    """No preparation."""


Work = Callable[[House, Path], None]
WORK: dict[str, tuple[Work, Work]] = {
    "open": (open_, nothing),
    "open and verify": (verify, nothing),
    "compose": (compose, nothing),
    "export": (export, no_export),
    "add": (add, without),
    "add, delta": (add_delta, without),
}
