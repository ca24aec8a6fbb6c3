"""What the studies of mixing share: how a recipe's sources are judged on tasks, and the table of recipes."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from common import Rows, machine, show, write_result
from signs_tasks import PACKAGES, Scores, right, shared_out

from smatter.compose.mixture import Mixture
from smatter.library.check import check_library
from smatter.library.library import open_library
from smatter.library.similarity import Similarity
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.mixture import LiveMixture
from smatter.live.task import Task
from smatter.route.encode import source_losses
from smatter.route.evidence import Evidence
from smatter.scores.intervals import clustered_interval, mean_interval
from smatter.tasks.episode import Episode

SHOTS = (1, 2, 5)
LISTS = tuple(f"validation-{kind}-{shots}" for kind in ("id", "ood", "mixed") for shots in SHOTS)


def score_episode(network: LiveMixture, episode: Episode) -> Scores:
    """Accuracy on one task, in percent, of mixtures of weights and of predictions at the same weights."""
    names = network.library.names
    queries = episode_queries(network, episode)
    task = Task.of(network, prepared_support(network, episode))
    evidence = Evidence.of(names, source_losses(network, task.objective, names))
    logits = []
    for source in names:
        network.compose(Mixture.of({source: 1.0}))
        logits.append(queries.logits(network.read(queries)))
    stacked = torch.stack(logits)

    scores: Scores = {"domain": int(episode.query.domains.min())}
    for label, weights in (("equal", [1 / len(names)] * len(names)), ("evidence", list(evidence.weights))):
        network.compose(Mixture.of(dict(zip(names, weights, strict=True))))
        scores[f"weights {label}"] = right(queries, queries.logits(network.read(queries)))
        scores[f"predictions {label}"] = right(queries, torch.tensordot(torch.tensor(weights).float(), stacked, 1))
    singles = {source: right(queries, each) for source, each in zip(names, logits, strict=True)}
    scores["base"] = singles[network.library.manifest.base]
    scores["best by evidence"] = singles[evidence.best]
    scores["best in hindsight"] = max(singles.values())
    return scores


def gain_in_episode(network: LiveMixture, episode: Episode, specialist: str) -> float:
    """What a specialist is above the base on one task, in points."""
    queries = episode_queries(network, episode)
    found = []
    for source in (specialist, network.library.manifest.base):
        network.compose(Mixture.of({source: 1.0}))
        found.append(100 * queries.accuracy(network.read(queries)))
    return found[0] - found[1]


def similarity_of(library: Path) -> Similarity:
    """Distances of a library's sources, which begin with the base."""
    found = check_library(open_library(library)).similarity
    assert found
    return found


def distance_rows(similarity: Similarity, recipe: str) -> Rows:
    """How far specialists are from the base: the mean of their deltas' norms over the base's, module by module."""
    squares, base = similarity.deltas.diagonal(axis1=1, axis2=2), similarity.squares[:, :1]
    relative = (squares[:, 1:] / base.clip(1e-12)) ** 0.5
    return [
        {"recipe": recipe, "module": module, "relative_distance": float(row.mean())}
        for module, row in zip(similarity.modules, relative, strict=True)
    ]


def recipe_row(
    recipe: str, similarity: Similarity, gains: Mapping[str, Sequence[float]], found: Sequence[Scores]
) -> dict[str, Any]:
    """What the table says of a recipe.

    Args:
        recipe: its name.
        similarity: of its sources.
        gains: of each specialist, task by task.
        found: scores of the tasks of all lists. Their domains are clusters of the intervals; a specialist has too few
            domains for that, so that intervals of gains are those over its tasks.
    """
    row: dict[str, Any] = {
        "recipe": recipe,
        "cosine": float(similarity.overall_cosine[1:].mean()),
        "scatter": similarity.scatter,
    }
    means = {name: mean_interval(points) for name, points in gains.items()}
    for name, gain in means.items():
        row |= {f"{name}_gain": gain.mean, f"{name}_gain_low": gain.low, f"{name}_gain_high": gain.high}
    row["least_gain"] = min(gain.mean for gain in means.values())
    domains = [each["domain"] for each in found]
    for label in ("equal", "evidence"):
        ours, peer = ([each[f"{what} {label}"] for each in found] for what in ("weights", "predictions"))
        loss = clustered_interval([p - o for p, o in zip(peer, ours, strict=True)], domains)
        row |= {f"weights_{label}": sum(ours) / len(ours), f"predictions_{label}": sum(peer) / len(peer)}
        row |= {f"loss_{label}": loss.mean, f"loss_{label}_low": loss.low, f"loss_{label}_high": loss.high}
    for label in ("base", "best by evidence", "best in hindsight"):
        row[label.replace(" ", "_")] = sum(each[label] for each in found) / len(found)
    return row


def run_study(
    name: str,
    libraries: Iterable[tuple[str, Path]],
    judge: Callable[..., Scores],
    wanted: Sequence[tuple[str, str, int]],
    quick: bool,
) -> None:
    """Judge recipes, show and write what came out.

    Args:
        name: of the result file.
        libraries: each recipe and the library of its sources.
        judge: called with a library and what is wanted, in another process; gives a "gain" for a task of a
            specialist's domain, and what `score_episode` does for a task of a list.
        wanted: specialist and domain, or list and no domain; and the number of the task.
        quick: whether the result goes to the scratch folder.
    """
    begin = time.perf_counter()
    rows: Rows = []
    modules: Rows = []
    for recipe, library in libraries:
        gains: dict[str, list[float]] = {}
        found: list[Scores] = []
        for (_, what, domain, _), result in shared_out(
            recipe, judge, [(library, *each) for each in wanted], 8, keep=True
        ):
            gains.setdefault(what, []).append(result["gain"]) if domain else found.append(result)
        similarity = similarity_of(library)
        rows.append(recipe_row(recipe, similarity, gains, found))
        modules += distance_rows(similarity, recipe)
        show("recipes", rows)
    figures = {
        f"{row['recipe']} {key}": value for row in rows for key, value in row.items() if isinstance(value, float)
    }
    tables = {"recipes": rows, "distances": modules}
    write_result(name, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, quick)
