"""Which source a few shots point to, and which one the domain's classes ask for; kept in .build/certificates.

Tasks of five validation classes of a domain, ten shots and fifteen queries a class. With n of the shots, evidence
points to a source; the queries say which one is best for these five classes, and all tasks of a domain together which
one is best for it. `python benchmarks/certificates_shots.py` adds tasks until there are enough.
"""

import json
from collections import Counter

import numpy as np
import torch
from certificates_tasks import FOLDER, mend
from common import Rows
from signs_tasks import LIBRARY, live

from smatter.backbones.heads import class_sums, prototype_logits
from smatter.compose.mixture import Mixture
from smatter.live.task import Task
from smatter.route.encode import encode
from smatter.tasks.episode import Episode
from smatter.tasks.export import support_of
from smatter.tasks.open import open_suite
from smatter.tasks.sampler import Sampler, SamplerSettings
from smatter.tasks.shifts.wear import Worn

SHOTS = (1, 2, 5, 10)
N_TASKS = 120
PATH = FOLDER / "shots.jsonl"


def make(sampler: Sampler, index: int) -> dict:
    """Evidence of each source at each number of shots, and its accuracy on the queries after ten."""
    network, episode = live(LIBRARY), sampler.episode(index)
    episode = Worn(target="both", severity=5)(episode, sampler.generator(index, "shifts"))
    names, labels = network.library.names, episode.support.labels
    told: dict = {"domain": sampler.suite.domains[sampler.draw(index).classes[0][0]].name, "index": index}
    for n_shot in SHOTS:
        kept = np.concatenate([np.flatnonzero(labels == label)[:n_shot] for label in np.unique(labels)])
        fewer = Episode(episode.support.select(kept), episode.query, episode.class_names)
        task = Task.of(network, support_of(fewer))
        losses = encode(network, task.objective, names).losses
        told[str(n_shot)] = losses.double().mean(dim=1).tolist()
    shots, queries = (network.examples(part.inputs) for part in (episode.support, episode.query))
    classes, accuracies = torch.from_numpy(np.asarray(labels)), []
    for name in names:
        network.compose(network.library.recipe(Mixture.of({name: 1.0})))
        prototypes = class_sums(network.features(shots), classes, len(episode.class_names))
        named = prototype_logits(network.features(queries), prototypes).argmax(dim=1).numpy()
        accuracies.append(float((named == episode.query.truth).mean()))
    return told | {"accuracies": accuracies}


def shot_rows() -> Rows:
    """How often n shots point to another source than the domain's best, and how much accuracy that costs."""
    found = [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []
    domains = Counter(each["domain"] for each in found)
    best = {
        domain: int(np.mean([each["accuracies"] for each in found if each["domain"] == domain], axis=0).argmax())
        for domain in domains
    }
    rows = []
    for label in (*map(str, SHOTS), "queries of the drawn classes"):
        chosen = [int(np.argmax(each["accuracies"]) if label not in each else np.argmin(each[label])) for each in found]
        wrong = [one != best[each["domain"]] for one, each in zip(chosen, found, strict=True)]
        cost = [
            each["accuracies"][best[each["domain"]]] - each["accuracies"][one]
            for one, each in zip(chosen, found, strict=True)
        ]
        rows.append(
            {
                "routed by": label if " " in label else f"{label} shots",
                "tasks": len(found),
                "other than the domain's best": float(np.mean(wrong)),
                "accuracy lost, points": 100 * float(np.mean(cost)),
            }
        )
    return rows


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    mend(PATH)
    known = {json.loads(line)["index"] for line in PATH.read_text().splitlines()} if PATH.exists() else set()
    settings = SamplerSettings("validation", n_way=(5, 5), n_shot=(10, 10), n_query=15, n_domains=(1, 1))
    sampler = Sampler(open_suite("signs"), settings, 7)
    for index in range(N_TASKS):
        if index not in known:
            told = make(sampler, index)
            with PATH.open("a") as file:
                file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
