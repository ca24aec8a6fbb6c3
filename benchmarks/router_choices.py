"""What a router is made of: candidates that differ in one thing, trained alike and judged on validation tasks.

    python benchmarks/router_choices.py [--tasks N] [--steps N] [--quick]

The rules are those of docs/protocol.md. Every candidate is judged with and without evidence. The one with another seed
is no candidate: it shows by how much two trainings of the same differ. Nor are the two plain averages, which need no
router: of the sources' weights, and of their predictions at a pass for each source. Routers are kept in .build/choices;
a run that was stopped goes on.
"""

import argparse
import time
from dataclasses import asdict
from pathlib import Path

import torch
from beyond_scores import Look
from common import ROOT, SCRATCH, Rows, machine, show, write_result
from signs_tasks import KINDS, PACKAGES, Scores, by_draw, live, shared_out, tasks, train_on_signs, trained, weighed

from smatter.compose.mixture import Mixture
from smatter.live.episodes import episode_queries, prepared_support
from smatter.live.task import Task
from smatter.route.encode import encode
from smatter.scores.intervals import mean_interval, paired_difference
from smatter.settings.training import Imitation, MetaSettings, RouterSettings

NAME = "router_choices"
PLAIN = "moments, global, softmax"
ROUTERS = {
    PLAIN: RouterSettings(),
    "deep sets": RouterSettings(pooling="deep-sets"),
    "attention pooling": RouterSettings(pooling="attention"),
    "tied over modules": RouterSettings(tying="tied"),
    "weights per module": RouterSettings(tying="per-module"),
    "sparsemax": RouterSettings(weight_map="sparsemax"),
    "entmax": RouterSettings(weight_map="entmax"),
    "two sources, straight through": RouterSettings(max_sources=2),
}
IMITATIONS = {"distilled from the solver": Imitation(weights=0.5)}
ANOTHER_SEED = "another seed"
AVERAGES = ("average of weights", "average of predictions")
FORMS = (1, 2, 5, "noise")
"""The last two are the same tasks, with other labels."""


def candidates(n_steps: int) -> dict[str, MetaSettings]:
    """How each is trained."""
    every = {"n_steps": n_steps, "validate_every": min(100, n_steps)}
    found = {name: MetaSettings(router, **every) for name, router in ROUTERS.items()}
    found |= {name: MetaSettings(imitation=imitation, **every) for name, imitation in IMITATIONS.items()}
    return found | {ANOTHER_SEED: MetaSettings(seed=1, **every)}


def place(folder: Path, name: str) -> Path:
    """Where a candidate is kept."""
    return folder / name.replace(",", "").replace(" ", "-")


def train(folder: Path, name: str, n_steps: int) -> float:
    """Train a candidate, if it is not there; the seconds that it took."""
    train_on_signs(candidates(n_steps)[name], place(folder, name))
    return float(trained(place(folder, name)).record["seconds"])


def score(folder: Path, names: tuple[str, ...], tasks_name: str, index: int) -> Scores:
    """Accuracy of every candidate on one task, in percent, without evidence and with it."""
    network = live()
    episode = tasks(tasks_name).episode(index)
    queries = episode_queries(network, episode)
    told = encode(network, Task.of(network, prepared_support(network, episode)).objective, network.library.names)
    scores = {}
    for name in names:
        for label, with_evidence in ((name, False), (f"{name}, with evidence", True)):
            weights = weighed(network, trained(place(folder, name)), told, with_evidence)
            scores[label] = 100 * queries.accuracy(network.read(queries))
            scores[f"entropy {label}"] = float(torch.special.entr(weights).sum(dim=1).mean())
    alike, look = dict.fromkeys(network.library.names, 1 / len(network.library.names)), Look(network, episode)
    of_weights = look.voices(network.library.recipe(Mixture.of(alike)))
    for label, voices in zip(AVERAGES, (of_weights, look.plain(alike)), strict=True):
        scores[label] = look.right(voices.logits)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=40, help="tasks of each list")
    parser.add_argument("--steps", type=int, default=200, help="of each training")
    parser.add_argument("--quick", action="store_true", help="two tasks of each list, four steps")
    options = parser.parse_args()
    n_tasks, n_steps = (2, 4) if options.quick else (options.tasks, options.steps)
    folder = (SCRATCH if options.quick else ROOT / ".build") / "choices"
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    names = tuple(candidates(n_steps))
    costly_first = sorted(names, key=lambda name: name not in IMITATIONS)
    jobs = [(folder, name, n_steps) for name in costly_first]
    seconds = {name: spent for (_, name, _), spent in shared_out("training", train, jobs, 1)}
    lists = [f"{kind}-{form}" for kind in KINDS for form in FORMS]
    work = [(folder, names, f"validation-{name}", index) for name in lists for index in range(n_tasks)]
    found: dict[str, list[Scores]] = {}
    for (_, _, name, _), scores in shared_out("tasks", score, work, keep=True):
        found.setdefault(name.removeprefix("validation-"), []).append(scores)
    rows: Rows = []
    figures: dict[str, float] = {"tasks_per_list": n_tasks, "steps": n_steps}
    told = [(name, suffix) for name in names for suffix in ("", ", with evidence")]
    for name, suffix in told + [(name, "") for name in AVERAGES]:
        label = name + suffix
        ours = by_draw(found, lists, label)
        against = paired_difference(ours, by_draw(found, lists, PLAIN + suffix))
        row: dict[str, object] = {"candidate": name, "evidence": bool(suffix)}
        for kind in (*KINDS, "noise"):
            row[kind] = mean_interval(by_draw(found, [each for each in lists if kind in each], label)).mean
        figures[label] = mean_interval(ours).mean
        row |= {"all": figures[label], "minus_plain": against.mean, "half": against.half}
        if name in seconds:
            entropy = mean_interval(by_draw(found, lists, f"entropy {label}")).mean
            row |= {"training_s": seconds[name], "entropy": entropy}
        rows.append(row)
    show("candidates", rows)
    tables = {"candidates": rows, "settings": {name: asdict(each) for name, each in candidates(n_steps).items()}}
    write_result(NAME, figures, tables, machine(PACKAGES, 1), time.perf_counter() - begin, options.quick)


if __name__ == "__main__":
    main()
