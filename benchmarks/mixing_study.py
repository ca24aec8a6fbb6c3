"""How to fine-tune checkpoints so that they mix: recipes of training, judged on validation tasks of Signs.

    python benchmarks/mixing_study.py [--work DIR] [--tasks N] [--quick] [RECIPES]

The specialists of Signs are made by each recipe (tools/sources/recipes.py; `make mixing-study` trains them). For each:
how far they are from the base, what each gains over it on its own domains, and the mixing loss, which is what an
average of the sources' predictions is above the average of their weights, at the same weights: equal ones, and those
of evidence.
"""

import argparse
import os
import shutil
import sys
import time
from functools import cache
from pathlib import Path

from common import PLAIN_PROCESS, ROOT, Rows, machine, show, write_result

os.environ |= PLAIN_PROCESS
sys.path.insert(0, str(ROOT / "tools" / "common"))
sys.path.insert(0, str(ROOT / "tools" / "sources"))

import torch
from libraries import write_library
from mixing import place
from plan import SPECIALISTS
from recipes import RECIPES
from safetensors.torch import load_file, save_file
from signs_tasks import PACKAGES, Scores, live, shared_out, tasks

from smatter.compose.mixture import Mixture
from smatter.library.check import check_library
from smatter.library.library import open_library
from smatter.library.similarity import Similarity
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.task import Task
from smatter.route.encode import source_losses
from smatter.route.evidence import Evidence
from smatter.scores.intervals import clustered_interval, mean_interval
from smatter.tasks.lists import TaskList
from smatter.tasks.open import SHIPPED, open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.wear import Worn
from smatter.tasks.splits import Split

NAME = "mixing_study"
LISTS = tuple(f"validation-{kind}-{shots}" for kind in ("id", "ood", "mixed") for shots in (1, 2, 5))
SHIPPED_RECIPE = "as shipped"
SHOTS = (1, 2, 5)
SHRUNK = {f"shipped, {factor} of the way": factor for factor in (0.8, 0.6, 0.4)}
"""No recipes: nearer sources from those that ship, without training."""


def library_of(work: Path, recipe: str) -> Path:
    """The library of a recipe's specialists and their base; made where it is not there."""
    if recipe == SHIPPED_RECIPE:
        return SHIPPED / "signs-library"
    folder = place(work, recipe)
    if recipe in SHRUNK and not folder.exists():
        write_shrunk(folder, SHRUNK[recipe])
    if not (folder / "library").exists():
        if not (folder / "base").exists():
            shutil.copytree(SHIPPED / "signs-library" / "base", folder / "base")
        write_library(folder, ["base", *SPECIALISTS], folder / "library")
    return folder / "library"


def write_shrunk(folder: Path, factor: float) -> None:
    """The shipped specialists with this share of their distance to the base."""
    base = load_file(SHIPPED / "signs-library" / "base" / "model.safetensors")
    for name in SPECIALISTS:
        shutil.copytree(SHIPPED / "signs-library" / name, folder / name)
        path = folder / name / "model.safetensors"
        tuned = load_file(path)
        near = {key: base[key].float().lerp(tensor.float(), factor).to(tensor) for key, tensor in tuned.items()}
        save_file(near, path, {"format": "pt"})


def score(library: Path, name: str, index: int) -> Scores:
    """Accuracy on one task, in percent, of mixtures of weights and of predictions at the same weights."""
    network = live(library)
    names = network.library.names
    episode = tasks(name).episode(index)
    queries = episode_queries(network, episode)
    task = Task.of(network, prepared_support(network, episode))
    evidence = Evidence.of(names, source_losses(network, task.objective, names))
    logits = []
    for source in names:
        network.compose(Mixture.of({source: 1.0}))
        logits.append(queries.logits(network.read(queries)))
    stacked = torch.stack(logits)

    def right(scores: torch.Tensor) -> float:
        return 100 * float((scores.argmax(dim=1) == queries.classes).double().mean())

    scores: Scores = {"domain": int(episode.query.domains.min())}
    for label, weights in (("equal", [1 / len(names)] * len(names)), ("evidence", list(evidence.weights))):
        network.compose(Mixture.of(dict(zip(names, weights, strict=True))))
        scores[f"weights {label}"] = right(queries.logits(network.read(queries)))
        scores[f"predictions {label}"] = right(torch.tensordot(torch.tensor(weights).float(), stacked, 1))
    singles = {source: right(each) for source, each in zip(names, logits, strict=True)}
    scores["base"] = singles[network.library.manifest.base]
    scores["best by evidence"] = singles[evidence.best]
    scores["best in hindsight"] = max(singles.values())
    return scores


def judge(library: Path, what: str, domain: str, index: int) -> Scores:
    """A task of a specialist's domain, or of a list where there is no domain."""
    return {"gain": gain(library, "validation", what, domain, index)} if domain else score(library, what, index)


@cache
def domain_tasks(split: Split, domain: str, shots: int) -> TaskList:
    """Tasks of one domain."""
    like = SamplerSettings(split=split, role="id", n_way=(5, 10), domains=(domain,), n_shot=(shots, shots))
    return TaskList(domain, Sampler(open_suite("signs"), like, 11), 1000, (Worn("both", 5),))


def gain(library: Path, split: Split, specialist: str, domain: str, index: int) -> float:
    """What a specialist is above the base on one task of its domains, in points."""
    network = live(library)
    queries = episode_queries(network, domain_tasks(split, domain, SHOTS[index % len(SHOTS)]).episode(index))
    found = []
    for source in (specialist, network.library.manifest.base):
        network.compose(Mixture.of({source: 1.0}))
        found.append(100 * queries.accuracy(network.read(queries)))
    return found[0] - found[1]


def gain_rows(library: Path, split: Split, n_tasks: int) -> Rows:
    """What each specialist gains over the base on its own domains."""
    jobs = [
        (library, split, specialist, domain, index)
        for specialist, mine in SPECIALISTS.items()
        for domain in mine
        for index in range(n_tasks)
    ]
    points: dict[str, list[float]] = {}
    for (_, _, specialist, _, _), found in shared_out("specialists", gain, jobs, 8, keep=True):
        points.setdefault(specialist, []).append(found)
    rows: Rows = []
    for specialist, values in points.items():
        interval = mean_interval(values)
        rows.append(
            {"specialist": specialist, "gain": interval.mean, "gain_low": interval.low, "gain_high": interval.high}
        )
    return rows


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", help="those to judge; all that are there by default")
    parser.add_argument("--work", type=Path, default=ROOT / ".build" / "mixing", help="where mixing.py left them")
    parser.add_argument("--tasks", type=int, default=30, help="tasks of each list and of each domain")
    parser.add_argument("--quick", action="store_true", help="two tasks of each, the shipped library only")
    options = parser.parse_args()
    begin = time.perf_counter()
    n_tasks = 2 if options.quick else options.tasks
    there = [name for name in RECIPES if all((place(options.work, name) / each).exists() for each in SPECIALISTS)]
    recipes = options.recipes or [SHIPPED_RECIPE, *([] if options.quick else [*SHRUNK, *there])]
    rows: Rows = []
    modules: Rows = []
    for recipe in recipes:
        library = library_of(options.work, recipe)
        own = [(specialist, domain) for specialist, mine in SPECIALISTS.items() for domain in mine]
        jobs = [(library, *what, index) for what in (*own, *((name, "") for name in LISTS)) for index in range(n_tasks)]
        gains: dict[str, list[float]] = {}
        found: list[Scores] = []
        for (_, what, domain, _), result in shared_out(recipe, judge, jobs, 8, keep=True):
            gains.setdefault(what, []).append(result["gain"]) if domain else found.append(result)
        domains = [each["domain"] for each in found]
        similarity = similarity_of(library)
        row: dict[str, object] = {"recipe": recipe, "cosine": float(similarity.overall_cosine[1:].mean())}
        row |= {f"{name}_gain": sum(points) / len(points) for name, points in gains.items()}
        row["least_gain"] = min(sum(points) / len(points) for points in gains.values())
        for label in ("equal", "evidence"):
            ours, peer = ([each[f"{what} {label}"] for each in found] for what in ("weights", "predictions"))
            loss = clustered_interval([p - o for p, o in zip(peer, ours, strict=True)], domains)
            row |= {f"weights_{label}": sum(ours) / len(ours), f"predictions_{label}": sum(peer) / len(peer)}
            row |= {f"loss_{label}": loss.mean, f"loss_{label}_low": loss.low, f"loss_{label}_high": loss.high}
        for label in ("base", "best by evidence", "best in hindsight"):
            row[label.replace(" ", "_")] = sum(each[label] for each in found) / len(found)
        rows.append(row)
        modules += distance_rows(similarity, recipe)
        show("recipes", rows)
    figures = {
        f"{row['recipe']} {key}": value for row in rows for key, value in row.items() if isinstance(value, float)
    }
    tables = {"recipes": rows, "distances": modules}
    write_result(NAME, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
