"""What a task's model is made of, for people who want to know whether to believe it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smatter.compose.recipe import Recipe
from smatter.library.library import Library
from smatter.library.similarity import measure


@dataclass(frozen=True)
class Diagnostics:
    """Figures of one adaptation.

    Args:
        entropy: of the weights, mean over their rows.
        effective_sources: its exponential, how many sources the mixture really uses.
        nearest: the source whose parameters are nearest to the mixture's.
        distances: of the mixture to each source, as a share of the distance of the two sources farthest apart.
        unsteadiness: how far the weights move when other examples are drawn, half their summed standard deviations:
            0 is not at all; none where that is not known.
        corrected: share of the parameters of each module that experts or residual change, of modules that they touch.
    """

    entropy: float
    effective_sources: float
    nearest: str
    distances: dict[str, float]
    unsteadiness: float | None
    corrected: dict[str, float]


def diagnose(library: Library, recipe: Recipe, spread: Sequence[float] = ()) -> Diagnostics:
    """Look at a recipe; reads every source once.

    Args:
        library: the sources.
        recipe: the task's model.
        spread: standard deviation of each source's weight over resampled examples, where it is known.
    """
    mixture, partition = recipe.mixture, library.partition
    weights = np.array(mixture.rows)
    entropy = float(-np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0).sum(axis=1).mean())
    distances = _distances(library, recipe)
    corrected = {}
    if correction := library.correction(recipe):
        counts = {name: each.indices.size for name, each in correction.elements.items()}
        counts |= {name: int(np.count_nonzero(values)) for name, values in correction.dense.items()}
        for module in correction.active_modules(partition):
            names = partition.modules[module]
            total = sum(library.specs[name].n_elements for name in names)
            corrected[module] = sum(counts.get(name, 0) for name in names) / total
    return Diagnostics(
        entropy,
        float(np.exp(entropy)),
        min(distances, key=lambda name: (distances[name], name)),
        distances=distances,
        unsteadiness=sum(spread) / 2 if spread else None,
        corrected=corrected,
    )


def _distances(library: Library, recipe: Recipe) -> dict[str, float]:
    """||sum_r w_r theta_r - theta_s|| for each source s, from inner products; norms and biases are left out."""
    mixture, names = recipe.mixture, (library.manifest.base, *library.names)
    names = tuple(dict.fromkeys(names))
    similarity = measure(library, names, library.specs, library.partition)
    squares = np.zeros(len(names))
    apart = np.zeros((len(names), len(names)))
    for gram, module in zip(similarity.deltas, similarity.modules, strict=True):
        row = dict(zip(mixture.sources, mixture.row(module), strict=True))
        away = np.array([row.get(name, 0.0) for name in names]) - np.eye(len(names))  # a row for each source
        squares += np.einsum("si,ij,sj->s", away, gram, away)
        norms = np.diag(gram)
        apart += norms[:, None] + norms[None, :] - 2 * gram
    scale = np.sqrt(apart.max()) or 1.0
    found = dict(zip(names, (np.sqrt(np.maximum(squares, 0)) / scale).tolist(), strict=True))
    return {name: found[name] for name in library.names}
