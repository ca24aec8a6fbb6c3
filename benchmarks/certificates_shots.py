"""Misrouting on Signs by the number of shots, with the floor that the drawn classes set.

A task has five validation classes of one domain. Evidence of n of the shots points to a source. Fourteen other pictures
of each class say which source is best for these five classes, however many shots there may be, and those of the
domain's other tasks say which one is best for the domain. Scores are kept in .build/certificates, so that a run that
was stopped goes on. Writes benchmarks/results/certificates_shots.json; about ten minutes on one core.
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from certificates_tasks import FOLDER, mend
from common import ROOT, Rows, machine, show, stage, write_result
from signs_tasks import LIBRARY, PACKAGES, live

from smatter.backbones.heads import class_sums, prototype_logits
from smatter.compose.mixture import Mixture
from smatter.live.task import Task
from smatter.route.encode import encode
from smatter.scores.intervals import Interval, clustered_interval
from smatter.tasks.episode import Episode
from smatter.tasks.export import support_of
from smatter.tasks.open import open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.wear import Worn

NAME = "certificates_shots"
SHOTS = (1, 2, 5, 10)
OTHERS = "others"
N_TASKS = 400
PATH = FOLDER / "shots.jsonl"

Told = dict[str, Any]


def make(sampler: Sampler, index: int) -> Told:
    """Evidence of each source by some shots and by the other pictures; its accuracy on these after ten shots."""
    network, episode = live(LIBRARY), sampler.episode(index)
    episode = Worn(target="both", severity=5)(episode, sampler.generator(index, "shifts"))
    names, labels = network.library.names, episode.support.labels
    told: Told = {"domain": sampler.suite.domains[sampler.draw(index).classes[0][0]].name, "index": index}
    parts = {str(n): episode.support.select(first_of_each(labels, n)) for n in SHOTS} | {OTHERS: episode.query}
    for name, part in parts.items():
        task = Task.of(network, support_of(Episode(part, episode.query, episode.class_names)))
        told[name] = encode(network, task.objective, names).losses.double().mean(dim=1).tolist()
    shots, queries = (network.examples(part.inputs) for part in (episode.support, episode.query))
    classes, accuracies = torch.from_numpy(np.asarray(labels)), []
    for name in names:
        network.compose(network.library.recipe(Mixture.of({name: 1.0})))
        prototypes = class_sums(network.features(shots), classes, len(episode.class_names))
        named = prototype_logits(network.features(queries), prototypes).argmax(dim=1).numpy()
        accuracies.append(float((named == episode.query.truth).mean()))
    return told | {"accuracies": accuracies}


def first_of_each(labels: np.ndarray, n: int) -> np.ndarray:
    """Places of the first n examples of each class."""
    return np.concatenate([np.flatnonzero(labels == label)[:n] for label in np.unique(labels)])


def best_elsewhere(found: Sequence[Told]) -> list[int]:
    """For each task, the source that explains the other tasks of its domain best; -1 where there is none."""
    sums: dict[str, np.ndarray] = {}
    for each in found:
        sums[each["domain"]] = sums.get(each["domain"], np.zeros(1)) + np.array(each[OTHERS])
    rest = [sums[each["domain"]] - np.array(each[OTHERS]) for each in found]
    return [int(row.argmin()) if row.any() else -1 for row in rest]


def shot_rows(found: Sequence[Told]) -> Rows:
    """How often n shots point to another source than is best for the domain, or for its drawn classes, and the price.

    The last row routes by the other pictures themselves: what it misses of the domain's best, more shots of the same
    classes will miss too.
    """
    pairs = [(each, best) for each, best in zip(found, best_elsewhere(found), strict=True) if best >= 0]
    domains, rows = [each["domain"] for each, _ in pairs], []

    def told(values: Sequence[float], scale: float = 1.0) -> Interval:
        return clustered_interval([scale * value for value in values], domains)

    for name in (*map(str, SHOTS), OTHERS):
        chosen = [int(np.argmin(each[name])) for each, _ in pairs]
        wrong = told([one != best for one, (_, best) in zip(chosen, pairs, strict=True)])
        of_classes = told([one != np.argmin(each[OTHERS]) for one, (each, _) in zip(chosen, pairs, strict=True)])
        lost = [
            each["accuracies"][best] - each["accuracies"][one] for one, (each, best) in zip(chosen, pairs, strict=True)
        ]
        cost = told(lost, 100)
        rows.append(
            {
                "routed by": f"{name} shots" if name != OTHERS else "fourteen others of the drawn classes",
                "tasks": len(pairs),
                "not the domain's best": wrong.mean, "not the domain's best, half": wrong.half,
                "not the drawn classes' best": of_classes.mean, "not the drawn classes' best, half": of_classes.half,
                "accuracy lost, points": cost.mean if name != OTHERS else None,
                "accuracy lost, half": cost.half if name != OTHERS else None,
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="60 tasks")
    quick = parser.parse_args().quick
    start, n_tasks = time.perf_counter(), 60 if quick else N_TASKS
    FOLDER.mkdir(parents=True, exist_ok=True)
    mend(PATH)
    found = [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []
    known = {each["index"] for each in found}
    settings = SamplerSettings("validation", n_way=(5, 5), n_shot=(10, 10), n_query=14, n_domains=(1, 1))
    sampler = Sampler(open_suite("signs"), settings, 7)
    with stage("tasks", n_tasks) as tick:
        for index in range(n_tasks):
            if index not in known:
                found.append(make(sampler, index))
                with PATH.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
            tick()
    rows = shot_rows([each for each in found if each["index"] < n_tasks])
    show("shots", rows)
    figures = {f"misrouting_{n}_shots": row["not the domain's best"] for n, row in zip(SHOTS, rows, strict=False)}
    figures |= {
        f"misrouting_{n}_shots_classes": row["not the drawn classes' best"] for n, row in zip(SHOTS, rows, strict=False)
    }
    figures |= {"misrouting_floor": rows[-1]["not the domain's best"], "tasks": float(rows[-1]["tasks"])}
    path = write_result(
        NAME, figures, {"shots": rows}, machine(PACKAGES, threads=1), time.perf_counter() - start, quick
    )
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
