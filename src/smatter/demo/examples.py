"""The demonstration's handful of labelled pictures, and what adapting to them gives."""

from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from smatter.adaptation.adapt import Adapted
from smatter.adaptation.evidence import gather_evidence
from smatter.adaptation.live import LiveMixture
from smatter.compose.mixture import Mixture
from smatter.demo.shapes import SHAPES, draw
from smatter.library.library import Library
from smatter.tasks.support import read_support

N_SHOTS = 5
N_QUERIES = 300


@dataclass(frozen=True)
class Adaptation:
    """What a few examples of one style led to: weights, and shares of new pictures named by the nearest prototype."""

    weights: dict[str, float]
    adapted: float
    average: float
    best_single: float
    """Of the source that turned out best on these pictures; not known before."""


def write_shots(folder: Path, style: str, generator: torch.Generator) -> None:
    """A folder of class folders with `N_SHOTS` pictures each."""
    names, written = list(SHAPES), dict.fromkeys(SHAPES, 0)
    while min(written.values()) < N_SHOTS:
        for picture, label in zip(*draw(style, 20, generator), strict=True):
            name = names[int(label)]
            if written[name] < N_SHOTS:
                written[name] += 1
                path = folder / name / f"{written[name]}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = (picture.clamp(-1, 1) * 127.5 + 127.5).byte().permute(1, 2, 0)
                Image.fromarray(pixels.numpy()).save(path)


def adapt_to(library: Library, shots: Path, style: str, generator: torch.Generator) -> Adaptation:
    """Adapt to a folder of examples and name new pictures of its style."""
    support, live = read_support(shots), LiveMixture(library)
    pictures, labels = draw(style, N_QUERIES, generator)
    truth = [list(SHAPES)[int(label)] for label in labels]
    evidence = gather_evidence(live, live.rows(support))

    def score(mixture: Mixture) -> float:
        live.compose(mixture)
        named = Adapted(live, support, library.recipe(mixture), evidence, 0.0).predict(pictures).names
        return sum(name == true for name, true in zip(named, truth, strict=True)) / len(truth)

    even = Mixture.of(dict.fromkeys(library.names, 1 / len(library.names)))
    return Adaptation(
        weights=dict(zip(evidence.sources, evidence.weights, strict=True)),
        adapted=score(evidence.mixture),
        average=score(even),
        best_single=max(score(Mixture.of({name: 1.0})) for name in library.names),
    )
