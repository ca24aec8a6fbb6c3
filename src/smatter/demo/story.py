"""`smatter demo`: train four small checkpoints, shelve them, mix them, and show what happened."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smatter.backbones.names import load_tensors
from smatter.compose.arena import Arena
from smatter.compose.mixture import Mixture
from smatter.demo.checkpoints import BASE_STEPS, SPECIALIST_STEPS, accuracy, make_checkpoints
from smatter.demo.examples import N_SHOTS, Adaptation, adapt_to, write_shots
from smatter.demo.shapes import SIZE, STYLES, draw
from smatter.library.check import Report, check_library
from smatter.library.edit import add_source, init_library
from smatter.library.export import export
from smatter.library.library import Library
from smatter.library.manifest import MANIFEST
from smatter.library.writing import new_folder
from smatter.report import page
from smatter.report.png import grey_png

N_STEPS = BASE_STEPS + len(STYLES) * SPECIALIST_STEPS
N_TEST = 1000
PATH = tuple(step / 10 for step in range(11))
MIXTURES = {
    "the average": dict.fromkeys(STYLES, 1 / len(STYLES)),
    "half ink, half wire": {"ink": 0.5, "wire": 0.5},
}


@dataclass(frozen=True)
class Outcome:
    """What the demonstration measured: shares of test pictures named correctly."""

    folder: Path
    by_model: dict[str, dict[str, float]]
    """Accuracy of each source and mixture on each style."""
    along_path: dict[str, list[float]]
    """Accuracy on each style along the line from wire to ink."""
    milliseconds: float
    """Median time to compose one mixture into a reused arena."""
    distinct: int
    adaptations: dict[str, Adaptation]
    """What a handful of examples of each style led to."""


def is_demo(folder: Path) -> bool:
    """Whether a folder holds an earlier demonstration."""
    return (folder / "index.html").exists() and (folder / "library" / MANIFEST).exists()


def run(folder: Path, seed: int, progress: Callable[[int], None]) -> Outcome:
    """Make the library in `folder`, compose, measure, write index.html; the folder appears when all is done.

    Args:
        folder: must not exist, be empty, or hold an earlier demonstration, which is replaced.
        seed: of all randomness.
        progress: told each training step, `N_STEPS` in all.
    """
    generator = torch.Generator().manual_seed(seed)
    with new_folder(folder, replace=is_demo(folder)) as work:
        model = make_checkpoints(work / "library", generator, progress)
        library = init_library(work / "library", work / "library" / "base")
        for style in STYLES:
            library, _ = add_source(library.folder, library.folder / style)
        report = check_library(library)
        tests = {style: draw(style, N_TEST, generator) for style in STYLES}
        for style in STYLES:
            write_shots(work / "shots" / style, style, generator)
        adaptations = {style: adapt_to(library, work / "shots" / style, style, generator) for style in STYLES}
        outcome = _measure(folder, library, model, tests, report, adaptations)
        export(library, Mixture.of(MIXTURES["half ink, half wire"]), work / "half-ink-half-wire")
        (work / "index.html").write_text(_page(outcome, library, report, tests), encoding="utf-8")
    return outcome


def _measure(
    folder: Path,
    library: Library,
    model: Any,
    tests: dict[str, tuple[Tensor, Tensor]],
    report: Report,
    adaptations: dict[str, Adaptation],
) -> Outcome:
    arena = Arena(library.specs)
    load_tensors(model, arena.tensors())
    times: list[float] = []

    def scores(weights: dict[str, float]) -> dict[str, float]:
        start = time.perf_counter()
        library.compose(Mixture.of(weights), arena)  # the model sees its new weights at once
        times.append(1000 * (time.perf_counter() - start))
        return {style: accuracy(model, *test) for style, test in tests.items()}

    by_model = {name: scores({name: 1.0}) for name in library.names} | {k: scores(v) for k, v in MIXTURES.items()}
    path = [scores({"ink": share, "wire": 1 - share}) for share in PATH]
    along = {style: [point[style] for point in path] for style in STYLES}
    return Outcome(folder, by_model, along, sorted(times)[len(times) // 2], report.n_distinct or 0, adaptations)


def _page(outcome: Outcome, library: Library, report: Report, tests: dict[str, tuple[Tensor, Tensor]]) -> str:
    assert report.similarity is not None
    cosines = dict(zip(report.similarity.names, report.similarity.overall_cosine, strict=True))
    shelf = [
        [entry.name, f"{entry.n_parameters:,}", f"{cosines[entry.name]:.3f}", entry.digest[:12]]
        for entry in library.manifest.sources
    ]
    accuracies: list[list[str | float]] = [
        [name, *(scores[style] for style in STYLES)] for name, scores in outcome.by_model.items()
    ]
    sheets = {style: _sheet(tests[style][0]) for style in STYLES}
    commands = "\n".join(
        f"smatter {line}"
        for line in (
            "library list library",
            "library check library",
            "compose library --weights ink=.5,wire=.5",
            "compose library --weights ink=.3,wire=.7 -o mine",
            "adapt library shots/ink -o ink.safetensors",
            "solve library shots/wire",
        )
    )
    return page.page(
        "A shelf of checkpoints, mixed",
        f"A small ConvNext learnt to name six shapes in three styles, for {BASE_STEPS} steps; then three specialists "
        f"went on for {SPECIALIST_STEPS} steps, each in one style. All of it was trained on this machine a moment ago.",
        page.section(
            "The styles", "What the networks see: place, size, angle and noise vary.", page.pictures(sheets, 220)
        ),
        page.section(
            "The shelf",
            f"{outcome.distinct} of {len(library.names)} sources are distinct, and all are fit to mix.",
            page.table(["source", "parameters", "cosine to base", "contents"], shelf),
        ),
        page.section(
            "What each knows",
            f"Share of {N_TEST} new pictures of each style whose shape is named. {_winners(outcome, library)} of "
            f"{len(STYLES)} specialists are the best source at their own style, mostly at the price of the others; "
            "mixtures are of weights, not of predictions.",
            page.table(["model", *STYLES], accuracies),
        ),
        page.section(
            "From wire to ink",
            f"Eleven mixtures of two specialists, each composed into the same memory in {outcome.milliseconds:.1f} ms.",
            page.line_chart(
                outcome.along_path, PATH, "weight of ink (the rest is wire)", "Share of pictures named, by style"
            ),
        ),
        page.section(
            "From a handful of examples",
            f"{N_SHOTS} labelled pictures of each shape, in one style, nothing trained: each source is weighted by how "
            "well it recognises each example from the others, and new pictures are named after the nearest class. "
            "Beside it, the average of all sources, and the source that turned out best, which nobody knows before.",
            page.table(
                ["examples", *(f"weight of {name}" for name in library.names), "adapted", "average", "best source"],
                [
                    [
                        style,
                        *(f"{weight:.2f}" for weight in found.weights.values()),
                        found.adapted,
                        found.average,
                        found.best_single,
                    ]
                    for style, found in outcome.adaptations.items()
                ],
            ),
        ),
        page.section(
            "Go on from here",
            f"In {outcome.folder.name}, half-ink-half-wire is a checkpoint that AutoModelForImageClassification loads; "
            "its README.md and recipe.safetensors say what it is made of.",
            page.code(commands),
        ),
    )


def _winners(outcome: Outcome, library: Library) -> int:
    """How many specialists are the best single source at their own style."""
    best = {style: max(library.names, key=lambda name: outcome.by_model[name][style]) for style in STYLES}
    return sum(best[style] == style for style in STYLES)


def _sheet(pictures: Tensor, n_rows: int = 3, n_columns: int = 5) -> bytes:
    """The first pictures side by side."""
    grey = ((pictures[: n_rows * n_columns, 0] + 1) / 2.2).clamp(0, 1).mul(255).byte().numpy()
    sheet = grey.reshape(n_rows, n_columns, SIZE, SIZE).transpose(0, 2, 1, 3).reshape(n_rows * SIZE, n_columns * SIZE)
    return grey_png(np.ascontiguousarray(sheet))
